"""A random world as data (options, and everybody's steps), and the strategy to draw worlds.

A case is JSON-able. Times are seconds since the
world began; `at_s` is when a step begins, and steps run at the same time if they take long. A drawn
world is small, and much goes wrong at the same time. What comes first in a choice is what
Hypothesis shrinks to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import Meta

from x402sim.protocol.cronos import SettleError
from x402sim.world.faults import Callers, Fault, FaultType

AtS = Annotated[float, Meta(ge=0, le=86_400)]
Service = Literal["service", "service 2", "service 3"]
"""The services of a case."""
Way = Literal["two steps", "X-PAYMENT", "X-PAYMENT and id", "PAYMENT-SIGNATURE"]
"""How a header is presented: at /api/pay, or in the request itself, in version 1 or 2.

With the 402's payment id beside the payment, a payer can ask for the content later.
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
    """What is told as JSON."""


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
    """The payer's name in version 2 (payment-identifier); two purchases may have one name."""


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
Step = Buy | Deposit | Again | Unsold | Submit | Cancel | Strike | Lie | Act | Reorganise | Pause


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


# --- the strategy -------------------------------------------------------------------------

_OFFSETS_S = (0.0, 0.01, 0.06, 0.2, 0.5, 1.0, 3.0, 6.0, 12.0, 20.0, 40.0, 70.0, 150.0, 299.0, 310.0)
"""How long after a purchase something happens to it: within its exchanges, and much later."""
_PATHS: dict[str, tuple[str, ...]] = {
    "service": ("", "/pay", "/pay", "/quote", "/create"),
    "facilitator": ("", "/verify", "/settle", "/settle"),
    "explorer": ("",),
    "rpc": ("",),
}
_CALLS = (
    "", "", "eth_call", "eth_getLogs", "eth_getBlockByNumber", "eth_getTransactionReceipt",
    "eth_sendRawTransaction",
)  # fmt: skip
_BODIES = ("", "null", "{}", "[]", '{"jsonrpc":"2.0","id":1,"result":null}', "<html>busy</html>")
_HEADERS: tuple[dict[str, str], ...] = ({}, {"Retry-After": "1"}, {"Location": "/"})
_FOLLOWED = {"force_revert": 6, Cancel: 3, Reorganise: 2, Submit: 2}
"""How often of ten a reorganisation follows a step."""


def one_of(*values: Any) -> SearchStrategy[Any]:
    """Draw one of these; what stands twice is twice as likely."""
    return st.sampled_from(values)


def often(weights: Mapping[Any, int]) -> SearchStrategy[Any]:
    return st.sampled_from([value for value, weight in weights.items() for _ in range(weight)])


WAYS = often({"two steps": 4, "X-PAYMENT": 1, "X-PAYMENT and id": 2, "PAYMENT-SIGNATURE": 3})
MEDIANS_S = one_of(0.02, 0.1, 0.5)
LATENCIES = st.fixed_dictionaries({}, optional=dict.fromkeys(_PATHS, MEDIANS_S))


@dataclass(frozen=True, slots=True)
class _Town:
    payers: int
    services: int
    adversary: bool

    @property
    def payer(self) -> SearchStrategy[int]:
        return st.integers(0, self.payers - 1)

    @property
    def service(self) -> SearchStrategy[Service]:
        return one_of(*get_args(Service)[: self.services])


@st.composite
def worlds(draw: DrawFn, *, adversary: bool) -> Case:
    """Draw a world; with an `adversary`, third parties act and others lie."""
    services = draw(often({1: 9, 2: 8, 3: 3} if adversary else {1: 13, 2: 5, 3: 2}))
    town = _Town(draw(often({1: 6, 2: 3, 3: 1})), services, adversary)
    span_s = draw(one_of(5.0, 30.0, 120.0, 400.0, 900.0))
    purchases = [
        draw(_purchase(town, number, span_s)) for number in range(draw(one_of(1, 1, 2, 2, 3, 4)))
    ]
    others = draw(st.lists(_happening(town, purchases), max_size=10))
    steps = [*purchases, *(step for found in others for step in found)]
    latency = draw(LATENCIES)
    each = {"min_size": town.payers, "max_size": town.payers}
    return Case(
        seed=draw(st.integers(0, 2**32)),
        balances=tuple(draw(st.lists(often({"1.00": 27, "0.05": 2, "0.01": 1, "": 1}), **each))),
        wallets=tuple(draw(st.lists(often({"key": 8, "smart": 1, "delegated": 1}), **each))),
        services=services,
        market=services > 1 and draw(often({False: 7, True: 3})),
        latency=latency,
        jitter=draw(one_of(0.0, 0.5)) if latency else 0.0,
        block_time_s=draw(often({None: 10, 2.0: 2, 5.0: 3, 12.0: 3, 30.0: 2})),
        explorer_lag_s=draw(often({0.0: 8, 20.0: 1, 400.0: 1})),
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


@st.composite
def _purchase(draw: DrawFn, town: _Town, number: int, span_s: float) -> Purchase:
    common: dict[str, Any] = {
        "number": number,
        "at_s": round(draw(st.integers(0, 100)) / 100 * span_s, 2) if number else 0.0,
        "payer": draw(town.payer),
        "service": draw(town.service),
        "wait_s": draw(one_of(0.0, 0.0, 0.0, 1.0, 15.0, 200.0, 301.0)),
        "tries": draw(one_of(3, 1, 2, 5, 8)),
        "pause_s": draw(one_of(5.0, 0.5, 20.0, 60.0, 100.0)),
        "patience_s": draw(one_of(None, None, None, 0.05, 0.3, 1.0, 3.0)),
        "anew": draw(often({False: 7, True: 3})),
    }
    if draw(often({"quote": 13, "session": 7})) == "quote":
        way = draw(WAYS)
        name = draw(often({None: 1, 0: 3})) if way == "PAYMENT-SIGNATURE" else None
        return Buy(**common, way=way, name=name)
    return Deposit(
        **common,
        cents=draw(one_of(5, 1, 3)),
        duration_s=draw(one_of(120, 60, 300, 600)),
        spends=draw(one_of(2, 0, 1, 4)),
        spend_pause_s=draw(one_of(0.0, 1.0, 30.0)),
    )


@st.composite
def _happening(draw: DrawFn, town: _Town, purchases: list[Purchase]) -> list[Step]:
    """Draw a happening to a purchase or around, and perhaps a reorganisation afterwards."""
    about = draw(st.sampled_from(purchases))
    offset_s = draw(one_of(*_OFFSETS_S)) * draw(one_of(1.0, 1.0, 1.0, 0.8, 0.5, 0.2))
    if isinstance(about, Deposit) and draw(often({False: 6, True: 4})):
        offset_s += about.duration_s  # at its refund
    at_s = round(about.at_s + draw(one_of(0.0, about.wait_s)) + offset_s, 3)
    make = draw(_HOSTILE if town.adversary else _PLAIN)
    step = draw(make(at_s, about, town))
    kind = step.does if isinstance(step, Act) else type(step)
    if kind in (Strike, Lie, "force_revert", Pause):  # it must be there before
        early_s = draw(one_of(0.0, 0.5, 5.0))
        step = msgspec.structs.replace(step, at_s=max(0.0, at_s - early_s))
    if draw(st.integers(1, 10)) > 10 - _FOLLOWED.get(kind, 0):
        later_s = draw(one_of(2.0, 8.0, 30.0, 100.0, 250.0))
        return [step, draw(_reorganise(step.at_s + later_s, about, town))]
    return [step]


# --- what happens ------------------------------------------------------------------------


@st.composite
def _fault(draw: DrawFn, at_s: float, about: Purchase, _: _Town) -> Step:
    part = draw(often({"facilitator": 8, "service": 5, "rpc": 5, "explorer": 2}))
    does = draw(
        one_of(*(kind for kind in get_args(FaultType) if part != "service" or kind != "answer"))
    )
    details: dict[str, Any] = {}
    if does.startswith("delay"):
        details["seconds"] = draw(one_of(0.3, 5.0, 31.0, 61.0, 95.0))
    if does == "answer":
        details["status"] = draw(one_of(500, 200, 400, 404, 408, 429, 503))
        details["body"] = draw(one_of(*_BODIES))
        details["work_done"] = draw(st.booleans())
        details["headers"] = draw(one_of(*_HEADERS))
    if part == "rpc" and not does.startswith("crash"):
        details["caller"] = draw(one_of(*get_args(Callers)))
    fault = Fault(
        victim=about.service if part == "service" else part,
        does=does,
        path=draw(one_of(*_PATHS[part])),
        contains=draw(one_of(*_CALLS)) if part == "rpc" else "",
        skip=draw(one_of(0, 0, 0, 1, 2)),
        times=draw(one_of(1, 1, 1, 2, 3, 6, None)),
        probability=draw(one_of(1.0, 1.0, 0.5)),
        **details,
    )
    return Strike(at_s=at_s, fault=fault)


@st.composite
def _again(draw: DrawFn, at_s: float, about: Purchase, town: _Town) -> Step:
    return Again(
        at_s=at_s,
        of=about.number,
        by=draw(town.payer) if town.adversary else about.payer,
        service=draw(town.service),
        what=draw(often({"new id": 9, "same id": 7, "second header": 4})),
        way=draw(st.one_of(st.just(getattr(about, "way", "two steps")), WAYS)),
    )


@st.composite
def _lie(draw: DrawFn, at_s: float, about: Purchase, _: _Town) -> Step:
    is_refund, amount_base = False, 10_000
    if isinstance(about, Deposit):
        is_refund = draw(st.booleans())
        amount_base = 10_000 * (about.cents - (about.spends if is_refund else 0))
    return Lie(
        at_s=at_s,
        lie=draw(one_of(*get_args(LieKind))),
        about=about.payer,
        amount_base=amount_base,
        is_refund=is_refund,
        times=draw(one_of(1, 1, 2, 4)),
        error=draw(st.sampled_from(SettleError)).value,
    )


def _made(kind: Any, **fields: Any) -> Any:
    """Return a maker of steps; a field that is no strategy is a function of the purchase."""

    def make(at_s: float, about: Purchase, _: _Town) -> SearchStrategy[Step]:
        drawn = {
            name: each if isinstance(each, SearchStrategy) else st.just(each(about))
            for name, each in fields.items()
        }
        return st.builds(kind, at_s=st.just(at_s), **drawn)

    return make


def _act(does: str, *given: SearchStrategy[Any]) -> Any:
    return _made(Act, does=st.just(does), given=st.tuples(*given))


_NUMBER = attrgetter("number")
_reorganise = _made(Reorganise, depth=st.integers(1, 6), drop=often({False: 6, True: 4}))


def _refund_undone(at_s: float, about: Purchase, town: _Town) -> SearchStrategy[Step]:
    """Lose the refund of a session; what stays of a quote is a reorganisation."""
    if not isinstance(about, Deposit):
        return _reorganise(at_s, about, town)
    ended_s = about.at_s + about.wait_s + about.duration_s
    return st.builds(
        Reorganise,
        at_s=st.integers(10, 60).map(lambda later_s: ended_s + later_s),
        depth=st.integers(1, 4),
        drop=st.just(True),
    )


_KINDS = {
    _fault: 40,
    _again: 14,
    _reorganise: 10,
    _refund_undone: 4,
    _made(Act, does=lambda _: "crash", given=lambda about: (about.service,)): 10,
    _act("force_revert", one_of(1, 1, 2)): 6,
    _made(Pause, seconds=one_of(2.0, 30.0, 120.0)): 3,
    _act(
        "skew",
        one_of("service", "facilitator", "explorer", "chain"),
        one_of(20.0, -20.0, 70.0, -70.0, 400.0, -400.0),
    ): 5,
    _act("explorer_lag", one_of(30.0, 300.0, 1000.0)): 3,
    _made(Cancel, of=_NUMBER): 4,
    _act("drop_waiting"): 3,
    _made(Unsold, of=_NUMBER, method=one_of("HEAD", "OPTIONS")): 3,
    _made(Act, does=lambda _: "run_indexer", given=lambda about: (about.service,)): 4,
}
_PLAIN = often(_KINDS)
_SUBMIT = _made(Submit, of=_NUMBER, how=often({"chain": 7, "facilitator": 3}))
_HOSTILE = often(_KINDS | {_SUBMIT: 30, _lie: 30})
