"""A payer or an agent, as the subject of a judgement: a command, or an HTTP door.

Controls are played first, then all other plays at once, each in its own world. If a flow's control
buys nothing, the flow is not judged; a payer whose controls all buy nothing is invalid. A control
that pays too much, or pays for nothing, fails.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.suite.case import by_play
from x402sim.suite.dialect import OF_PAYERS, Dialect
from x402sim.suite.engine import (
    CaseResults,
    Judging,
    Plan,
    Played,
    attempt,
    doubted,
    of_two,
    side_by_side,
    skipped,
    unclear,
)
from x402sim.suite.fixture import CaseOfTest, chosen
from x402sim.suite.options import (
    OfJudge,
    again,
    flag,
    given,
    one_of,
    patience_flag,
    read,
    wait_flag,
)
from x402sim.suite.payer.case import PayerCase, committed_at_most, served
from x402sim.suite.payer.play import (
    PRICE_BASE,
    Bound,
    Buy,
    Ended,
    Function,
    HttpPayer,
    Payer,
    PayerCommand,
    Purchase,
    Task,
    play,
)
from x402sim.suite.report.exchange import Exchanges, record
from x402sim.suite.report.results import CaseResult, Outcome
from x402sim.suite.rooms import why_each
from x402sim.suite.row import beginnings, cases_of, rows_of
from x402sim.suite.started import error_lines
from x402sim.suite.subject import (
    Subject,
    Tell,
    in_vain,
    once,
    patiently,
    until_url_answers,
)
from x402sim.suite.verdict import NotApplicable, NotReady, Violation
from x402sim.text.words import counted

PATIENCE_S = 20.0
"""Seconds for one start."""
CONTROL_S, TIMES = 60.0, 4
"""Seconds for a start of a control, and how many times the slowest control's time other starts may
take: on a busy machine, ending a slow start would show nothing."""
LATE_S = 1.0
"""Seconds of delay of the judge's answer at which a payer may have given up: less than the timeout
of any known client."""
WORLDS = 3
"""Worlds for each busy play: some begin, some end."""
BESIDE = 12
"""How many plays that mostly wait run beside the others."""


class OtherWallet(Exception):
    """Another wallet than the case's has signed: the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A control without a purchase, according to the payer."""

    why: str
    exchanges: Exchanges
    pays: bool
    """Whether money has moved for nothing, or more can move than allowed."""
    tries: bool
    """Whether a signed payment bought nothing."""


@dataclass(slots=True, kw_only=True, eq=False)
class PayerJudge:
    """One judgement of one payer."""

    payer: Payer
    network: Network = BASE_SEPOLIA
    seed: int = 0
    patience_s: float = PATIENCE_S
    takes_no: frozenset[Bound] = frozenset()
    """The bounds of a task that the payer's interface does not take."""
    jobs: int = field(default_factory=lambda: 2 * (os.cpu_count() or 2))
    tell: Tell = lambda text: None
    """Tells the user that a start does not end; `once` tells only the first time."""
    starts: int = 0
    """How often the payer was started."""
    start_s: float = 0
    """The seconds of the longest start of a control."""
    start_cpu_s: float = 0
    """The mean CPU seconds of a control's start; 0 for a payer that is no process of ours."""
    _busy: asyncio.Semaphore = field(init=False)
    _waiting: asyncio.Semaphore = field(init=False)
    _worlds: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._busy, self._waiting = asyncio.Semaphore(self.jobs), asyncio.Semaphore(BESIDE)
        self._worlds = asyncio.Semaphore(BESIDE + WORLDS * self.jobs)

    async def play(self, case: PayerCase, again: str = "") -> Purchase:
        """Play the case; `again` names a repetition of the play. Raises `OtherWallet`."""

        async def start(task: Task, folder: Path, patience_s: float) -> Ended:
            text = f"{case.name}: a start does not end, and has {patience_s:g} s"
            with patiently(self.tell, text, case.waits_s):
                return await self.payer.start(task, folder, patience_s)

        async with self._worlds:
            played = await play(
                start,
                case.dialect,
                case.story,
                name=f"{case.played_as}{again}",
                network=self.network,
                seed=self.seed,
                patience_s=max(self.patience_s, CONTROL_S * case.is_control),
                limit_starts=case.starts,
                turn=self._waiting if case.waits_s else self._busy,
            )
        played.takes_no = self.takes_no
        self.starts += len(played.starts)
        if played.foreign:
            raise OtherWallet(
                f"{case.name}: {played.foreign} signed, which is not the wallet of this case "
                f"({played.payer}). Nothing else is started: give the payer no other key"
            )
        return played

    async def controls(self, cases: Sequence[PayerCase], again: str = "") -> dict[Dialect, Broken]:
        """Play the control of each flow; return the controls without a purchase."""
        controls = {case.dialect: case for case in cases if case.is_control}
        played = dict(
            zip(
                controls,
                await asyncio.gather(*(self.play(case, again) for case in controls.values())),
                strict=True,
            )
        )
        done = [each.starts[-1].seconds for each in played.values() if each.is_served]
        self.start_s = max(done, default=self.start_s)
        took_s = [ended.cpu_s for each in played.values() for ended in each.starts]
        self.start_cpu_s = sum(took_s) / max(1, len(took_s))
        self.patience_s = max(self.patience_s, math.ceil(TIMES * self.start_s))
        broken = {}
        for flow, each in played.items():
            wrong = served(each)
            if wrong is not None:
                last = each.starts[-1] if each.starts else None
                log = f"; it wrote: {error_lines(last.log or last.output)}" if last else ""
                is_unread = last is not None and last.ok and each.shop.served  # no goods shown
                too_much = committed_at_most(PRICE_BASE)(each)
                broken[flow] = Broken(
                    why=f"{wrong.actual}{log}",
                    exchanges=record(each.exchanges),
                    pays=isinstance(too_much, Violation) or bool(each.moved and not is_unread),
                    tries=bool(each.signed and not is_unread),
                )
        return broken

    async def passed(self, gates: Sequence[PayerCase]) -> set[str]:
        """Play gates; return the names of the plays in which everything was bought."""
        played = await asyncio.gather(*(self.play(gate) for gate in gates))
        return {gate.gate for gate, it in zip(gates, played, strict=True) if it.is_served}

    async def run(
        self, cases: Sequence[PayerCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[PayerCase, CaseResult]]:
        """Play the cases; yield failures at once, and other results when the controls pass again.

        A case that holds in a flow whose control fails now is inconclusive.
        """
        waiting: CaseResults[PayerCase] = []
        async for case, found in self.played(cases, on_begin):
            if found.outcome is Outcome.FAILED:
                yield case, found
            else:
                waiting.append((case, found))
        broken = await self.controls(_controls({case.dialect for case in cases}), " after")
        for case, found in waiting:
            why, control = "", broken.get(case.dialect)
            if control is not None:
                why = (
                    f"its control, played again at the end, failed ({case.control}: {control.why})"
                )
            yield case, doubted(case, found, why)

    def played(
        self, cases: Sequence[PayerCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[PayerCase, CaseResult]]:
        """Play the cases, and yield each with its result, whatever becomes of the controls."""
        longest_first = sorted(by_play(cases), key=lambda group: -group[0].waits_s)
        return side_by_side(self._judged(group, on_begin) for group in longest_first)

    async def _judged(
        self, group: list[PayerCase], on_begin: Callable[[str], None]
    ) -> CaseResults[PayerCase]:
        for case in group:
            on_begin(case.id)
        first = await self._played(group)
        if first.wrong is None:
            return first.results
        second = await self._played(group, " again")
        return [(case, of_two(first.of(case), second.of(case))) for case in group]

    async def _played(self, group: list[PayerCase], again: str = "") -> Played[PayerCase]:
        """Play a story in a new world.

        A failure in a play in which the judge was late is no finding: the story is played once
        more.
        """
        purchase = await self.play(group[0], again)
        played = await _tested(group, purchase)
        if played.wrong is None or purchase.late_s <= LATE_S:
            return played
        return await _tested(group, await self.play(group[0], f"{again} once more"))


async def _tested(group: Sequence[PayerCase], purchase: Purchase) -> Played[PayerCase]:
    async def act() -> Purchase:
        return purchase

    logs = [ended.log for ended in purchase.starts[-1:] if ended.log]
    log = "".join(f"its last line: {error_lines(each)}" for each in logs)
    played = await attempt(group, purchase, act, lambda case, observed: case.test(observed))
    return replace(played, seconds=purchase.seconds, log=log)


SECTIONS = {
    "control": "What must work, and what is signed there",
    "lost": "Answers that are lost, late, cut or false",
    "sign": "What must not be signed",
    "send": "Where nothing must be sent",
    "choose": "Which offer is taken",
    "accept": "What should not be refused",
    "budget": "The bounds of a whole purchase",
    "clock": "Clocks that differ",
    "hostile": "Endless and hostile answers",
    "extension": "Extensions of version 2",
}
ONE_THING = (
    "the case buys several things from one budget, and this payer buys only the first of "
    "X402SIM_URLS"
)
INVALID = (
    "The payer buys nothing at an honest shop, so there is nothing to judge. {}. The guide, `Judge "
    "your payer or agent`, lists the variables that the judge sets, and the wanted output"
)
_STARTS = 1.3
"""The measured mean number of starts in a play that allows several."""
_OWN_S = 0.03
"""The judge's own seconds of one core for a play."""


dialects_in = one_of(OF_PAYERS, "dialects")
"""Reads dialects, separated by commas; raises `ValueError`."""


rows = partial(rows_of, "payer", *SECTIONS)
"""Returns the table of stories, in the order of the sections."""
all_cases = partial(cases_of, "payer", *SECTIONS)
"""Returns every case: controls first, then section by section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerOptions(OfJudge):
    """A user's options for the judgement of a payer."""

    subject: Payer
    url: str | None = flag("URL of a payer behind HTTP: each task is posted there.", metavar="URL")
    dialects: tuple[Dialect, ...] | None = flag(
        f"Dialects to judge: {', '.join(OF_PAYERS)}. [default: each whose control passes]",
        metavar="DIALECTS",
        read=dialects_in,
    )
    takes_no: tuple[Bound, ...] = flag(
        f"Bounds of a task that the payer's interface does not take, as of a client library: "
        f"{', '.join(Bound)}. What breaks only these is observed.",
        metavar="BOUNDS",
        read=one_of(tuple(Bound), "bounds"),
        unset=(),
    )
    patience: float = patience_flag("start", PATIENCE_S)
    wait: float | None = wait_flag("With --url: seconds until somebody answers, at most.")


def _read(words: Sequence[Any], flags: Mapping[str, Any]) -> PayerOptions:
    """Return the options; `words` are the command, or a function that buys. Raises `ValueError`."""
    chosen = read(PayerOptions, flags)
    url = chosen.get("url")
    if bool(words) == bool(url):
        raise ValueError(
            "give the command that pays, as in `x402sim conformance payer -- node agent.js`, or "
            "the --url of a payer behind HTTP"
        )
    if len(words) == 1 and str(words[0]).startswith(("http://", "https://")):
        raise ValueError(
            f"{words[0]} is no command. A payer behind HTTP: x402sim conformance payer --url "
            f"{words[0]}; a service: x402sim conformance {words[0]}; a facilitator: x402sim "
            f"conformance facilitator {words[0]}"
        )
    if "wait" in chosen and not url:
        raise ValueError("--wait is for a payer behind HTTP (--url): the judge starts a command")
    if words and callable(words[0]):
        return PayerOptions(subject=Function(words[0]), **chosen)
    values = given(PayerOptions, flags)
    return PayerOptions(
        subject=HttpPayer(url) if url else PayerCommand(tuple(words), chosen["env"]),
        rerun=again(("payer",), PayerOptions, values, behind=words),
        **chosen,
    )


def left_out(
    case: PayerCase,
    options: PayerOptions,
    broken: Mapping[Dialect, Broken],
    *,
    is_invalid: bool,
) -> CaseResult | None:
    """Return the result of an unplanned case; None in a flow that is not judged."""
    dialects, found = options.dialects, broken.get(case.dialect)
    if case.gate and found is None and (not dialects or case.dialect in dialects):
        return skipped(case, NotApplicable(ONE_THING))
    if found is not None and found.pays:
        return skipped(case, NotApplicable(f"its control has failed: {found.why}"))
    if found is not None and (dialects is not None or (is_invalid and case.is_control)):
        evidence = found.exchanges if case.is_control else ()
        return unclear(case, f"it buys nothing at an honest shop: {found.why}", evidence)
    return None


def is_open(case: PayerCase, passed: Collection[str]) -> bool:
    """Tell whether a case applies; a gate always applies to itself."""
    return not case.gate or case.gate in passed or case.played_as == case.gate


def _controls(flows: Collection[Dialect]) -> list[PayerCase]:
    return [case for case in all_cases() if case.is_control and case.dialect in flows]


@asynccontextmanager
async def begin(
    options: PayerOptions, cases: Sequence[PayerCase], tell: Tell
) -> AsyncIterator[Judging[PayerCase]]:
    """Try the controls, and plan; raises `NotReady` if the payer cannot be started."""
    if options.url and options.wait:
        async with httpx.AsyncClient(trust_env=False) as http:
            if why := await until_url_answers(http, options.url, options.wait, tell):
                raise NotReady(in_vain(options.url, why, options.wait))
    judge = PayerJudge(
        payer=options.subject,
        network=options.network,
        seed=options.seed,
        patience_s=options.patience,
        takes_no=frozenset(options.takes_no),
        tell=once(tell),
    )
    if options.jobs is not None:
        judge = replace(judge, jobs=options.jobs)
    wanted = {case.dialect for case in cases} & set(options.dialects or OF_PAYERS)
    with ThreadPoolExecutor(64) as threads:  # a payer that is a function may hold one for long
        asyncio.get_running_loop().set_default_executor(threads)
        try:
            broken = await judge.controls(_controls(wanted))
            is_invalid = broken.keys() == wanted
            means = options.dialects is not None or is_invalid  # else the flow may be unsupported
            failed = {flow for flow, each in broken.items() if each.pays or (each.tries and means)}
            planned = await _planned(judge, cases, wanted - broken.keys(), failed)
            unplayed = {
                case: result
                for case in cases
                if case not in planned
                and (result := left_out(case, options, broken, is_invalid=is_invalid))
            }
            yield Judging(
                judge=judge,
                cases=[case for case in cases if case in planned or case in unplayed],
                rerun=options.rerun,
                left_out=unplayed.__getitem__,
                done=lambda: counted(judge.starts, "start"),
                plan=_plan(judge, planned, broken, {case.dialect for case in unplayed}),
            )
        except OtherWallet as other:
            raise NotReady(str(other)) from None
        except OSError as wrong:
            raise NotReady(f"{options.shown} cannot be started: {wrong.strerror}") from wrong


async def _planned(
    judge: PayerJudge,
    cases: Sequence[PayerCase],
    passed: Collection[Dialect],
    failed: Collection[Dialect],
) -> list[PayerCase]:
    """Return the cases to play: of flows with a passed control, the cases whose gate passes, too.

    Of flows with a failed control, only the control is played.
    """
    judged = [
        case
        for case in cases
        if case.dialect in passed or (case.is_control and case.dialect in failed)
    ]
    needed = {case.gate for case in judged if case.gate}
    gates = {case.gate: case for case in all_cases() if case.played_as in needed}
    passed_gates = await judge.passed([*gates.values()])
    return [case for case in judged if is_open(case, passed_gates)]


def seconds_of(judge: PayerJudge, cases: Collection[PayerCase]) -> float:
    """Return the seconds for the plays of these cases, one play each.

    The bounds are the cores, the number of plays at once, and the longest wait. A payer's own
    timeouts are unknown, and do not count.
    """
    starts = sum(min(each.starts, _STARTS) for each in cases)
    busy_s = (starts * judge.start_cpu_s + len(cases) * _OWN_S) / (os.cpu_count() or 1)
    waits_s = max((each.waits_s for each in cases if not _ends_by_payer(judge, each)), default=0)
    at_once_s = starts * judge.start_s / judge.jobs
    return max(busy_s, at_once_s, waits_s) + 2 * judge.start_s  # the last play, and the controls


def _ends_by_payer(judge: PayerJudge, case: PayerCase) -> bool:
    """Tell whether only the payer's own timeout ends a play before the judge's patience does."""
    return case.waits_s >= judge.patience_s


def _plan(
    judge: PayerJudge,
    mine: Sequence[PayerCase],
    broken: Mapping[Dialect, Broken],
    told: Collection[Dialect],
) -> Plan:
    """Return the plan; a flow with a result in `told` is not reported as unspoken."""
    why = {flow: each.why for flow, each in broken.items()}
    if broken and not mine:
        return Plan(lines=(INVALID.format(why_each(why)),))
    plays = {case.played_as: case for case in mine}.values()
    seconds = seconds_of(judge, plays)
    endless = sum(_ends_by_payer(judge, each) for each in plays)
    cores = os.cpu_count() or 1
    cpu = f" and {judge.start_cpu_s:.2g} s of CPU" if judge.start_cpu_s else ""
    alone = f": they alone end {counted(endless, 'play')}, side by side" if endless else ""
    ids = len({case.id for case in mine})
    lines = [
        f"Plan: {counted(ids, 'id')} in {counted(len(plays), 'play')}, each in a world of "
        f"its own, {judge.jobs} at once on {cores} cores: about {seconds:.0f} s, as a start takes "
        f"{judge.start_s:.2g} s{cpu}. What fails is played again. Time-outs of the payer come on "
        f"top{alone}; a start is ended after {judge.patience_s:g} s"
    ]
    lines += [f"Not judged: {flow.about} ({flow}): {text}" for flow, text in why.items()]
    unspoken = {str(flow): text for flow, text in why.items() if flow not in told}
    return Plan(cases=mine, lines=tuple(lines), seconds=seconds, unspoken=unspoken)


PAYER: Subject[PayerOptions] = Subject(
    name="payer",
    words="-- COMMAND…",
    words_help="The command that buys once, as the guide's page 'Judge your payer' says.",
    help="Judge a payer or an agent: does it pay once, the right amount, to the right payee?\n\n"
    "Example: x402sim conformance payer -- node agent.js",
    options=PayerOptions,
    read=_read,
    cases=all_cases,
    documents=beginnings("payer"),
    sections=SECTIONS,
    begin=begin,
)


async def _judged(buy: Buy, cases: Sequence[PayerCase]) -> CaseResults[PayerCase]:
    judge, first = PayerJudge(payer=Function(buy)), cases[0]
    if not is_open(first, ()):
        gate = next(case for case in all_cases() if case.played_as == first.gate)
        if not is_open(first, await judge.passed([gate])):
            return [(case, skipped(case, NotApplicable(ONE_THING))) for case in cases]
    return [each async for each in judge.played(cases, lambda check_id: None)]


def plays(
    dialects: str = "v2", only: str | Sequence[str] = (), *, strict: bool = False
) -> list[CaseOfTest]:
    """Return the plays in these dialects, separated by commas; `only` as on the command line.

    Raises `ValueError` for an unknown dialect or id.
    """
    wanted, found = dialects_in(dialects), chosen(all_cases(), only, PAYER.documents)
    return [CaseOfTest(cases, _judged, strict) for cases in found if cases[0].dialect in wanted]
