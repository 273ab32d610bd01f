"""Judges a payer: controls, then every play beside others, each in a world of its own, then again.

A payment flow whose control fails is not judged, and a payer that fails every control is invalid.
What fails is played again, and is reported only if it fails twice.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.report.results import CaseResult
from x402sim.suite.payer.case import PayerCase
from x402sim.suite.payer.play import Played, play
from x402sim.suite.payer.shop import PaymentFlow
from x402sim.suite.payer.start import Payer
from x402sim.suite.played import Found, Violation, by_play, result, side_by_side, unclear
from x402sim.suite.process import last_line

PATIENCE_S = 20.0
"""How long one start may take."""
CONTROL_S, TIMES = 60.0, 4
"""How long a start of a control may take, and how many times as long any other, on a machine that
is busy: a start that is ended for its slowness would be no finding."""
LATE_S = 1.0
"""How late an answer of the judge may be at which a payer may have given up: less than the time-out
of any client that is known."""
WORLDS = 3
"""How many worlds there are for each play that is busy: some begin, some end."""
BESIDE = 12
"""How many plays that mostly wait run beside the others."""


class OtherWallet(Exception):
    """Another wallet than the case's has signed: no run goes on after that."""


@dataclass(slots=True, kw_only=True, eq=False)
class Judge:
    """One judgement of one payer."""

    payer: Payer
    network: Network = BASE_SEPOLIA
    seed: int = 0
    patience_s: float = PATIENCE_S
    jobs: int = field(default_factory=lambda: 2 * (os.cpu_count() or 2))
    starts: int = 0
    """How often the payer was started."""
    start_s: float = 0
    """How long a start of the controls took, at most."""
    start_cpu_s: float = 0
    """The CPU that a start of the controls took, of a command; 0 of what is no process of ours."""
    _busy: asyncio.Semaphore = field(init=False)
    _waiting: asyncio.Semaphore = field(init=False)
    _worlds: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._busy, self._waiting = asyncio.Semaphore(self.jobs), asyncio.Semaphore(BESIDE)
        self._worlds = asyncio.Semaphore(BESIDE + WORLDS * self.jobs)

    async def play(self, case: PayerCase, again: str = "") -> Played:
        """Play the case; `again` names another playing of it. Raises `OtherWallet`."""
        async with self._worlds:
            played = await play(
                self.payer,
                case.flow,
                case.story,
                name=f"{case.played_as}{again}",
                network=self.network,
                seed=self.seed,
                patience_s=max(self.patience_s, CONTROL_S * case.is_control),
                limit_starts=case.starts,
                turn=self._waiting if case.waits_s else self._busy,
            )
        self.starts += len(played.starts)
        if played.foreign:
            raise OtherWallet(
                f"{case.id}: {played.foreign} signed, which is not the wallet of this case "
                f"({played.payer}). Nothing else is started: give the payer no other key"
            )
        return played

    async def controls(self, cases: Sequence[PayerCase], again: str = "") -> dict[PaymentFlow, str]:
        """Play the control of each flow; return why one is broken."""
        controls = {case.flow: case for case in cases if case.is_control}
        before_s = _cpu_of_commands_s()
        played = dict(
            zip(
                controls,
                await asyncio.gather(*(self.play(case, again) for case in controls.values())),
                strict=True,
            )
        )
        done = [each.starts[-1].seconds for each in played.values() if each.is_served]
        self.start_s = max(done, default=self.start_s)
        starts = sum(len(each.starts) for each in played.values())
        self.start_cpu_s = (_cpu_of_commands_s() - before_s) / max(1, starts)
        self.patience_s = max(self.patience_s, TIMES * self.start_s)
        broken = {}
        for flow, each in played.items():
            wrong = controls[flow].test(each)
            if isinstance(wrong, Violation):
                last = each.starts[-1] if each.starts else None
                log = f"; it wrote: {last_line(last.log or last.output)}" if last else ""
                broken[flow] = f"{wrong.actual}{log}"
        return broken

    async def passed(self, gates: Sequence[PayerCase]) -> set[str]:
        """Play gates; return the names of those plays in which all was bought."""
        played = await asyncio.gather(*(self.play(gate) for gate in gates))
        return {gate.gate for gate, it in zip(gates, played, strict=True) if it.is_served}

    def run(
        self, cases: Sequence[PayerCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[PayerCase, CaseResult]]:
        """Play the cases, and yield each with its result as soon as it is certain."""
        longest_first = sorted(by_play(cases), key=lambda group: -group[0].waits_s)
        return side_by_side(self._judged(group, on_begin) for group in longest_first)

    async def _judged(
        self, group: list[PayerCase], on_begin: Callable[[str], None]
    ) -> list[tuple[PayerCase, CaseResult]]:
        for case in group:
            on_begin(case.id)
        first = await self.play(group[0])
        found = {case: case.test(first) for case in group}
        if not any(isinstance(each, Violation) for each in found.values()):
            return [(case, _result(case, wrong, first)) for case, wrong in found.items()]
        second = await self.play(group[0], " again")
        if second.late_s > LATE_S:
            second = await self.play(group[0], " once more")
        results = []
        for case, wrong in found.items():
            repeated = case.test(second)
            if isinstance(wrong, Violation) and not isinstance(repeated, Violation):
                why = f"it failed ({wrong.actual}), and did not when it was played again"
                late = first.late_s > LATE_S  # then it was no failure of the payer's
                again = _result(case, repeated, second) if late else unclear(case, why)
                results.append((case, again))
            else:
                results.append((case, _result(case, wrong, first)))
        return results


def _cpu_of_commands_s() -> float:
    """Return the CPU that the processes have taken that were started and have ended."""
    took = os.times()
    return took.children_user + took.children_system


def _result(case: PayerCase, found: Found, played: Played) -> CaseResult:
    log = "".join(last_line(ended.log) for ended in played.starts[-1:] if ended.log)
    return result(case, found, played.report(), log, played.seconds)
