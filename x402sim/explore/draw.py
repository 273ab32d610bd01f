"""Draws a random case from a seed: small worlds, in which much goes wrong at the same time."""

from typing import Any, Literal, get_args

from x402sim.events import Skewable
from x402sim.explore.case import (
    Again,
    Buy,
    Cancel,
    Case,
    Crash,
    Deposit,
    DropWaiting,
    Lag,
    Lie,
    LieKind,
    Pause,
    Purchase,
    Reorganise,
    Revert,
    RunIndexer,
    Service,
    Skew,
    Step,
    Strike,
    Submit,
    Wallet,
    Way,
)
from x402sim.protocol.cronos import SettleError
from x402sim.rng import Rng, Stream
from x402sim.world.transport.faults import Fault, FaultKind, Victim

_SERVICES: tuple[Service, ...] = get_args(Service)
_OFFSETS_S = (0.0, 0.01, 0.06, 0.2, 0.5, 1.0, 3.0, 6.0, 12.0, 20.0, 40.0, 70.0, 150.0, 299.0, 310.0)
"""How long after a purchase something happens to it: within its exchanges, and much later."""
_PATHS: dict[str, tuple[str, ...]] = {
    "service": ("", "/pay", "/pay", "/quote", "/create"),
    "facilitator": ("", "/verify", "/settle", "/settle"),
    "explorer": ("",),
    "rpc": ("",),
}
_CALLS = ("", "", "eth_call", "eth_getLogs", "eth_getBlockByNumber", "eth_getTransactionReceipt")
_FOLLOWED = {Revert: 0.6, Reorganise: 0.2, Submit: 0.2, Cancel: 0.3}
"""How often a reorganisation follows a step."""
_BODIES = ("", "null", "{}", "[]", '{"jsonrpc":"2.0","id":1,"result":null}', "<html>busy</html>")


def draw(seed: int, *, adversary: bool) -> Case:
    """Return the case of a seed; with an `adversary`, third parties act and others lie."""
    rng = Rng(seed).stream("adversarial case" if adversary else "case")
    return _Draw(rng, seed, adversary).case()


class _Draw:
    """One draw."""

    def __init__(self, rng: Stream, seed: int, adversary: bool) -> None:
        self._rng, self._seed, self._adversary = rng, seed, adversary
        weights = (45, 40, 15) if adversary else (65, 25, 10)
        self._services = rng.choices((1, 2, 3), weights)[0]
        self._payers = rng.choices((1, 2, 3), (60, 30, 10))[0]

    def case(self) -> Case:
        """Return the whole case; purchases first, then what happens to them."""
        rng = self._rng
        span_s = rng.choice((5.0, 30.0, 120.0, 400.0, 900.0))
        purchases = [
            self._purchase(number, round(rng.uniform(0, span_s), 2) if number else 0.0)
            for number in range(rng.choice((1, 1, 2, 2, 3, 4)))
        ]
        others = [self._other(rng.choice(purchases)) for _ in range(rng.randint(1, 8))]
        others += [
            self._after(step) for step in others if rng.random() < _FOLLOWED.get(type(step), 0)
        ]
        others += [
            self._after_refund(each)
            for each in purchases
            if isinstance(each, Deposit) and rng.random() < 0.15
        ]
        steps = sorted([*purchases, *others], key=lambda step: step.at_s)
        latency, jitter = self._latency()
        return Case(
            seed=self._seed,
            balances=tuple(
                rng.choices(("1.00", "0.05", "0.01", ""), (90, 6, 3, 1))[0]
                for _ in range(self._payers)
            ),
            wallets=tuple(
                rng.choices(get_args(Wallet), (80, 12, 8))[0] for _ in range(self._payers)
            ),
            services=self._services,
            market=self._services > 1 and rng.random() < 0.3,
            latency=latency,
            jitter=jitter,
            block_time_s=rng.choices((None, 2.0, 5.0, 12.0, 30.0), (50, 10, 15, 15, 10))[0],
            explorer_lag_s=rng.choices((0.0, 20.0, 400.0), (80, 10, 10))[0],
            steps=tuple(steps),
        )

    def _latency(self) -> tuple[dict[str, float], float]:
        rng = self._rng
        parts = ("service", "facilitator", "explorer", "rpc")
        latency = {part: rng.choice((0.02, 0.1, 0.5)) for part in parts if rng.random() < 0.6}
        return latency, rng.choice((0.0, 0.5)) if latency else 0.0

    def _service(self) -> Service:
        return self._rng.choice(_SERVICES[: self._services])

    def _purchase(self, number: int, at_s: float) -> Purchase:
        rng = self._rng
        common: dict[str, Any] = {
            "number": number,
            "at_s": at_s,
            "payer": rng.randrange(self._payers),
            "service": self._service(),
            "wait_s": rng.choice((0.0, 0.0, 0.0, 1.0, 15.0, 200.0, 301.0)),
            "tries": rng.choice((1, 2, 3, 5, 8)),
            "pause_s": rng.choice((0.5, 5.0, 20.0, 60.0, 100.0)),
            "patience_s": rng.choice((None, None, None, 0.05, 0.3, 1.0, 3.0)),
            "anew": rng.random() < 0.3,
        }
        if rng.random() < 0.65:
            return Buy(**common, way=self._way())
        return Deposit(
            **common,
            cents=rng.choice((1, 3, 5)),
            duration_s=rng.choice((60, 120, 300, 600)),
            spends=rng.choice((0, 1, 2, 4)),
            spend_pause_s=rng.choice((0.0, 1.0, 30.0)),
        )

    def _way(self) -> Way:
        ways: tuple[Way, ...] = get_args(Way)
        return self._rng.choices(ways, (40, 10, 20, 30))[0]

    def _other(self, about: Purchase) -> Step:
        """Draw what happens to a purchase, or around it."""
        rng = self._rng
        offset_s = rng.choice(_OFFSETS_S) * rng.choice((1.0, rng.random()))
        if isinstance(about, Deposit) and rng.random() < 0.4:
            offset_s += about.duration_s  # at its refund
        at_s = round(about.at_s + rng.choice((0.0, about.wait_s)) + offset_s, 3)
        plain = (
            (self._fault, 40),
            (self._again, 14),
            (self._crash, 10),
            (self._reorganise, 12),
            (self._revert, 6),
            (self._pause, 3),
            (self._skew, 5),
            (self._lag, 3),
            (self._cancel, 4),
            (self._drop_waiting, 3),
            (self._run_indexer, 4),
        )
        hostile = ((self._submit, 30), (self._lie, 30)) if self._adversary else ()
        makers, weights = zip(*plain, *hostile, strict=True)
        step: Step = rng.choices(makers, weights)[0](at_s, about)
        return step

    def _after(self, step: Step) -> Step:
        """Draw the reorganisation that often follows what went wrong on the chain."""
        rng = self._rng
        later_s = rng.choice((2.0, 8.0, 30.0, 100.0, 250.0))
        drop = not isinstance(step, Revert) and rng.random() < 0.3
        return Reorganise(at_s=step.at_s + later_s, depth=rng.randint(1, 6), drop=drop)

    def _after_refund(self, deposit: Deposit) -> Step:
        """Draw a reorganisation that loses the refund of a session."""
        at_s = deposit.at_s + deposit.wait_s + deposit.duration_s + self._rng.uniform(10, 60)
        return Reorganise(at_s=round(at_s, 2), depth=self._rng.randint(1, 4), drop=True)

    def _fault(self, at_s: float, about: Purchase) -> Step:
        rng = self._rng
        part = rng.choices(("service", "facilitator", "explorer", "rpc"), (25, 40, 10, 25))[0]
        victim: Victim = about.service if part == "service" else part
        kinds: tuple[FaultKind, ...] = get_args(FaultKind)
        does = rng.choice([kind for kind in kinds if kind != "answer" or part != "service"])
        details: dict[str, Any] = {}
        if does.startswith("delay"):
            details["seconds"] = rng.choice((0.3, 5.0, 31.0, 61.0, 95.0))
        if does == "answer":
            details["status"] = rng.choice((200, 400, 404, 408, 429, 500, 503))
            details["body"] = rng.choice(_BODIES)
            details["work_done"] = rng.random() < 0.5
        return Strike(
            at_s=max(0.0, at_s - rng.choice((0.0, 0.5, 5.0))),
            fault=Fault(
                victim=victim,
                does=does,
                path=rng.choice(_PATHS[part]),
                contains=rng.choice(_CALLS) if part == "rpc" else "",
                skip=rng.choice((0, 0, 0, 1, 2)),
                times=rng.choice((1, 1, 1, 2, 3, 6, None)),
                probability=rng.choice((1.0, 1.0, 0.5)),
                **details,
            ),
        )

    def _again(self, at_s: float, about: Purchase) -> Step:
        rng = self._rng
        return Again(
            at_s=at_s,
            of=about.number,
            by=rng.randrange(self._payers) if self._adversary else about.payer,
            service=rng.choice((self._service(), self._service(), _SERVICES[self._services - 1])),
            what=rng.choices(("same id", "new id", "second header"), (35, 45, 20))[0],
            way=self._way() if rng.random() < 0.4 else getattr(about, "way", "two steps"),
        )

    def _submit(self, at_s: float, about: Purchase) -> Step:
        is_direct = self._rng.random() < 0.7
        how: Literal["chain", "facilitator"] = "chain" if is_direct else "facilitator"
        return Submit(at_s=at_s, of=about.number, how=how)

    def _lie(self, at_s: float, about: Purchase) -> Step:
        rng = self._rng
        is_refund = isinstance(about, Deposit) and rng.random() < 0.5
        amount_base = 10_000
        if isinstance(about, Deposit):
            amount_base = 10_000 * (about.cents - (about.spends if is_refund else 0))
        return Lie(
            at_s=max(0.0, at_s - rng.choice((0.0, 0.5, 5.0))),
            lie=rng.choice(get_args(LieKind)),
            about=about.payer,
            amount_base=amount_base,
            is_refund=is_refund,
            times=rng.choice((1, 1, 2, 4)),
            error=rng.choice([each.value for each in SettleError]),
        )

    def _crash(self, at_s: float, about: Purchase) -> Step:
        return Crash(at_s=at_s, service=about.service)

    def _reorganise(self, at_s: float, _: Purchase) -> Step:
        rng = self._rng
        return Reorganise(at_s=at_s, depth=rng.randint(1, 6), drop=rng.random() < 0.4)

    def _revert(self, at_s: float, _: Purchase) -> Step:
        return Revert(at_s=max(0.0, at_s - 1), calls=self._rng.choice((1, 1, 2)))

    def _pause(self, at_s: float, _: Purchase) -> Step:
        return Pause(at_s=max(0.0, at_s - 1), seconds=self._rng.choice((2.0, 30.0, 120.0)))

    def _skew(self, at_s: float, _: Purchase) -> Step:
        rng = self._rng
        actor: Skewable = rng.choice(get_args(Skewable))
        seconds = rng.choice((-400.0, -70.0, -20.0, 20.0, 70.0, 400.0))
        return Skew(at_s=at_s, actor=actor, seconds=seconds)

    def _lag(self, at_s: float, _: Purchase) -> Step:
        return Lag(at_s=at_s, seconds=self._rng.choice((30.0, 300.0, 1000.0)))

    def _cancel(self, at_s: float, about: Purchase) -> Step:
        return Cancel(at_s=at_s, of=about.number)

    def _drop_waiting(self, at_s: float, _: Purchase) -> Step:
        return DropWaiting(at_s=at_s)

    def _run_indexer(self, at_s: float, about: Purchase) -> Step:
        return RunIndexer(at_s=at_s, service=about.service)
