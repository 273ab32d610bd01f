"""The events: every one that a journal can hold, declared once.

An event's name in the journal is its class name in words: `PaymentSettled` is "payment settled".
All its fields are written, in the order of the declaration, which is part of the journal's format.
Units are in the names: `_base` is base units of the token, `_ms` Unix milliseconds, `_s` and
`seconds` seconds, `_wei` wei. A number that may exceed 63 bits (an amount on the chain, a price in
wei) is a decimal string. `python -m x402sim events` prints the reference that is made from these
files.

To add an event: declare it here with its `meaning` (an event of a story in `story`, and import that
here as itself), and add it to its union; record it where it happens, and give it a text in
report/trace.py. The format has changed: raise `VERSION` in journal/entries.py, add the line to
FORMAT in tests/house/test_events.py, which fails until all of this is done, and renew the golden
journals. A field that may be absent (`UNSET`) leaves older journals as they are, and the version.
"""

from typing import ClassVar, Literal, get_args

from x402sim.events import base
from x402sim.events.base import (
    MAX_REASON as MAX_REASON,
    MAX_TEXT as MAX_TEXT,
    MOST_SERVICES as MOST_SERVICES,
    OUTSIDE as OUTSIDE,
    Outcome as Outcome,
    Part as Part,
    Scalar as Scalar,
    Seconds as Seconds,
    ServiceName as ServiceName,
    Skewable as Skewable,
    clipped as clipped,
    name_of as name_of,
    service_name as service_name,
)
from x402sim.events.story import (
    Begin as Begin,
    ChainReorganised as ChainReorganised,
    Check as Check,
    ClockSkewed as ClockSkewed,
    End as End,
    ExplorerLagged as ExplorerLagged,
    FaultInjected as FaultInjected,
    MempoolDropped as MempoolDropped,
    MiningSwitched as MiningSwitched,
    Note as Note,
    PayerJoined as PayerJoined,
    RevertsForced as RevertsForced,
    ServiceCrashed as ServiceCrashed,
    ServiceJoined as ServiceJoined,
    StoryRaised as StoryRaised,
    TimeAdvanced as TimeAdvanced,
)

Intervention = (
    TimeAdvanced | FaultInjected | ClockSkewed | ExplorerLagged | ServiceCrashed
    | MiningSwitched | ChainReorganised | MempoolDropped | RevertsForced
)  # fmt: skip
"""Actions of a story on its world."""
StoryEvent = Begin | End | ServiceJoined | PayerJoined | Intervention | Check | StoryRaised | Note
"""Events of a story or its world; the actor is "world"."""


class RequestSent(base.BaseEvent, frozen=True):
    meaning: ClassVar[str] = """Written when a caller (a payer's name, or "service") sends a request
    to a part. `exchange` numbers the exchange; `path` is the JSON-RPC method if `to` is rpc. Ids
    are those in header or body, `authorization` is the nonce of a payment header, in hex, or
    "unreadable"."""

    actor: str
    exchange: int
    to: Part
    method: str
    path: str
    payment_id: str | None = None
    session_id: str | None = None
    authorization: str | None = None


class AnswerReceived(base.BaseEvent, frozen=True):
    meaning: ClassVar[str] = """Written when the answer of an exchange reaches the caller. `ok` is
    `isValid` or `success` in the body; `final` is false if a refused payment may still move money,
    null if the answer does not say."""

    actor: str
    exchange: int
    to: Part
    status: int
    error: str | None = None
    final: bool | None = None
    payment_id: str | None = None
    session_id: str | None = None
    tx_hash: str | None = None
    ok: bool | None = None


class NoAnswer(base.BaseEvent, frozen=True):
    meaning: ClassVar[str] = """Written when a caller stops waiting; `reason`: timeout, given up, or
    a transport error."""

    actor: str
    exchange: int
    to: Part
    reason: str


ExchangeEvent = RequestSent | AnswerReceived | NoAnswer
"""Events of an exchange, as seen by the caller, who is the actor."""


class AnswerSent(base.BaseEvent, frozen=True):
    meaning: ClassVar[str] = "Written when a part begins to answer a request, as seen by the part."

    actor: Part
    method: str
    path: str
    status: int


class _Chain(base.BaseEvent, frozen=True, kw_only=True):
    actor: str = "chain"


class TransactionMined(_Chain, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written for each transaction in a new block, whether it succeeded or
    reverted. `call` is the function of the token that it calls, empty for any other call; `gas` is
    the gas used; `revert_reason` is null if it succeeded."""

    tx_hash: str
    block: int
    block_time_s: int
    sender: str
    call: str
    gas: int
    gas_price_wei: str
    revert_reason: str | None


class Transfer(_Chain, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written for each Transfer event of the token in a new block."

    tx_hash: str
    block: int
    sender: str
    to: str
    amount_base: str


class AuthorizationConsumed(_Chain, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written for each authorization that a new block uses or cancels.
    `authorization` is its nonce, in hex."""

    tx_hash: str
    authorizer: str
    authorization: str
    use: Literal["used", "canceled"]


class TransactionUndone(_Chain, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written for each transaction of a block that a reorganisation
    removes."""

    tx_hash: str


ChainEvent = TransactionMined | Transfer | AuthorizationConsumed | TransactionUndone
"""Events of a chain; the actor is "chain", and of a further network's "chain NAME"."""


class _Service(base.BaseEvent, frozen=True, kw_only=True):
    actor: ServiceName = "service"


class PaymentSettled(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the service grants access for a payment, at settlement
    or at reconciliation."""

    payment_id: str
    tx_hash: str
    payer: str
    amount_base: int
    resource: str


class PaymentRefused(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when POST /api/pay refuses an attempt to pay. `refusal` is
    the error's text, `reason` has details. `final` is false if this attempt may still move money.
    `leaves_earlier` says that earlier attempts with this payment id keep their outcome."""

    payment_id: str
    refusal: str
    reason: str | None
    final: bool
    leaves_earlier: bool


class PaymentFailed(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a payment can never be paid any more."

    payment_id: str


class PaymentUndone(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the chain has undone a settled payment's transfer, and
    may still make it. Until then the payment is pending and grants nothing."""

    payment_id: str


class PaidAgain(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a second header of a settled payment id was used too:
    it bought nothing."""

    payment_id: str
    tx_hash: str


class TransactionReplaced(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when another transaction than the recorded one turns out to
    have made a payment."""

    payment_id: str
    tx_hash: str


class PaymentIndexed(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the block of a settled payment is found, or turns out
    to be another one."""

    payment_id: str
    block: int


class SettlementAnswerLost(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the facilitator's answer to a settlement does not
    arrive."""

    payment_id: str


class SessionOpened(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a paid deposit opens a session."

    session_id: str
    payment_id: str
    payer: str
    deposited_base: int
    expires_ms: int


class SessionDebited(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a request debits a session; `released_base` is the
    total so far."""

    session_id: str
    amount_base: int
    released_base: int


class DebitUndone(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the client of a debited request has hung up before its
    answer was written. `released_base` is the total without it."""

    session_id: str
    amount_base: int
    released_base: int


class AnswerNotWritten(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the client of a payment in one step has hung up before
    its answer was written. The payment stays settled, and is good for another answer."""

    payment_id: str


class SessionsExpired(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a sweep ends `count` expired sessions."

    count: int


class SessionRefunded(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when the unspent balance of a session is refunded."

    session_id: str
    amount_base: int
    tx_hash: str


class RefundDelayed(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a refund fails; it is tried again `retry_s` seconds
    later."""

    session_id: str
    reason: str
    retry_s: int


class RefundUndone(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the chain has undone the transfer of a refund, which is
    due again."""

    session_id: str


class IndexerRan(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the indexer has run, with the number of records by
    result. `backlog` records still have no block."""

    asked: int
    matched: int
    reverted: int
    unknown: int
    unanswered: int
    backlog: int


ServiceEvent = (
    PaymentSettled | PaymentRefused | PaymentFailed | PaymentUndone | PaidAgain
    | TransactionReplaced | PaymentIndexed | SettlementAnswerLost | SessionOpened
    | SessionDebited | DebitUndone | AnswerNotWritten | SessionsExpired | SessionRefunded
    | RefundDelayed | RefundUndone | IndexerRan
)  # fmt: skip
"""Events of a service; the actor is its name."""
Event = StoryEvent | ChainEvent | ServiceEvent | ExchangeEvent | AnswerSent
"""Any event."""
KINDS: tuple[type[Event], ...] = get_args(Event)
"""The class of every event."""
