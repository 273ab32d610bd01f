"""A payer or an agent, as the subject of a judgement: a command, or an HTTP door."""

import asyncio
import functools
import os
import runpy
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from x402sim.protocol.networks import NETWORKS, network_named
from x402sim.report.results import CaseResult, Outcome, Result
from x402sim.spec.folder import folder
from x402sim.suite.case import doubted, of_id
from x402sim.suite.options import again, flag, given, read
from x402sim.suite.payer.case import DOCUMENTS, PayerCase, Row, table
from x402sim.suite.payer.judge import PATIENCE_S, Judge, OtherWallet, unclear
from x402sim.suite.payer.shop import Way
from x402sim.suite.payer.start import Command, Door, Payer
from x402sim.suite.subject import Plan, Subject, Tell
from x402sim.suite.verdict import NotReady

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
NOT_ITS_WAY = (
    "it is about a way of paying that this payer has not, as its control shows, or that --ways "
    "leaves out"
)
_STARTS = 1.4
"""How often a payer is started in a play, on average, as measured."""
_OWN_S = 0.05
"""What a world costs, in seconds of one core."""


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return the table of stories, in the order of the sections."""
    found: list[Row] = []
    for file in sorted(folder("payer").glob("*.py")):
        found += runpy.run_path(str(file), run_name=file.stem)["ROWS"]
    return tuple(sorted(found, key=lambda row: [*SECTIONS].index(row.section)))


@functools.cache
def all_cases() -> tuple[PayerCase, ...]:
    """Return every case: controls first, then section by section."""
    return tuple(table(rows()))


def ways_in(text: str) -> tuple[Way, ...]:
    """Read ways of paying, separated by commas; raises `ValueError`."""
    try:
        return tuple(Way(each.strip()) for each in text.split(","))
    except ValueError as wrong:
        raise ValueError(f"ways are {', '.join(Way)}; {wrong}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerOptions:
    """What a user has chosen for the judgement of a payer."""

    payer: Payer
    rerun: str = ""
    require: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    url: str | None = flag("URL that each task is posted to: a payer behind HTTP.", metavar="URL")
    ways: tuple[Way, ...] | None = flag(
        f"Ways of paying to judge: {', '.join(Way)}; by default those whose control it passes.",
        metavar="WAYS",
        read=ways_in,
    )
    network: str = flag(
        "Network it pays on.", unset="base-sepolia", default="base-sepolia", metavar="NAME"
    )
    seed: int = flag("Random seed of keys and goods.", kind=int, unset=0, default=0, metavar="N")
    patience: float = flag(
        "Seconds that one start may take.",
        kind=float,
        unset=PATIENCE_S,
        default=PATIENCE_S,
        metavar="SECONDS",
    )
    jobs: int | None = flag(
        "Plays side by side; by default two for each core.", kind=int, metavar="N"
    )

    @property
    def shown(self) -> str:
        """What reports call the payer."""
        return self.payer.shown


def _read(words: Sequence[str], flags: Mapping[str, Any]) -> PayerOptions:
    """Return the options; `words` are the command. Raises `ValueError`."""
    chosen = read(PayerOptions, flags)
    url = chosen.get("url")
    if bool(words) == bool(url):
        raise ValueError(
            "give the command that pays, as in `x402sim conformance payer -- node agent.js`, or "
            "the --url of a payer behind HTTP"
        )
    if len(words) == 1 and words[0].startswith(("http://", "https://")):
        raise ValueError(
            f"{words[0]} is no command. A payer behind HTTP: x402sim conformance payer --url "
            f"{words[0]}; a service: x402sim conformance {words[0]}; a facilitator: x402sim "
            f"conformance facilitator {words[0]}"
        )
    network_named(chosen["network"], NETWORKS)
    values = given(PayerOptions, flags)
    return PayerOptions(
        payer=Door(url) if url else Command(tuple(words)),
        rerun=again(("payer",), PayerOptions, values),
        **chosen,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class PayerJudging:
    """A payer that can be judged, in the ways whose control it has passed."""

    judge: Judge
    cases: Sequence[PayerCase]
    options: PayerOptions
    broken: Mapping[Way, str]
    plan: Plan

    async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        """Play the cases; yield each result, those that held when the controls worked again."""
        judged = self.plan.ids
        runnable = [case for case in self.cases if case.id in judged]
        waiting: list[tuple[PayerCase, Result]] = []
        for case in self.cases:
            ways = self.options.ways
            if case in runnable:
                continue
            if ways is not None and case.way in ways:
                yield self._of(case, unclear(case, f"it buys nothing: {self.broken[case.way]}"))
            else:
                yield self._of(case, not_its_way(case))
        async for case, found in self.judge.run(runnable, on_begin):
            result = self._of(case, found)
            if found.outcome is Outcome.FAILED:
                yield result
            else:
                waiting.append((case, result))
        after = await self.judge.controls(_controls([case.way for case in runnable]), " after")
        said = {case.id: after.get(case.way) for case in _controls(list(Way))}
        for case, result in waiting:
            yield doubted(
                result, case.controls, said, "its control, played again at the end, failed"
            )

    def _of(self, case: PayerCase, found: CaseResult) -> Result:
        result = of_id([case], {case: found}, self.options.rerun)
        rerun = f"{self.options.rerun} --only {case.id}"
        if isinstance(self.options.payer, Command):
            rerun += f" -- {shlex.join(self.options.payer.words)}"
        return msgspec.structs.replace(result, rerun=rerun)

    def done(self) -> str:
        """Return how often the payer was started."""
        return f"{self.judge.starts} starts"

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Return nothing: what was not judged is among the results."""
        return [], []


def not_its_way(case: PayerCase) -> CaseResult:
    """Return the result of a case in a way of paying that is not judged."""
    return CaseResult(
        title=case.title,
        ground=case.ground,
        outcome=Outcome.SKIPPED,
        reason=NOT_ITS_WAY,
        applies=False,
    )


def _controls(ways: Sequence[Way]) -> list[PayerCase]:
    return [case for case in all_cases() if case.is_control and case.way in ways]


@asynccontextmanager
async def begin(
    options: PayerOptions, cases: Sequence[PayerCase], tell: Tell
) -> AsyncIterator[PayerJudging]:
    """Try the controls, and plan; raises `NotReady` for a payer that buys nothing."""
    judge = Judge(
        payer=options.payer,
        network=network_named(options.network),
        seed=options.seed,
        patience_s=options.patience,
    )
    if options.jobs is not None:
        judge = replace(judge, jobs=options.jobs)
    wanted = {case.way for case in cases} & set(options.ways or Way)
    with ThreadPoolExecutor(64) as threads:  # a function that pays may hold one for long
        asyncio.get_running_loop().set_default_executor(threads)
        try:
            broken = await judge.controls(_controls([way for way in Way if way in wanted]))
            if broken.keys() == wanted:
                raise NotReady(_invalid(options, broken))
            yield PayerJudging(
                judge=judge,
                cases=cases,
                options=options,
                broken=broken,
                plan=_plan(judge, cases, wanted - broken.keys(), broken),
            )
        except OtherWallet as other:
            raise NotReady(str(other)) from None
        except OSError as wrong:
            raise NotReady(f"{options.shown} cannot be started: {wrong}") from wrong


def _invalid(options: PayerOptions, broken: Mapping[Way, str]) -> str:
    whys = "; ".join(f"{way}: {why}" for way, why in broken.items())
    return (
        f"{options.shown} buys nothing at an honest shop, so nothing can be said of it. {whys}. "
        "The guide, `Judging payers`, says what it gets and what it is to print"
    )


def _plan(
    judge: Judge, cases: Sequence[PayerCase], ways: set[Way], broken: Mapping[Way, str]
) -> Plan:
    mine = [case for case in cases if case.way in ways]
    plays = {case.played_as: case for case in mine}
    busy_s = len(plays) * (_STARTS * judge.start_s + _OWN_S) / judge.jobs
    waits_s = max((min(each.waits_s, judge.patience_s) for each in plays.values()), default=0)
    seconds = busy_s + waits_s
    cores = os.cpu_count() or 1
    lines = [
        f"Plan: {len(mine)} ids in {len(plays)} plays, each in a world of its own, {judge.jobs} at "
        f"once on {cores} cores: about {seconds:.0f} s, as a start takes {judge.start_s:.1f} s. "
        "What fails is played again. Time-outs of the payer come on top: up to "
        f"{judge.patience_s:g} s a start"
    ]
    lines += [f"Not judged: {way.about} ({way}): {why}" for way, why in broken.items()]
    return Plan(ids=tuple(case.id for case in mine), lines=tuple(lines), seconds=seconds)


PAYER: Subject[PayerOptions] = Subject(
    name="payer",
    words="-- COMMAND…",
    words_help="The command that buys once, as the guide says: `x402sim open guide`.",
    help="Judge a payer or an agent: does it pay once, what it should, and only there?",
    options=PayerOptions,
    read=_read,
    cases=all_cases,
    documents=tuple(dict.fromkeys(DOCUMENTS.values())),
    sections=SECTIONS,
    begin=begin,
    uncounted=NOT_ITS_WAY,
)
