"""The engine of the judges: a play, the verdict on each case, and the rule of repetition.

The rule, for every subject:

1. A control is a good purchase. In a dialect whose control fails nothing is judged, and a case
   that holds while its control fails is inconclusive.
2. A case that holds in the first play holds.
3. A failed case is played again, alone in a fresh room. A case has failed if both plays fail.
4. A play that stays unclear is played again, too, and the second play decides.
5. A play that jams the subject is found by bisection (`rooms`), and the jam is a failure.
6. A subject started by the user has one room, in which earlier plays may have left something. A
   play of a service is repeated there only if another play ran beside it: a play alone has nothing
   else to blame, and may pay real money.
7. All else is inconclusive.

`of_two` is rules 2 to 4. `rooms` plays servers and facilitators, `payer.subject` payers, and
`service.engine` services.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from x402sim.clock import stopwatch
from x402sim.suite.case import HOLDS, AnyCase, Case, by_id, of_id
from x402sim.suite.redact import impersonal
from x402sim.suite.report import causes
from x402sim.suite.report.exchange import Exchange, Exchanges, record
from x402sim.suite.report.results import CaseResult, Evidence, Outcome, Result
from x402sim.suite.verdict import (
    CheckFailed,
    Found,
    Inconclusive,
    Lacking,
    NotApplicable,
    NotReady,
    Show,
    Skipped,
    Untold,
    Violation,
)

# --- the result of a case ---------------------------------------------------------------------


def result(case: Case, found: Found, exchanges: Exchanges = (), log: str = "") -> CaseResult:
    """Return the result of a judged case.

    `log` tells the end of the subject's output, "its last line: …"; empty without a command.
    """
    if not isinstance(found, Violation):
        outcome = Outcome.PASSED if found is None else Outcome.OBSERVED
        return _result(case, outcome, actual=found, has_begun=True)
    expected = found.expected
    if found.demand and not expected:
        expected = causes.expected(found.demand)
    answer = impersonal(found.actual)
    return _result(
        case,
        Outcome.FAILED,
        expected=expected,
        actual=found.actual,
        reason="" if found.loss else found.why or causes.why(found.demand),
        loss=found.loss,
        evidence=Evidence(found.demand, found.about or expected, answer, case.id),
        exchanges=(*exchanges, Exchange(log)) if log else exchanges,
        has_begun=True,
    )


def unclear(case: Case, why: str | Inconclusive, exchanges: Exchanges = ()) -> CaseResult:
    """Return the inconclusive result of a case, with the reason."""
    bare = why.why if isinstance(why, Inconclusive) else why
    return _result(
        case,
        Outcome.INCONCLUSIVE,
        reason=str(why),
        evidence=Evidence(answer=impersonal(bare)),
        exchanges=exchanges,
        has_begun=True,
    )


def skipped(case: Case, why: Skipped) -> CaseResult:
    """Return the result of a case that was not judged, as the exception says."""
    return _result(
        case,
        Outcome.SKIPPED,
        reason=str(why),
        applies=not isinstance(why, NotApplicable),
        lacks=isinstance(why, Lacking),
        is_untold=isinstance(why, Untold),
    )


def _result(case: Case, outcome: Outcome, **more: Any) -> CaseResult:
    return CaseResult(
        title=case.title, dialect=str(case.dialect), ground=case.ground, outcome=outcome, **more
    )


# --- a play, and the rule ---------------------------------------------------------------------


CaseResults = list[tuple[AnyCase, CaseResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played(Generic[AnyCase]):
    """A finished play, in `play`, of some cases: the finding of each case."""

    play: Any
    found: Mapping[AnyCase, Found]
    left: Inconclusive | Skipped | None = None
    """Why the play cannot be judged, or was not played."""
    show: Show | None = None
    """Makes the exchange behind a failure; None for the record of the whole play."""
    seconds: float = 0
    log: str = ""
    jams: bool = False
    """Whether a good payment failed after the play."""
    fails_too: bool = False
    """Whether a demand of the play failed before the jam."""
    ended: str = ""
    """How the subject ended by itself during the play."""

    @property
    def wrong(self) -> Violation | None:
        """The first broken demand."""
        return next((each for each in self.found.values() if isinstance(each, Violation)), None)

    @property
    def unclear(self) -> str:
        """Why the play cannot be judged; empty otherwise."""
        return str(self.left) if isinstance(self.left, Inconclusive) else ""

    @property
    def _dearest(self) -> set[AnyCase]:
        """For each token the case with the greatest loss: a play's money is counted once."""
        found: dict[str, tuple[int, AnyCase]] = {}
        for case, each in self.found.items():
            loss = each.loss if isinstance(each, Violation) else None
            if loss and loss.base > found.get(loss.symbol, (0, case))[0]:
                found[loss.symbol] = loss.base, case
        return {case for _, case in found.values()}

    def of(self, case: AnyCase) -> CaseResult:
        """Return the result of a case of the play."""
        if case in self.found:
            evidence: Exchanges = ()
            if isinstance(self.found[case], Violation):
                evidence = (self.show(),) if self.show else record(self.play.exchanges)
            found = result(case, self.found[case], evidence, self.log)
            if case not in self._dearest:
                found = msgspec.structs.replace(found, loss=None)
        elif isinstance(self.left, Skipped):
            found = skipped(case, self.left)
        else:
            assert self.left is not None
            found = unclear(case, self.left)
        return msgspec.structs.replace(found, seconds=round(self.seconds, 3))

    @property
    def results(self) -> CaseResults[AnyCase]:
        """The cases with a finding, and their results."""
        return [(case, self.of(case)) for case in self.found]


async def attempt(
    cases: Sequence[AnyCase],
    play: Any,
    act: Callable[[], Awaitable[Any]],
    test: Callable[[AnyCase, Any], Found],
) -> Played[AnyCase]:
    """Play the common play of some cases, and test what it has observed by each case."""
    elapsed = stopwatch()
    found: dict[AnyCase, Found] = {}
    left: Inconclusive | Skipped | None = None
    show = None
    try:
        observed = await act()
        found = {case: test(case, observed) for case in cases}
    except CheckFailed as failed:
        found, show = dict.fromkeys(cases, failed.violation), failed.show
    except (Inconclusive, Skipped) as why:
        found, left = {}, why
    except NotReady:
        raise
    except Exception as bug:  # noqa: BLE001 - a bug of one case must not end the run
        found, left = {}, Inconclusive(f"the case itself has a bug: {bug!r}")
    return Played(play=play, found=found, left=left, show=show, seconds=elapsed())


def of_two(first: CaseResult, second: CaseResult, beside: str = "") -> CaseResult:
    """Return the result of a case that was played twice, the second time alone: rules 2 to 4.

    `beside` names what ran beside the first play.
    """
    seconds = round(first.seconds + second.seconds, 3)
    if first.outcome is Outcome.FAILED and second.outcome is not Outcome.FAILED:
        where = f" beside {beside}" if beside else ""
        held = second.outcome in HOLDS
        alone = "it holds" if held else f"it was not judged: {second.reason}"
        difference = f"expected {first.expected}, got {first.actual}"
        why = f"it failed{where} ({difference}); played again alone, {alone}"
        return msgspec.structs.replace(
            first,
            outcome=Outcome.INCONCLUSIVE,
            expected=None,
            actual=None,
            loss=None,
            reason=why,
            evidence=Evidence(answer=impersonal(why)),
            seconds=seconds,
        )
    decides = first.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)
    return msgspec.structs.replace(second, seconds=seconds) if decides else first


def doubted(case: Case, found: CaseResult, why: str | None) -> CaseResult:
    """Return the result, inconclusive if the case holds and there is a reason to doubt: rule 1."""
    if not why or found.outcome not in HOLDS or case.is_control:
        return found
    return msgspec.structs.replace(
        found, outcome=Outcome.INCONCLUSIVE, actual=None, reason=why, evidence=None
    )


Each = TypeVar("Each")


async def side_by_side(works: Iterable[Coroutine[Any, Any, list[Each]]]) -> AsyncIterator[Each]:
    """Run works at once, and yield each result at its end.

    An exception of a work is raised here, and cancels the other works, as leaving the loop does.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        for done in asyncio.as_completed(tasks):
            for each in await done:
                yield each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- a judgement ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run: cases to judge, lines to print before the run, expected seconds.

    `unspoken` maps the dialects that the subject does not speak to the evidence; the results leave
    out these dialects.
    """

    cases: Sequence[Any] = ()
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    unspoken: Mapping[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that can be judged, in at least one dialect."""
        return tuple(dict.fromkeys(case.id for case in self.cases))


class Judge(Protocol[AnyCase]):
    """A judge of a kind of subject."""

    def run(
        self, cases: Sequence[AnyCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[AnyCase, CaseResult]]:
        """Play the cases; yield each case with its result as soon as the result is certain."""


@dataclass(slots=True, kw_only=True, eq=False)
class Judging(Generic[AnyCase]):
    """A run that has begun: the subject is ready, in the dialects whose control has passed.

    cases
        The cases with a result: the cases of the plan, and the cases left out for a reason.
    left_out
        Returns the result of a case outside the plan.
    done
        Returns a count of the work, such as "2178 requests".
    left_open
        Returns lines to tell besides the results, and the demands of --require not met.
    """

    judge: Judge[AnyCase]
    cases: Sequence[AnyCase]
    rerun: str
    left_out: Callable[[AnyCase], CaseResult]
    done: Callable[[], str]
    plan: Plan
    left_open: Callable[[Sequence[Result]], tuple[list[str], list[str]]] = lambda results: ([], [])

    async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        """Play the cases; yield the result of each id once it is certain in every dialect.

        `on_begin` gets each id before the id's first case runs.
        """
        planned, cases = set(self.plan.cases), by_id(self.cases)
        found = {case: self.left_out(case) for case in self.cases if case not in planned}
        for its in cases.values():
            if all(case in found for case in its):
                yield of_id(its, found, self.rerun)
        async for case, done in self.judge.run(self.plan.cases, on_begin):
            found[case] = done
            its = cases.get(case.id, [])
            if case in its and all(each in found for each in its):  # else it was not chosen
                yield of_id(its, found, self.rerun)
        for its in by_id(case for case in found if case.id not in cases).values():
            yield of_id(its, found, self.rerun)
