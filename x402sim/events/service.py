"""The events of a service; `actor` is its name, as a world can have several."""

from x402sim.events.base import BaseEvent, ServiceName


class _Service(BaseEvent, frozen=True, kw_only=True):
    actor: ServiceName = "service"


class PaymentSettled(_Service, frozen=True, kw_only=True):
    """Written when the service grants access for a payment, at settlement or at reconciliation."""

    payment_id: str
    tx_hash: str
    payer: str
    amount_base: int
    resource: str


class PaymentRefused(_Service, frozen=True, kw_only=True):
    """Written when POST /api/pay refuses an attempt to pay.

    `refusal` is the error's text, `reason` has details. `final` is False if this attempt may still
    move money. `leaves_earlier` says that earlier attempts with this payment id keep their
    outcome.
    """

    payment_id: str
    refusal: str
    reason: str | None
    final: bool
    leaves_earlier: bool


class PaymentFailed(_Service, frozen=True, kw_only=True):
    """Written when a payment can never be paid any more."""

    payment_id: str


class PaymentUndone(_Service, frozen=True, kw_only=True):
    """Written when the chain has undone a settled payment's transfer, and may still make it.

    Until then the payment is pending and grants nothing.
    """

    payment_id: str


class PaidAgain(_Service, frozen=True, kw_only=True):
    """Written when a second header of a settled payment id was used too: it bought nothing."""

    payment_id: str
    tx_hash: str


class TransactionReplaced(_Service, frozen=True, kw_only=True):
    """Written when another transaction than the recorded one turns out to have made a payment."""

    payment_id: str
    tx_hash: str


class PaymentIndexed(_Service, frozen=True, kw_only=True):
    """Written when the block of a settled payment is found, or turns out to be another one."""

    payment_id: str
    block: int


class SettlementAnswerLost(_Service, frozen=True, kw_only=True):
    """Written when the facilitator's answer to a settlement does not arrive."""

    payment_id: str


class SessionOpened(_Service, frozen=True, kw_only=True):
    """Written when a paid deposit opens a session."""

    session_id: str
    payment_id: str
    payer: str
    deposited_base: int
    expires_ms: int


class SessionDebited(_Service, frozen=True, kw_only=True):
    """Written when a request debits a session; `released_base` is the total so far."""

    session_id: str
    amount_base: int
    released_base: int


class SessionsExpired(_Service, frozen=True, kw_only=True):
    """Written when a sweep ends `count` expired sessions."""

    count: int


class SessionRefunded(_Service, frozen=True, kw_only=True):
    """Written when the unspent balance of a session is refunded."""

    session_id: str
    amount_base: int
    tx_hash: str


class RefundDelayed(_Service, frozen=True, kw_only=True):
    """Written when a refund fails; it is tried again `retry_s` seconds later."""

    session_id: str
    reason: str
    retry_s: int


class RefundUndone(_Service, frozen=True, kw_only=True):
    """Written when the chain has undone the transfer of a refund, which is due again."""

    session_id: str


class IndexerRan(_Service, frozen=True, kw_only=True):
    """Written when the indexer has run, with the number of records by result.

    `backlog` records still have no block.
    """

    asked: int
    matched: int
    reverted: int
    unknown: int
    unanswered: int
    backlog: int
