"""The events: every one that a journal can hold, declared once.

An event's name in the journal is its class name in words: `PaymentSettled` is "payment settled".
All its fields are written, in the order of the declaration, which is part of the journal's format.
Units are in the names: `_base` is base units of the token, `_ms` Unix milliseconds, `_s` and
`seconds` seconds, `_wei` wei. A number that may exceed 63 bits (an amount on the chain, a price in
wei) is a decimal string. `python -m x402sim events` prints the reference that is made from this
file.
"""

import re
from typing import Any, Literal, get_args

import msgspec

Part = Literal["service", "facilitator", "explorer", "rpc"]
"""The parts that answer HTTP requests."""
Skewable = Literal["service", "facilitator", "explorer", "chain"]
"""The actors whose clocks can be skewed."""
Outcome = Literal["passed", "failed", "skipped"]
"""The outcomes of a run."""
Seconds = int | float
Scalar = str | int | float | bool | None
"""A JSON value other than an array or an object."""


class _Event(
    msgspec.Struct,
    frozen=True,
    gc=False,
    tag_field="event",
    tag=lambda name: re.sub(r"(?<=.)(?=[A-Z])", " ", name).lower(),
):
    """The base of all events: frozen, with the name as the tag."""


class _Story(_Event, frozen=True, kw_only=True):
    actor: Literal["world"] = "world"


class _Chain(_Event, frozen=True, kw_only=True):
    actor: Literal["chain"] = "chain"


class _Service(_Event, frozen=True, kw_only=True):
    actor: Literal["service"] = "service"


# --- the story ------------------------------------------------------------------------


class Begin(_Story, frozen=True, kw_only=True):
    """Written first in every run: what is played, and the addresses of the parts.

    `chain` is None on the ledger; `options` are the given options of the world, as Python code;
    addresses are None for a deployment without a control API.
    """

    scenario: str
    title: str
    seed: int
    start_ms: int
    network: str
    decimals: int
    symbol: str
    chain: str | None = None
    options: dict[str, str] = {}
    merchant: str | None = None
    token_owner: str | None = None


class End(_Story, frozen=True, kw_only=True):
    """Written last in every run: its outcome, and why it failed or was skipped."""

    outcome: Outcome
    reason: str


class PayerJoined(_Story, frozen=True, kw_only=True):
    """Written when a story creates a payer."""

    name: str
    address: str


class TimeAdvanced(_Story, frozen=True, kw_only=True):
    """Written when a story advances time, before it advances."""

    seconds: Seconds


class FaultInjected(_Story, frozen=True, kw_only=True):
    """Written when a story injects a fault; the fields are those of `x402sim.Fault`."""

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


class ClockSkewed(_Story, frozen=True, kw_only=True):
    """Written when a story skews the clock of a part, or of the chain, by `seconds`."""

    victim: Skewable
    seconds: Seconds


class ExplorerLagged(_Story, frozen=True, kw_only=True):
    """Written when a story makes the explorer show each block `seconds` late."""

    seconds: Seconds


class ServiceCrashed(_Story, frozen=True, kw_only=True):
    """Written when a story kills the service, which then restarts."""


class MiningSwitched(_Story, frozen=True, kw_only=True):
    """Written when a story turns automine on or off."""

    automine: bool


class ChainReorganised(_Story, frozen=True, kw_only=True):
    """Written when a story replaces the newest `depth` blocks, before the reorganisation."""

    depth: int


class MempoolDropped(_Story, frozen=True, kw_only=True):
    """Written when a story drops the transactions in the mempool."""


class RevertsForced(_Story, frozen=True, kw_only=True):
    """Written when a story forces the next `calls` of the token to revert."""

    calls: int


class Check(_Story, frozen=True, kw_only=True):
    """Written for each check of a story, and for each broken invariant.

    `exchange` is the number of the checked exchange; None if there was none yet.
    """

    clause: str
    ok: bool
    expected: Scalar
    actual: Scalar
    exchange: int | None = None


class StoryRaised(_Story, frozen=True, kw_only=True):
    """Written when a story raises an exception; the newest frame is the last of `trace`."""

    trace: tuple[str, ...]


class Note(_Story, frozen=True, kw_only=True):
    """Written by `world.note`, with a name and data that the story chooses."""

    name: str
    data: dict[str, Any] = {}


# --- the chain ------------------------------------------------------------------------


class TransactionMined(_Chain, frozen=True, kw_only=True):
    """Written for each transaction in a new block, whether it succeeded or reverted.

    `call` is the function of the token that it calls, empty for any other call; `gas` is
    the gas used; `revert_reason` is None if it succeeded.
    """

    tx_hash: str
    block: int
    block_time_s: int
    sender: str
    call: str
    gas: int
    gas_price_wei: str
    revert_reason: str | None


class Transfer(_Chain, frozen=True, kw_only=True):
    """Written for each Transfer event of the token in a new block."""

    tx_hash: str
    block: int
    sender: str
    to: str
    amount_base: str


class AuthorizationConsumed(_Chain, frozen=True, kw_only=True):
    """Written for each authorization that a new block uses or cancels.

    `authorization` is its nonce, in hex.
    """

    tx_hash: str
    authorizer: str
    authorization: str
    use: Literal["used", "canceled"]


class TransactionUndone(_Chain, frozen=True, kw_only=True):
    """Written for each transaction of a block that a reorganisation removes."""

    tx_hash: str


# --- the service ----------------------------------------------------------------------


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
    """Written when a payment can never be paid any more, or its transaction has reverted."""

    payment_id: str


class PaymentIndexed(_Service, frozen=True, kw_only=True):
    """Written when the indexer finds the block of a settled payment."""

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


# --- HTTP exchanges -------------------------------------------------------------------


class RequestSent(_Event, frozen=True, kw_only=True):
    """Written when a caller (a payer's name, or "service") sends a request to a part.

    `exchange` numbers the exchange; `path` is the JSON-RPC method if `to` is rpc. Ids are
    those in header or body, `authorization` is the nonce of a payment header, in hex, or
    "unreadable".
    """

    actor: str
    exchange: int
    to: Part
    method: str
    path: str
    payment_id: str | None = None
    session_id: str | None = None
    authorization: str | None = None


class AnswerReceived(_Event, frozen=True, kw_only=True):
    """Written when the answer of an exchange reaches the caller.

    `ok` is `isValid` or `success` in the body; `final` is False if a refused payment may still
    move money, None if the answer does not say.
    """

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


class NoAnswer(_Event, frozen=True, kw_only=True):
    """Written when a caller stops waiting; `reason`: timeout, given up, or a transport error."""

    actor: str
    exchange: int
    to: Part
    reason: str


class AnswerSent(_Event, frozen=True, kw_only=True):
    """Written when a part begins to answer a request, as seen by the part."""

    actor: Part
    method: str
    path: str
    status: int


Intervention = (
    TimeAdvanced | FaultInjected | ClockSkewed | ExplorerLagged | ServiceCrashed
    | MiningSwitched | ChainReorganised | MempoolDropped | RevertsForced
)  # fmt: skip
"""Actions of a story on its world."""
StoryEvent = Begin | End | PayerJoined | Intervention | Check | StoryRaised | Note
"""Events of a story or its world; the actor is "world"."""
ChainEvent = TransactionMined | Transfer | AuthorizationConsumed | TransactionUndone
"""Events of the chain; the actor is "chain"."""
ServiceEvent = (
    PaymentSettled | PaymentRefused | PaymentFailed | PaymentIndexed | SettlementAnswerLost
    | SessionOpened | SessionDebited | SessionsExpired | SessionRefunded | IndexerRan
)  # fmt: skip
"""Events of the service; the actor is "service"."""
ExchangeEvent = RequestSent | AnswerReceived | NoAnswer
"""Events of an exchange, as seen by the caller, who is the actor."""
Event = StoryEvent | ChainEvent | ServiceEvent | ExchangeEvent | AnswerSent
"""Any event."""
KINDS: tuple[type[Event], ...] = get_args(Event)
"""The class of every event."""


def name_of(event: _Event | type[_Event]) -> str:
    """Return the name of an event, or of a kind of event, as it is in the journal."""
    return str(event.__struct_config__.tag)
