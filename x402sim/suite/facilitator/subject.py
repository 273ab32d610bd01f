"""A facilitator, as the subject of a judgement: a command that is started, or one that runs."""

import functools
import os
import runpy
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from x402sim.chain.base import ChainError
from x402sim.protocol.networks import NETWORKS, network_named
from x402sim.report.results import CaseResult, Result
from x402sim.rng import Rng
from x402sim.spec.folder import folder
from x402sim.spec.needs import Need
from x402sim.suite.case import of_id
from x402sim.suite.facilitator.case import DOCUMENTS, FacilitatorCase, Row, table
from x402sim.suite.facilitator.judge import BATCH, PATIENCE_S, Judge
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, Room
from x402sim.suite.facilitator.start import DEFAULT_URL, AtUrl, Command, Facilitator
from x402sim.suite.options import again, flag, given, read
from x402sim.suite.played import skipped, unclear
from x402sim.suite.subject import Plan, Subject, Tell
from x402sim.suite.verdict import NotReady

SECTIONS = {
    "control": "What must work",
    "fields": "Fields that are wrong, missing or said twice",
    "spelling": "Spellings of values",
    "domain": "What was signed for: token, chain, name, version",
    "signature": "Signatures",
    "window": "Windows of time",
    "body": "Bodies that are no requests",
    "supported": "What it says that it settles, and lists",
    "answer": "The form of answers",
    "nonce": "Used, cancelled and racing nonces",
    "again": "The same payment again",
    "balance": "Balances",
    "many": "Many settlements at once, and jams",
    "node": "A node that fails, lies or is late",
    "chain": "Reorganisations, dropped and replaced transactions",
    "token": "Tokens that are not what they seem",
    "wallet": "Wallets that are contracts",
}
NOT_ITS_DIALECT = (
    "it is in a dialect that this facilitator does not speak, as its control shows, or that "
    "--dialects leaves out"
)
_PAYMENTS, _STARTS = 2.5, 10
"""How many good payments a play takes as long as, and how often it is started, as measured."""
BLIND = (
    "it needs a chain of ours: give --start COMMAND, or the --rpc address that the facilitator "
    "uses as its node"
)


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return the table of rows, in the order of the sections."""
    found: list[Row] = []
    for file in sorted(folder("facilitator").glob("*.py")):
        found += runpy.run_path(str(file), run_name=file.stem)["ROWS"]
    return tuple(sorted(found, key=lambda row: [*SECTIONS].index(row.section)))


@functools.cache
def all_cases() -> tuple[FacilitatorCase, ...]:
    """Return every case: controls first, then section by section."""
    return tuple(table(rows()))


def dialects_in(text: str) -> tuple[Dialect, ...]:
    """Read dialects, separated by commas; raises `ValueError`."""
    try:
        return tuple(Dialect(each.strip()) for each in text.split(","))
    except ValueError as wrong:
        raise ValueError(f"dialects are {', '.join(Dialect)}; {wrong}") from None


def _command(text: str) -> tuple[str, ...]:
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError('give a command, as in --start "node facilitator.js"')
    return words


def _address(text: str) -> int:
    parts = urlsplit(text)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost") or not parts.port:
        raise ValueError(
            f"{text} is no address that the judge can serve its chain at: give "
            "http://127.0.0.1:PORT with a free port, and let the facilitator use it as its node"
        )
    return parts.port


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorOptions:
    """What a user has chosen for the judgement of a facilitator."""

    facilitator: Facilitator
    rerun: str = ""
    require: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    start: tuple[str, ...] | None = flag(
        "Command that starts it; the judge gives it PORT, RPC_URL and the relayer's PRIVATE_KEY, "
        "as often as it needs one.",
        metavar="COMMAND",
        read=_command,
    )
    rpc: int | None = flag(
        "Of one that runs already: the address, http://127.0.0.1:PORT, at which it looks for its "
        "node. The judge serves its chain there.",
        metavar="URL",
        read=_address,
    )
    dialects: tuple[Dialect, ...] | None = flag(
        f"Dialects to judge: {', '.join(Dialect)}; by default those whose control it passes.",
        metavar="WAYS",
        read=dialects_in,
    )
    network: str = flag(
        "Network it settles on.", unset="base-sepolia", default="base-sepolia", metavar="NAME"
    )
    seed: int = flag("Random seed of keys and nonces.", kind=int, unset=0, default=0, metavar="N")
    patience: float = flag(
        "Seconds that one answer may take.",
        kind=float,
        unset=PATIENCE_S,
        default=PATIENCE_S,
        metavar="SECONDS",
    )
    jobs: int | None = flag(
        "Rooms side by side, each with a facilitator; by default one for each core.",
        kind=int,
        metavar="N",
    )

    @property
    def shown(self) -> str:
        """What reports call the facilitator."""
        return self.facilitator.shown

    @property
    def is_blind(self) -> bool:
        """Whether it has a node that the judge sees nothing of."""
        return self.start is None and self.rpc is None and isinstance(self.facilitator, AtUrl)


def _read(words: Sequence[str], flags: Mapping[str, Any]) -> FacilitatorOptions:
    """Return the options; `words` are the URL, if it is given. Raises `ValueError`."""
    chosen = read(FacilitatorOptions, flags)
    url = words[0].rstrip("/") if words else ""
    command = chosen.get("start")
    if len(words) > 1 or (url and not url.startswith(("http://", "https://"))):
        raise ValueError(
            f"{shlex.join(words)} is no URL. A facilitator that the judge is to start: "
            f"x402sim conformance facilitator --start {shlex.quote(shlex.join(words))}"
        )
    if not url and not command:
        raise ValueError(
            "give the command that starts it, as in `x402sim conformance facilitator --start "
            '"node facilitator.js"`, or the URL of one that runs'
        )
    if command and chosen.get("rpc"):
        raise ValueError(
            "--rpc is for one that runs already: one that the judge starts gets RPC_URL"
        )
    network_named(chosen["network"], NETWORKS)
    values = given(FacilitatorOptions, flags)
    facilitator: Facilitator = AtUrl(url)
    if command:
        facilitator = Command(command, url or DEFAULT_URL, shown=flags["start"])
    return FacilitatorOptions(
        facilitator=facilitator,
        rerun=again(("facilitator", *([url] if url else [])), FacilitatorOptions, values),
        **chosen,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class FacilitatorJudging:
    """A facilitator that can be judged, in the dialects whose control it has passed."""

    judge: Judge
    cases: Sequence[FacilitatorCase]
    options: FacilitatorOptions
    broken: Mapping[Dialect, str]
    plan: Plan

    async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        """Play the cases; yield each result."""
        judged = set(self.plan.ids)
        for case in self.cases:
            if case.id in judged:
                continue
            dialects = self.options.dialects
            if self.options.is_blind and case.needs:
                yield self._of(case, skipped(case, BLIND, lacks=True))
            elif dialects is not None and case.dialect in dialects:
                why = f"a good payment fails: {self.broken[case.dialect]}"
                yield self._of(case, unclear(case, why))
            else:
                yield self._of(case, skipped(case, NOT_ITS_DIALECT, lacks=False))
        runnable = [case for case in self.cases if case.id in judged]
        async for case, found in self.judge.run(runnable, on_begin):
            yield self._of(case, found)

    def _of(self, case: FacilitatorCase, found: CaseResult) -> Result:
        return of_id([case], {case: found}, self.options.rerun)

    def done(self) -> str:
        """Return how much was done."""
        return f"{self.judge.plays} plays, {self.judge.starts} starts of the facilitator"

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Nothing is left to be told."""
        return [], []


@asynccontextmanager
async def begin(
    options: FacilitatorOptions, cases: Sequence[FacilitatorCase], tell: Tell
) -> AsyncIterator[FacilitatorJudging]:
    """Start it, make a good payment in each dialect, and plan; raises `NotReady`."""
    judge = Judge(
        facilitator=options.facilitator,
        network=network_named(options.network),
        seed=options.seed,
        patience_s=options.patience,
        port=options.rpc or 0,
        is_blind=options.is_blind,
    )
    if options.jobs is not None:
        judge.jobs = options.jobs
        judge.__post_init__()
    if options.rpc:
        tell(f"the chain is at http://127.0.0.1:{options.rpc}; waiting for {options.shown}")
    wanted = [dialect for dialect in Dialect if dialect in (options.dialects or Dialect)]
    wanted = [dialect for dialect in wanted if any(case.dialect is dialect for case in cases)]
    try:
        room = await judge.room(PLAIN)
        broken = await controls(judge, room, wanted)
        if len(broken) == len(wanted):
            raise NotReady(_invalid(options, broken))
        judge.dialects = tuple(dialect for dialect in wanted if dialect not in broken)
        await judge.leave(room, keep=True)
        yield FacilitatorJudging(
            judge=judge,
            cases=cases,
            options=options,
            broken=broken,
            plan=_plan(judge, options, cases, broken),
        )
    except OSError as wrong:
        raise NotReady(f"{options.shown}: {wrong}") from wrong
    except ChainError as wrong:
        raise NotReady(str(wrong)) from wrong
    finally:
        await judge.close()


async def controls(judge: Judge, room: Room, dialects: Sequence[Dialect]) -> dict[Dialect, str]:
    """Make a good payment in each dialect; return why a dialect's fails."""
    broken = {}
    for dialect in dialects:
        play = await _asking(judge, room, dialect)
        supported = await play.get(dialect.supported_path)
        if supported.status != 200:
            broken[dialect] = f"GET {dialect.supported_path}: {supported.how}"
        elif wrong := await judge.sound(room, [dialect]):
            broken[dialect] = wrong
    return broken


async def _asking(judge: Judge, room: Room, dialect: Dialect) -> Play:
    return await Play(
        room=room,
        dialect=dialect,
        rng=Rng(judge.seed),
        name=f"supported {dialect}",
        patience_s=judge.patience_s,
    ).begin()


def _invalid(options: FacilitatorOptions, broken: Mapping[Dialect, str]) -> str:
    whys = "; ".join(f"{dialect}: {why}" for dialect, why in broken.items())
    return (
        f"{options.shown} settles no good payment, so nothing can be said of it. {whys}. "
        "The guide, `Judge your facilitator`, says what it gets and what it is to answer"
    )


def _plan(
    judge: Judge,
    options: FacilitatorOptions,
    cases: Sequence[FacilitatorCase],
    broken: Mapping[Dialect, str],
) -> Plan:
    mine = [case for case in cases if case.dialect in judge.dialects]
    if options.is_blind:
        mine = [case for case in mine if Need.OBSERVE_CHAIN not in case.needs]
    plays = {case.played_as: case for case in mine}
    shared = sum(case.floor.is_shared for case in plays.values())
    waits_s = max((min(each.waits_s, judge.patience_s) for each in plays.values()), default=0)
    busy_s = (
        len(plays) * _PAYMENTS * judge.control_s
        + min(_STARTS, 1 + len(plays) // BATCH) * judge.start_s
    )
    seconds = busy_s / judge.jobs + waits_s
    cores = os.cpu_count() or 1
    lines = [
        f"Plan: {len(mine)} ids in {len(plays)} plays, {shared} of them {BATCH} to a room, "
        f"{judge.jobs} at once on {cores} cores: about {seconds:.0f} s, as a start takes "
        f"{judge.start_s:.1f} s. What fails is played again. Time-outs of the facilitator come on "
        f"top: up to {judge.patience_s:g} s an answer"
    ]
    if judge.is_fixed:
        lines.append(
            f"One world, in turn: {options.shown} runs already, and cannot be started anew"
        )
    elif judge.facilitator.most_at_once:
        lines.append("One at a time: its port is fixed; {port} in the URL stands for any")
    lines += [f"Not judged: {dialect.about} ({dialect}): {why}" for dialect, why in broken.items()]
    return Plan(ids=tuple(case.id for case in mine), lines=tuple(lines), seconds=seconds)


FACILITATOR: Subject[FacilitatorOptions] = Subject(
    name="facilitator",
    words="[URL]",
    words_help="Base URL of one that runs; with --start where it listens, {port} for its port.",
    help="Judge a facilitator: does it verify and settle what it should, once, and nothing else?",
    options=FacilitatorOptions,
    read=_read,
    cases=all_cases,
    documents=tuple(dict.fromkeys(DOCUMENTS.values())),
    sections=SECTIONS,
    begin=begin,
    uncounted=NOT_ITS_DIALECT,
)
