"""What can happen? Every event that a journal can hold, declared once.

The name of an event in the journal is the name of its class in words: `PaymentSettled` is
"payment settled". Its fields are written in the order they have here, all of them, always:
that order is part of the journal's format. Units are in the names: `_base` is base units of
the token, `_ms` Unix milliseconds, `_s` and `seconds` seconds, `_wei` wei. What may pass 63
bits (an amount on the chain, a price in wei) is a decimal string.
`python -m x402sim events` prints the reference that is made from this file.
"""

import re
from typing import Any, Literal, get_args

import msgspec

Part = Literal["service", "facilitator", "explorer", "rpc"]
"""The parts that answer HTTP requests."""
Skewable = Literal["service", "facilitator", "explorer", "chain"]
"""Whose clocks can be wrong."""
Outcome = Literal["passed", "failed", "skipped"]
"""What a run came to."""
Seconds = int | float
Scalar = str | int | float | bool | None
"""A JSON value that is no array and no object."""


class _Event(
    msgspec.Struct,
    frozen=True,
    gc=False,
    tag_field="event",
    tag=lambda name: re.sub(r"(?<=.)(?=[A-Z])", " ", name).lower(),
):
    """What all events have in common: they are frozen, and their name is their tag."""


class _Story(_Event, frozen=True, kw_only=True):
    actor: Literal["world"] = "world"


class _Chain(_Event, frozen=True, kw_only=True):
    actor: Literal["chain"] = "chain"


class _Service(_Event, frozen=True, kw_only=True):
    actor: Literal["service"] = "service"


# --- the story ------------------------------------------------------------------------


class Begin(_Story, frozen=True, kw_only=True):
    """Written first in every run: what is played, and who is who.

    `chain` is None on the ledger; `options` are the world's options that were given, as
    Python code; addresses are None where the world cannot be asked.
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
    """Written when a story makes a payer."""

    name: str
    address: str


class TimeAdvanced(_Story, frozen=True, kw_only=True):
    """Written when a story lets time go by, before it does."""

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
    """Written when a story makes the clock of a part, or of the chain, wrong by `seconds`."""

    victim: Skewable
    seconds: Seconds


class ExplorerLagged(_Story, frozen=True, kw_only=True):
    """Written when a story lets the explorer learn of each block `seconds` late."""

    seconds: Seconds


class ServiceCrashed(_Story, frozen=True, kw_only=True):
    """Written when a story kills the service, which then starts again."""


class MiningSwitched(_Story, frozen=True, kw_only=True):
    """Written when a story has transactions mined at once (`automine`), or only on demand."""

    automine: bool


class ChainReorganised(_Story, frozen=True, kw_only=True):
    """Written when a story replaces the newest `depth` blocks, before it does."""

    depth: int


class MempoolDropped(_Story, frozen=True, kw_only=True):
    """Written when a story has the node forget the transactions in its mempool."""


class RevertsForced(_Story, frozen=True, kw_only=True):
    """Written when a story lets the next `calls` of the token revert."""

    calls: int


class Check(_Story, frozen=True, kw_only=True):
    """Written for each check of a story, and for each invariant that does not hold.

    `exchange` is the number of the exchange that it is about; None if there was none yet.
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
    """Written by a story with `world.note`: a name and data of its own choice."""

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
    """Written when the answer of an exchange reaches the caller, with what its body says.

    `ok` is what `isValid` or `success` says; `final` is False if a refused payment may
    still move money, None if the answer does not say.
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
    """Written when a part begins to answer a request, at its own door."""

    actor: Part
    method: str
    path: str
    status: int


Intervention = (
    TimeAdvanced | FaultInjected | ClockSkewed | ExplorerLagged | ServiceCrashed
    | MiningSwitched | ChainReorganised | MempoolDropped | RevertsForced
)  # fmt: skip
"""What a story does to its world."""
StoryEvent = Begin | End | PayerJoined | Intervention | Check | StoryRaised | Note
"""What a story, or its world, does: the actor is "world"."""
ChainEvent = TransactionMined | Transfer | AuthorizationConsumed | TransactionUndone
"""What the chain does: the actor is "chain"."""
ServiceEvent = (
    PaymentSettled | PaymentRefused | PaymentFailed | PaymentIndexed | SettlementAnswerLost
    | SessionOpened | SessionDebited | SessionsExpired | SessionRefunded | IndexerRan
)  # fmt: skip
"""What the service does: the actor is "service"."""
ExchangeEvent = RequestSent | AnswerReceived | NoAnswer
"""What a caller sees of an exchange: the actor is the caller."""
Event = StoryEvent | ChainEvent | ServiceEvent | ExchangeEvent | AnswerSent
"""Any event."""
KINDS: tuple[type[Event], ...] = get_args(Event)
"""The class of every event."""


def name_of(event: _Event | type[_Event]) -> str:
    """Return the name of an event, or of a kind of event, as it is in the journal."""
    return str(event.__struct_config__.tag)
