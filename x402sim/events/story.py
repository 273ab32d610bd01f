"""What does a story, or its world, do?"""

from typing import Any, Literal

from msgspec import field

from x402sim.events.base import BaseEvent, Outcome, Part, Scalar, Seconds, Skewable


class _Story(BaseEvent, frozen=True, kw_only=True):
    actor: Literal["world"] = "world"


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
    options: dict[str, str] = field(default_factory=dict)
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
    data: dict[str, Any] = field(default_factory=dict)
