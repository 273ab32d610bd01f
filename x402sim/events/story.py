"""The events of a story, or of its world."""

from typing import Any, ClassVar, Literal

from msgspec import UNSET, UnsetType, field

from x402sim.events.base import BaseEvent, Outcome, Part, Scalar, Seconds, ServiceName


class _Story(BaseEvent, frozen=True, kw_only=True):
    actor: Literal["world"] = "world"


class Begin(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written first in every run: what is played, and the addresses of the
    parts. `chain` is null on the ledger; `options` are the given options of the world, as Python
    code; addresses are null for a deployment without a control API. `source` is what `run` needs to
    play a story of the user's own again, "FILE.py:function"; it is empty if the story is in no
    file, and null for a scenario that is shipped. `services` and `facilitators` are the names that
    the world gives them."""

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
    source: str | None = None
    services: tuple[str, ...] | UnsetType = UNSET
    facilitators: tuple[str, ...] | UnsetType = UNSET


class End(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written last in every run: its outcome, and why it failed or was
    skipped."""

    outcome: Outcome
    reason: str


class PayerJoined(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story creates a payer."

    name: str
    address: str


class ServiceJoined(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written first for each service, after `begin`, if there are several:
    who is paid there."""

    name: ServiceName
    merchant: str


class TimeAdvanced(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = "Written when a story advances time, before it advances."

    seconds: Seconds


class FaultInjected(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a story injects a fault; the fields are those of
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


class ClockSkewed(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a story skews the clock of a part, or of the chain, by
    `seconds`."""

    victim: Part
    seconds: Seconds


class ExplorerLagged(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written when a story makes the explorer show each block `seconds`
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
    meaning: ClassVar[str] = "Written when a story forces the next `calls` of the token to revert."

    calls: int


class Check(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written for each check of a story, and for each broken invariant.
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
    meaning: ClassVar[str] = """Written when a story raises an exception, with its trace. A line is
    a frame, "FILE:LINE in FUNCTION: CODE", the newest last; frames of x402sim and of libraries that
    lead to the story's are left out. The frames of its cause come before, and the errors of a
    group, each with its own frames, after it. It is empty if no frame is the story's."""

    trace: tuple[str, ...]


class Note(_Story, frozen=True, kw_only=True):
    meaning: ClassVar[str] = """Written by `world.note`, with a name and data that the story
    chooses."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)
