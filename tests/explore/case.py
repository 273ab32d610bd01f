"""A random world as data: its options, and the steps of everybody in it.

A case is JSON-able and prints as Python code that makes it again. Times are seconds since the
world began; `at_s` is when a step begins, and steps run at the same time if they take long.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta

from x402sim.protocol.cronos import SettleError
from x402sim.world.transport.faults import Fault

AtS = Annotated[float, Meta(ge=0, le=86_400)]
Service = Literal["service", "service 2", "service 3"]
"""The services of a case."""
Way = Literal["two steps", "X-PAYMENT", "X-PAYMENT and id", "PAYMENT-SIGNATURE"]
"""How a header is presented: at /api/pay, or in the request itself, in version 1 or 2.

A payer that names the 402's payment id beside its payment can ask for what it paid for later.
"""
Wallet = Literal["key", "smart", "delegated"]
"""A payer's account: a key's, a contract (EIP-1271), or a key's with code (EIP-7702)."""
LieKind = Literal[
    "valid is invalid",
    "invalid is valid",
    "invented hash",
    "hash of another payment",
    "failed though moved",
    "failed and not moved",
    "transaction unknown",
    "transaction reverted",
    "wrong block",
]
"""What a lying party answers; the last three are the explorer's, the others the facilitator's."""


class _Told(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
    omit_defaults=True,
):
    """What is told as JSON, and as Python code."""


class _Step(_Told, frozen=True, kw_only=True, tag_field="do"):
    at_s: AtS = 0.0


class _Purchase(_Step, frozen=True, kw_only=True):
    number: int
    payer: int = 0
    service: Service = "service"
    wait_s: float = 0.0
    tries: int = 3
    pause_s: float = 5.0
    patience_s: float | None = None
    anew: bool = False


class Buy(_Purchase, frozen=True, kw_only=True):
    """A payer asks for a quote, signs, waits, and pays; without a final answer, tries again.

    `number` names the purchase for other steps. `anew` signs a second header for the same payment
    after a final refusal, while the 402 is young enough. The payer hangs up after `patience_s`.
    """

    way: Way = "two steps"
    name: int | None = None
    """What its payer calls it in version 2 (payment-identifier); two purchases may have one name."""


class Deposit(_Purchase, frozen=True, kw_only=True):
    """A payer opens a session, as `Buy` does, and spends it request by request."""

    cents: int = 5
    duration_s: int = 120
    spends: int = 2
    spend_pause_s: float = 10.0


class Again(_Step, frozen=True, kw_only=True):
    """Somebody presents the header of purchase `of` again, at `service`, in any way.

    Under its own payment id or a new one of payer `by`; or its payer signs a second header for its
    own id, whatever became of the first.
    """

    of: int
    by: int = 0
    service: Service = "service"
    what: Literal["same id", "new id", "second header"] = "new id"
    way: Way = "two steps"


class Unsold(_Step, frozen=True, kw_only=True):
    """The payer of purchase `of` shows its newest payment with a method that nothing is sold by."""

    of: int
    method: Literal["HEAD", "OPTIONS"] = "HEAD"


class Submit(_Step, frozen=True, kw_only=True):
    """A third party submits the newest header of purchase `of`, itself or by the facilitator."""

    of: int
    how: Literal["chain", "facilitator"] = "chain"


class Cancel(_Step, frozen=True, kw_only=True):
    """The payer of purchase `of` cancels its newest authorization on the chain."""

    of: int


class Strike(_Step, frozen=True, kw_only=True):
    """A fault is injected; all faults end with the steps."""

    fault: Fault


class Lie(_Step, frozen=True, kw_only=True):
    """The facilitator or the explorer answers `times` requests with a lie.

    A hash is answered for a payment of `amount_base` by payer `about`, or for a refund to that
    payer; `error` is the reason of a failure.
    """

    lie: LieKind
    about: int = 0
    amount_base: int = 10_000
    is_refund: bool = False
    times: int = 1
    error: str = SettleError.EXPIRED.value


class Act(_Step, frozen=True, kw_only=True):
    """Something is done to the world: the method of `LiveWorld` of this name is called."""

    does: Literal["crash", "run_indexer", "skew", "explorer_lag", "force_revert", "drop_waiting"]
    given: tuple[str | int | float, ...] = ()


class Reorganise(_Step, frozen=True, kw_only=True):
    """The newest blocks are replaced; `drop`: without their transactions, which are lost."""

    depth: int = 1
    drop: bool = False


class Pause(_Step, frozen=True, kw_only=True):
    """The token's owner pauses it, and ends the pause `seconds` later."""

    seconds: float = 30.0


Purchase = Buy | Deposit
Step = (
    Buy | Deposit | Again | Unsold | Submit | Cancel | Strike | Lie | Act | Reorganise | Pause
)  # fmt: skip


class Case(_Told, frozen=True, kw_only=True):
    """A random world: its options, as in `x402sim.World`, and its steps.

    `balances` are the tokens of each payer, such as "1.00", or "" for none; `wallets` their kinds,
    by default a key. `services` is how many there are; in a `market` each has a merchant of its
    own, else all have the first one's.
    `jitter` is the sigma of the lognormal latencies; 0 keeps them constant.
    """

    seed: int = 0
    balances: tuple[str, ...] = ("1.00",)
    wallets: tuple[Wallet, ...] = ()
    services: Annotated[int, Meta(ge=1, le=3)] = 1
    market: bool = False
    latency: dict[str, float] = {}
    jitter: float = 0.0
    block_time_s: float | None = None
    explorer_lag_s: float = 0.0
    steps: tuple[Step, ...] = ()


def kind_of(step: Step) -> str:
    """Return what a step exercises, for the table of a campaign."""
    about = step.fault if isinstance(step, Strike) else step
    names = ("victim", "caller", "does", "lie", "way", "what", "how")
    given = (getattr(about, name, UNSET) for name in names)
    details = [str(each) for each in given if each is not UNSET]
    return " ".join([type(step).__name__, *details])
