"""What does the service do?"""

from typing import Literal

from x402sim.events.base import BaseEvent


class _Service(BaseEvent, frozen=True, kw_only=True):
    actor: Literal["service"] = "service"


class PaymentSettled(_Service, frozen=True, kw_only=True):
    """Written when the service grants access for a payment, whoever found out that it is paid."""

    payment_id: str
    tx_hash: str
    payer: str
    amount_base: int
    resource: str


class PaymentRefused(_Service, frozen=True, kw_only=True):
    """Written when POST /api/pay refuses an attempt to pay.

    `refusal` is the error's text, `reason` says more. `final` is False as long as this
    attempt may still move money. `leaves_earlier` tells that the outcome of earlier attempts
    with this payment id stays as it was.
    """

    payment_id: str
    refusal: str
    reason: str | None
    final: bool
    leaves_earlier: bool


class PaymentFailed(_Service, frozen=True, kw_only=True):
    """Written when a payment can never be paid any more, or its transaction has reverted."""

    payment_id: str


class PaymentIndexed(_Service, frozen=True, kw_only=True):
    """Written when the indexer finds the block of a settled payment."""

    payment_id: str
    block: int


class SettlementAnswerLost(_Service, frozen=True, kw_only=True):
    """Written when the facilitator was asked to settle and its answer did not come."""

    payment_id: str


class SessionOpened(_Service, frozen=True, kw_only=True):
    """Written when a deposit is paid and becomes a session."""

    session_id: str
    payment_id: str
    payer: str
    deposited_base: int
    expires_ms: int


class SessionDebited(_Service, frozen=True, kw_only=True):
    """Written when a request spends from a session; `released_base` is all that it has spent."""

    session_id: str
    amount_base: int
    released_base: int


class SessionsExpired(_Service, frozen=True, kw_only=True):
    """Written when a sweep ends `count` sessions whose time has passed."""

    count: int


class SessionRefunded(_Service, frozen=True, kw_only=True):
    """Written when the unspent rest of a session has been paid back."""

    session_id: str
    amount_base: int
    tx_hash: str


class IndexerRan(_Service, frozen=True, kw_only=True):
    """Written when the indexer has run: how many records it asked for, and what it found.

    `backlog` records are still without a block after it.
    """

    asked: int
    matched: int
    reverted: int
    unknown: int
    unanswered: int
    backlog: int
