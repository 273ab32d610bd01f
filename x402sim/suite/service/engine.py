"""Runs checks against a service: waiting checks side by side, and failed checks again, alone."""

import asyncio
import functools
import runpy
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import msgspec

from x402sim.payer.wallet import Wallet
from x402sim.spec.ground import folder
from x402sim.spec.needs import Need
from x402sim.suite import redact
from x402sim.suite.case import HOLDS, by_id, clarity
from x402sim.suite.engine import (
    Judging,
    Plan,
    attempt,
    doubted,
    of_two,
    skipped,
)
from x402sim.suite.report.exchange import Exchanges
from x402sim.suite.report.results import CaseResult, Evidence, Outcome, Result
from x402sim.suite.service import expect
from x402sim.suite.service.background import recover
from x402sim.suite.service.case import Control, ServiceCase
from x402sim.suite.service.plan import (
    CONTROL_REQUESTS,
    Order,
    in_groups,
    is_beside,
    is_patient_enough,
    why_left,
)
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import CheckFailed, Inconclusive, Lacking, Skipped

MOST_NAMED = 6
"""The most neighbours named for a failed case."""


@functools.cache
def all_checks() -> list[ServiceCase]:
    """Return every check, in the order of the sections: the list itself, not to be changed."""
    found = [
        value
        for file in sorted(folder("service").glob("test_section_*.py"))
        for value in runpy.run_path(str(file), run_name=file.stem).values()
        if isinstance(value, ServiceCase)
    ]
    return sorted(found, key=lambda check: (check.section, check.id))


async def run(
    setting: Setting,
    checks: list[ServiceCase],
    on_begin: Callable[[str], None] = lambda check_id: None,
) -> AsyncIterator[Result]:
    """Run checks and yield the result of each id as soon as the result is certain.

    `on_begin` is called with each id before the first case.
    """
    async for result in judging(setting, checks, Plan(cases=checks)).run(on_begin):
        yield result


def judging(
    setting: Setting, checks: Sequence[ServiceCase], plan: Plan, **more: Any
) -> Judging[ServiceCase]:
    """Return the judgement of a service by these checks; a check outside the plan says why."""

    def left_out(case: ServiceCase) -> CaseResult:
        left = why_left(setting, case)
        assert left is not None
        return skipped(case, left)

    return Judging(
        judge=ServiceJudge(setting),
        cases=checks,
        rerun=setting.options.rerun,
        left_out=left_out,
        done=lambda: f"{setting.pace.requests} requests",
        plan=plan,
        **more,
    )


@dataclass(slots=True)
class ServiceJudge:
    """One run of a service at a URL: one room for all cases.

    Without a clock that turns, cases run in the groups of `Order`; a case that fails beside other
    cases is doubtful, and is repeated alone.
    """

    setting: Setting
    done: dict[ServiceCase, CaseResult] = field(default_factory=dict)
    _told: set[ServiceCase] = field(default_factory=set)
    """The cases whose results are certain, and yielded."""
    _beside: list[asyncio.Task[None]] = field(default_factory=list)
    """The tasks of cases that began to run beside others."""

    async def run(
        self, cases: Sequence[ServiceCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[ServiceCase, CaseResult]]:
        """Run the cases; yield each with its result as soon as it is certain.

        Results that depend on a control come last, after each control was tried again: a target
        that has begun to refuse everything would pass every check that expects a refusal.
        """
        waiting: list[tuple[ServiceCase, CaseResult, Control]] = []
        async for case, found in self._judged(cases, functools.cache(on_begin)):
            if (control := case.control) and found.outcome in HOLDS:
                waiting.append((case, found, control))
            else:
                yield case, found
        for case, found, control in waiting:
            yield case, doubted(case, found, await self._why_doubted(control))

    async def _why_doubted(self, control: Control) -> str | None:
        """Return why a case with a control proves nothing; None if the control holds to the end."""
        setting = self.setting
        if setting.stopped:
            return setting.stopped
        if control not in setting.last_controls:
            setting.last_controls[control] = await try_control(Probe(setting), control)
        if problem := setting.last_controls[control]:
            return (
                f"the control ({control}) was refused when repeated at the end of the run: "
                f"{_clean(setting, problem)}"
            )
        return None

    async def _judged(
        self, cases: Sequence[ServiceCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[ServiceCase, CaseResult]]:
        """Run all cases; yield each with its result once the result is certain.

        Cases that failed beside refunds in trouble are judged once more, without these. What is
        still doubtful is repeated alone, at the end.
        """
        setting, order = self.setting, in_groups(self.setting, cases)
        if setting.advance is None:
            setting.scheduler.share()
        try:
            async for each in self._in_groups(order, on_begin):
                yield each
            if doubtful := self._failed_beside(order.waiting_with_faults):
                await recover(setting)
                named = ", ".join(dict.fromkeys(case.id for case in doubtful))
                setting.tell(f"judging {named} once more, which failed beside refunds in trouble")
                async for each in self._in_groups(in_groups(setting, doubtful), on_begin):
                    yield each
        finally:
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)
        for each in self._certain():
            yield each
        for its in by_id(case for case in self.done if case not in self._told).values():
            await self._repeat(its)
            for case in its:
                yield case, self.done[case]

    async def _in_groups(
        self, order: Order, on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[ServiceCase, CaseResult]]:
        """Play the groups; yield the results that are certain while others still act."""
        setting, scheduler = self.setting, self.setting.scheduler

        async def play(case: ServiceCase) -> None:
            on_begin(case.id)
            self.done.pop(case, None)  # judged once more: the first result does not count
            try:
                self.done[case] = await run_case(setting, case)
            finally:
                if Need.RESTART in case.needs:
                    scheduler.is_ready()

        def start(cases: Iterable[ServiceCase]) -> list[asyncio.Task[None]]:
            tasks = [asyncio.create_task(play(case)) for case in cases]
            self._beside += tasks
            return tasks

        restarting, waiting = start(order.restarting), start(order.waiting)
        refunding = start(order.waiting_with_faults)
        has_restart = bool(order.restarting or order.restarting_with_faults)
        await asyncio.sleep(0)  # noqa: TID251 - no time passes; these tasks queue up first
        for case in order.acting:
            await play(case)
            for each in self._certain():
                yield each
        scheduler.rest_is_over.set()
        self._tell_of_waiting(order.waiting)
        await asyncio.gather(*waiting)
        await scheduler.when_prepared(len(restarting))
        for case in order.with_faults:
            await play(case)
        if refunding or has_restart:
            await recover(setting)
        self._tell_of_waiting(order.waiting_with_faults)
        await asyncio.gather(*refunding)
        if has_restart:
            found = (self.done[case].outcome for case in order.waiting_with_faults)
            if any(each is not Outcome.PASSED for each in found):
                await recover(setting)  # if they passed, the background runs
            restarting += start(order.restarting_with_faults)
            await scheduler.when_ready(len(restarting))
            await asyncio.gather(*restarting)

    def _certain(self) -> Iterator[tuple[ServiceCase, CaseResult]]:
        """Yield the results that are certain now, each once."""
        for case, found in self.done.items():
            if case not in self._told and not self._is_doubtful(case):
                self._told.add(case)
                yield case, found

    def _is_doubtful(self, case: ServiceCase) -> bool:
        """Tell whether a case failed while others acted or had faults, in a target's world."""
        has_faults = self.setting.control is not None and self.setting.advance is None
        is_failed = self.done[case].outcome is Outcome.FAILED
        overlaps = self.setting.scheduler.overlaps
        return has_faults and is_failed and bool(overlaps.ran_beside(case) or overlaps.faults(case))

    def _failed_beside(self, refunding: Collection[ServiceCase]) -> list[ServiceCase]:
        """Return the failed cases whose only neighbours with faults were the refund cases.

        A target with one loop for its background may do nothing else while a refund fails.
        """
        faults = self.setting.scheduler.overlaps.faults
        return [
            case
            for case in self.done
            if self._is_doubtful(case)
            and faults(case)
            and faults(case) <= {*refunding}
            and Need.RESTART not in case.needs
            and case not in refunding
        ]

    async def _repeat(self, cases: list[ServiceCase]) -> None:
        """Repeat the doubtful cases of an id alone, until one fails again: then the id has failed.

        A case that holds alone is inconclusive, and names the cases beside the first run.
        """
        setting, done = self.setting, self.done
        for case in sorted(cases, key=lambda case: clarity(case, done)):
            beside = setting.scheduler.overlaps.ran_beside(case)
            await recover(setting)
            setting.scheduler.alone()
            setting.tell(f"repeating {case.id} alone, which has failed beside others")
            whom = ", ".join(beside[:MOST_NAMED]) + ", …" * (len(beside) > MOST_NAMED)
            done[case] = of_two(done[case], await run_case(setting, case), whom)
            if done[case].outcome is Outcome.FAILED:
                return

    def _tell_of_waiting(self, cases: Iterable[ServiceCase]) -> None:
        if left := [case for case in cases if case not in self.done]:
            longest_s = max(case.waits(self.setting) if case.waits else 0 for case in left)
            ids = ", ".join(dict.fromkeys(case.id for case in left))
            self.setting.tell(f"waiting for {ids}, for up to {longest_s:.0f} s")


async def run_case(setting: Setting, case: ServiceCase) -> CaseResult:
    """Wait for the turn of a case, run its control and the case; the result has no secret."""
    async with setting.scheduler.turn:
        with setting.scheduler.overlaps.joined(case, waits=is_beside(setting, case)):
            return await _run_case(setting, case)


async def _run_case(setting: Setting, case: ServiceCase) -> CaseResult:
    probe = Probe(setting, case.id, may_disturb=case.disturbs)
    has_begun = False

    async def act() -> None:
        nonlocal has_begun
        if left := why_left(setting, case):
            raise left
        if case.waits and not is_patient_enough(setting, case):
            raise Lacking(f"it waits for {case.waits(setting):.0f} s: give --patient")
        if stopped := setting.stopped:
            raise Inconclusive(stopped)
        if case.control:
            await _require_control(setting, case.control)
        has_begun = True
        await case.run(probe)

    try:
        played = await attempt([case], probe, act, lambda case, _: probe.seen or None)
    finally:
        uncleared = await _clear_faults(probe)
    if uncleared:
        played = replace(played, found={}, left=Inconclusive(uncleared))
    found, show = played.of(case), played.show
    exchanges: Exchanges = ()
    if found.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE):
        exchanges = (show(), *probe.world.faults) if show else probe.exchanges

    def hidden(text: str) -> str:
        return _hidden(setting, redact.without(text, setting.options.secrets))

    evidence = found.evidence or Evidence()
    return msgspec.structs.replace(
        found,
        expected=_clean(setting, found.expected or "") or None,
        actual=_clean(setting, found.actual or "") or None,
        reason=_clean(setting, found.reason),
        exchanges=tuple(each.changed(hidden) for each in exchanges),
        has_begun=has_begun,
        evidence=msgspec.structs.replace(
            evidence, answer=redact.impersonal(_clean(setting, evidence.answer))
        ),
    )


def _clean(setting: Setting, text: str) -> str:
    """Return a text for a report: without keys, proofs of payment and the user's secrets."""
    options = setting.options
    clean = redact.redacted(redact.without(text, options.secrets), options.payer)
    return _hidden(setting, clean)


def _hidden(setting: Setting, text: str) -> str:
    """Return a text without ids and signatures of payments, except of a world's play money."""
    if setting.control is not None:
        return text
    return redact.shortened(text, (*setting.proofs, *setting.signatures))


async def _require_control(setting: Setting, control: Control) -> None:
    known = setting.first_controls
    if control not in known:
        known[control] = await try_control(Probe(setting), control)
    if problem := known[control]:
        raise Inconclusive(f"the control ({control}) was not accepted: {problem}", problem)


async def try_control(probe: Probe, control: Control, payer: Wallet | None = None) -> str | None:
    """Try a control, with a given payer; return the reason for a refusal, None if accepted."""
    try:
        match control:
            case "unpaid":
                await probe.challenge()
            case "payment":
                paid = await probe.buy(payer)
                expect.served(await probe.opened(paid.challenge))
            case "session":
                session = await probe.open_session(await probe.budget_for(CONTROL_REQUESTS))
                expect.served(await probe.ask(session_id=session.session_id))
            case _:
                assert_never(control)
    except CheckFailed as failed:
        return f"expected {failed.expected}, got {failed.actual}"
    except (Inconclusive, Skipped) as problem:
        return str(problem)
    return None


async def _clear_faults(probe: Probe) -> str:
    """Remove the faults that a check has left; return why the removal failed."""
    try:
        if probe.world.exists and probe.world.changed_world:
            await probe.world.clear_faults()
    except Inconclusive as problem:
        return f"the world's faults were not cleared, and may spoil other checks: {problem}"
    return ""
