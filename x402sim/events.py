"""The events: each possible event of a journal, declared once.

An event's name in the journal is its class name in words: `PaymentSettled` is "payment settled".
All fields are written, in the order of the declaration; the order is part of the journal's format.
Units are in the names: `_base` is base units of the token, `_ms` Unix milliseconds, `_s` and
`seconds` seconds, `_wei` wei. A number that may exceed 63 bits (an amount on the chain, a price in
wei) is a decimal string. The guide's page `events.md` is made from this file.

To add an event: declare a class here with a `meaning`, and add the class to a union; record the
event where it happens, and write a text in report/trace.py. The format has changed: raise `VERSION`
in journal.py, add the line to FORMAT in tests/house/test_events.py, and renew the golden journals;
the test fails until all steps are done. An optional field (`UNSET`), and an event caused only by
new options of a world, leave the version and other journals unchanged.
"""

from typing import Any, ClassVar, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType, field

ServiceName = str
"""The name of a service: "service", "service 2" and so on, or the world's own name."""
MOST_SERVICES = 20
"""The most services of one world."""
Part = str
"""The name of a part with an HTTP application: a service, a facilitator, or a name in `OUTSIDE`."""
OUTSIDE = ("facilitator", "explorer", "rpc")
"""The parts called by a service; further facilitators have their own names."""
StoryOutcome = Literal["passed", "failed", "skipped"]
"""The outcomes of a run."""
Seconds = int | float
MAX_TEXT = 120
"""The most characters of a text from a message in an event, such as of an id or an error."""
MAX_REASON = 300
"""The most characters of a refusal's reason in an event."""
Scalar = str | int | float | bool | None
"""A JSON value other than an array or an object."""


def _in_words(name: str) -> str:
    """Return the name of a class in words: "PaymentSettled" is "payment settled"."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).lstrip()


class BaseEvent(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag=_in_words):
    """The base of all events: frozen, with the name as the tag."""

    meaning: ClassVar[str]
    """The reference's text: the occasion of the event, and the fields."""


def name_of(event: BaseEvent | type[BaseEvent]) -> str:
    """Return the name of an event, or of a kind of event, in the journal."""
    return str(event.__struct_config__.tag)


def service_name(number: int) -> ServiceName:
    """Return the name of the service with this number, from 1, without a name by the world."""
    return "service" if number == 1 else f"service {number}"


def clipped(text: str, most: int = MAX_TEXT) -> str:
    """Return the beginning of another party's text, in ASCII: one byte a character in memory.

    Any other character is written as an escape such as `\\u20ac`. Without this a journal full of
    emoji takes four times as much memory.
    """
    if text.isascii():
        return text[:most]
    # cut before it is encoded, too: one request may carry a text of a megabyte
    return text[:most].encode("ascii", "backslashreplace")[:most].decode("ascii")


class _Story(BaseEvent, frozen=True, kw_only=True):
    actor: Literal["world"] = "world"


class Begin(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written first in every run: what is played, and the addresses of the
    parts. `chain` is null on the ledger; `options` are the given options of the world, as Python
    code; addresses are null for a deployment without a control API. `services` and `facilitators`
    are the names that the world gives them. `upstream` is the URL that `watch` stood before:
    nothing was played. The file of a scenario stands beside the journal, never in it."""

    scenario: str
    title: str
    seed: int
    start_ms: int
    network: str
    decimals: int
    symbol: str
    chain: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    merchant: str | None = None
    token_owner: str | None = None
    services: tuple[str, ...] | UnsetType = UNSET
    facilitators: tuple[str, ...] | UnsetType = UNSET
    upstream: str | UnsetType = UNSET


class End(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written last in every run: its outcome, and why it failed or was
    skipped."""

    outcome: StoryOutcome
    reason: str


class PayerJoined(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story creates a payer."

    name: str
    address: str


class ServiceJoined(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written for each service after `begin`, if there are several: its
    name and its merchant's address."""

    name: ServiceName
    merchant: str


class TimeAdvanced(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story advances time, before it advances."

    seconds: Seconds


class FaultInjected(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a scenario injects a fault; the fields are those of
    `x402sim.Fault`."""

    victim: Part
    does: str
    path: str = ""
    contains: str = ""
    skip: int = 0
    times: int | None = 1
    probability: Seconds = 1.0
    seconds: Seconds = 0.0
    status: int = 500
    body: str = ""
    content_type: str = "application/json"
    work_done: bool = False
    headers: dict[str, str] | UnsetType = UNSET  # absent unless given: older journals have none
    caller: str | UnsetType = UNSET
    when: dict[str, Any] | UnsetType = UNSET


class FaultPeriodEnded(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a period of a fault with `when` is over, at the next
    request that the fault may strike, or when the fault is removed, which ends a period. It lasted
    from `from_ms` until `until_ms`, and `struck` that many requests."""

    victim: Part
    does: str
    path: str
    from_ms: int
    until_ms: int
    struck: int


class ClockSkewed(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a scenario skews the clock of a part, or of the chain,
    by `seconds`."""

    victim: Part
    seconds: Seconds


class ExplorerLagged(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a scenario makes the explorer show each block `seconds`
    late."""

    seconds: Seconds


class ServiceCrashed(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story kills a service, which then restarts."

    victim: ServiceName = "service"


class MiningSwitched(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story turns automine on or off."

    automine: bool


class ChainReorganised(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the newest `depth` blocks are replaced, before the
    reorganisation."""

    depth: int


class MempoolDropped(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story drops the transactions in the mempool."


class RevertsForced(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a story forces the next `calls` of the token to revert;
    with an `account`, the next that name it."""

    calls: int
    account: str | UnsetType = UNSET


class Check(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written for each check of a scenario, and for each broken invariant.
    `exchange` is the number of the checked exchange; null if there was none yet. Of a broken
    invariant, `about` is its case (an exchange, a payment or a session; empty: the whole chain),
    and `at_stake_base` the money of this case."""

    clause: str
    ok: bool
    expected: Scalar
    actual: Scalar
    exchange: int | None = None
    about: str | UnsetType = UNSET
    at_stake_base: str | UnsetType = UNSET


class StoryRaised(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a scenario raises an exception, with its trace. A line
    is a frame, "FILE:LINE in FUNCTION: CODE", the newest last; frames that lead to the scenario's,
    of x402sim and of libraries, are left out. The frames of its cause come before, and the errors
    of a group, each with its own frames, after it. It is empty if no frame is the scenario's."""

    trace: tuple[str, ...]


class Note(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written by `world.note`, with a name and data that the scenario
    chooses."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)


StoryEvent = (
    Begin | End | ServiceJoined | PayerJoined | TimeAdvanced | FaultInjected | ClockSkewed
    | ExplorerLagged | ServiceCrashed | MiningSwitched | ChainReorganised | MempoolDropped
    | RevertsForced | FaultPeriodEnded | Check | StoryRaised | Note
)  # fmt: skip
"""Events of a scenario or its world; the actor is "world"."""


class RequestSent(BaseEvent, frozen=True):
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


class AnswerReceived(BaseEvent, frozen=True):
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


class NoAnswer(BaseEvent, frozen=True):
    meaning: ClassVar[str] = """Written when a caller stops waiting; `reason`: timeout, given up, or
    a transport error."""

    actor: str
    exchange: int
    to: Part
    reason: str


ExchangeEvent = RequestSent | AnswerReceived | NoAnswer
"""Events of an exchange on the side of the caller, who is the actor."""


class AnswerSent(BaseEvent, frozen=True):
    meaning: ClassVar[str] = "Written when a part begins to answer a request."

    actor: Part
    method: str
    path: str
    status: int


class RequestArrived(BaseEvent, frozen=True):
    meaning: ClassVar[str] = """Written when a request arrives at a part with `servers`, of which
    it takes one. `request` numbers these requests; `ahead` is how many wait or are served before
    it."""

    actor: Part
    request: int
    path: str
    ahead: int


class RequestStarted(BaseEvent, frozen=True):
    meaning: ClassVar[str] = "Written when a server of the part begins with a request."

    actor: Part
    request: int


class RequestEnded(BaseEvent, frozen=True):
    meaning: ClassVar[str] = """Written when a server is done with a request. `outcome` is "served";
    "left" if the answer reached nobody; "lost" if the part crashed; "refused" if the queue was
    full."""

    actor: Part
    request: int
    outcome: Literal["served", "left", "refused", "lost"]


PartEvent = AnswerSent | RequestArrived | RequestStarted | RequestEnded
"""Events of an exchange on the side of the part that answers, which is the actor."""


class _Chain(BaseEvent, frozen=True, kw_only=True):
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
    meaning: ClassVar[str] = """Written for each authorization that a new block uses or cancels, and
    each message of Permit2 that an x402 proxy settles. `authorization` is its nonce, in hex."""

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


class _Service(BaseEvent, frozen=True, kw_only=True):
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


class UsageMeasured(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a good sold `upto` has worked for a payment: the amount
    used is known, and owed."""

    payment_id: str
    payer: str
    resource: str
    used_base: int
    maximum_base: int


class UsageSettled(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the amount used of a payment in `upto` is settled, or
    turns out to be settled by another transaction."""

    payment_id: str
    tx_hash: str
    settled_base: int
    maximum_base: int


class UsageFailed(_Service, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when the amount used of a payment in `upto` can never be
    settled: the work stays unpaid."""

    payment_id: str
    used_base: int


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
    due again; if another transaction has paid it instead, "session refunded" follows. `amount_base`
    and `tx_hash` are of the transfer that was undone; version 0.1.0 did not write them."""

    session_id: str
    amount_base: int | UnsetType = UNSET
    tx_hash: str | UnsetType = UNSET


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
    | RefundDelayed | RefundUndone | IndexerRan | UsageMeasured | UsageSettled | UsageFailed
)  # fmt: skip
"""Events of a service; the actor is its name."""
Event = StoryEvent | ChainEvent | ServiceEvent | ExchangeEvent | PartEvent
"""Any event."""
KINDS: tuple[type[Event], ...] = get_args(Event)
"""The class of every event."""
