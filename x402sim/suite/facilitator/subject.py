"""A facilitator as a subject: a command for the judge to start, or a running facilitator.

The module has the control (a good payment that is verified and settled), the flags, the plan, and
plays as tests.
"""

import asyncio
import math
import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

from x402sim.chain.base import ChainError
from x402sim.clock import stopwatch
from x402sim.spec.needs import Need
from x402sim.suite import rooms
from x402sim.suite.dialect import OF_FACILITATORS, Dialect
from x402sim.suite.engine import Judging, Plan, Played, skipped, unclear
from x402sim.suite.facilitator.case import is_paid, tokens
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import (
    DEFAULT_URL,
    PLAIN,
    AtUrl,
    ChainRoomKind,
    Facilitator,
    FacilitatorRoom,
    Make,
    facilitator_command,
    opened,
)
from x402sim.suite.fixture import CaseOfTest, chosen
from x402sim.suite.options import (
    OfJudge,
    again,
    command_like,
    flag,
    given,
    one_of,
    port_for,
    read,
)
from x402sim.suite.report.results import CaseResult
from x402sim.suite.rooms import BATCH, ControlPlay, RoomResults, in_rooms
from x402sim.suite.row import RoomCase, beginnings, cases_of, rows_of
from x402sim.suite.started import START_S, WAIT_S, App
from x402sim.suite.subject import Subject, Tell, once
from x402sim.suite.verdict import Inconclusive, Lacking, Violation
from x402sim.text.keys import keyless
from x402sim.text.words import counted

LEAST_S, TIMES = 3.0, 20
"""The limit for a good payment: the least seconds, and a multiple of the first one's duration."""


@dataclass(slots=True, kw_only=True, eq=False)
class FacilitatorJudge(rooms.RoomJudge[FacilitatorRoom, Play]):
    """One judgement of one facilitator."""

    plain: ClassVar[ChainRoomKind] = PLAIN
    beside: ClassVar[int] = 8
    after: ClassVar[Violation] = Violation(demand="settles-afterwards", actual="")

    is_blind: bool = False
    """Whether the judge does not see the facilitator's node: no payment of ours can be good."""
    thefts: dict[str, Violation] = field(default_factory=dict)
    """By play: transfers without a payment."""
    control_s: float = 0
    """Seconds of a good payment, verified and settled."""
    payments_s: list[float] = field(default_factory=list)
    """Seconds of a good payment after the first, in each dialect."""

    async def open(self, kind: ChainRoomKind, name: str) -> FacilitatorRoom:
        """Open a room; on an anvil, make a good payment first.

        A jam in the room before any play would be no finding of a case. Raises `ChainError` and
        `NotReady`.
        """
        room = await opened(
            self.subject, kind, self.network, self.seed, name, self.patience_s, self.port
        )
        dialects = self.dialects[:1]
        try:
            wrong = await self.try_good_payment(room, dialects) if kind.chain == "anvil" else ""
            if wrong and not await room.strays(0):  # strays fail the room's plays
                raise ChainError(f"on anvil, whose token is OpenZeppelin's, it fails: {wrong}")
        except BaseException:
            await asyncio.shield(room.close())
            raise
        return room

    async def played(self, group: Sequence[RoomCase], room: FacilitatorRoom) -> Played[RoomCase]:
        """Play a play; a transfer past the node fails a MUST of the play, without a second play."""
        played, name = await rooms.RoomJudge.played(self, group, room), group[0].played_as
        if strays := await room.strays(played.play.since):
            base = sum(each.amount_base for each in strays)
            self.thefts[name] = Violation(
                demand="refused-is-not-moved",
                actual=f"{counted(len(strays), 'transfer')} of {base} base units, in transactions "
                "that its node was never given",
                loss=tokens(room, base, "moved without a payment"),
            )
        musts = [case for case in group if case.level == "MUST"]
        if name not in self.thefts or not musts:
            return played
        found = {**played.found, musts[0]: self.thefts[name]}
        return replace(played, found=found)

    def with_end(self, played: Played[RoomCase], room: FacilitatorRoom) -> Played[RoomCase]:
        """Return a play during which the facilitator ended: a theft before the end is a finding."""
        ended = rooms.RoomJudge.with_end(self, played, room)
        if ended is played:
            return played
        thefts = {case: its for case, its in played.found.items() if its in self.thefts.values()}
        return replace(ended, found=thefts)

    def play(self, room: FacilitatorRoom, dialect: Dialect, name: str, patience_s: float) -> Play:
        """Return a play in a room."""
        return Play(room=room, dialect=dialect, name=name, patience_s=patience_s)

    async def try_good_payment(
        self, room: FacilitatorRoom, dialects: Sequence[Dialect] = ()
    ) -> str:
        """Make a good payment in each dialect; return why a payment fails, "" if all settle."""
        if self.is_blind:
            return ""
        for dialect in dialects or self.dialects:
            elapsed, most_s = stopwatch(), self.patience_s
            if self.control_s:
                most_s = min(most_s, max(LEAST_S, math.ceil(TIMES * self.control_s)))
            most_s += room.kind.block_s or 0
            play = await self.begun(room, dialect, "control", most_s)
            wrong = is_paid(play, await play.tried(await play.draft()))
            if wrong is not None:
                return f"a good payment ({dialect}): {wrong.actual}"
            self.control_s = self.control_s or elapsed()
        return ""


SECTIONS = {
    "control": "What must work",
    "fields": "Fields that are wrong, missing or given twice",
    "spelling": "Spellings of values",
    "domain": "What was signed for: token, chain, name, version",
    "signature": "Signatures",
    "window": "Windows of time",
    "body": "Bodies that are no requests",
    "supported": "GET /supported: the kinds listed and settled",
    "answer": "The form of answers",
    "nonce": "Used, cancelled and racing nonces",
    "again": "The same payment again",
    "balance": "Balances",
    "many": "Many settlements at once, and jams",
    "node": "A node that fails, lies or is late",
    "chain": "Reorganisations, dropped and replaced transactions",
    "token": "Tokens with odd contracts",
    "wallet": "Wallets that are contracts",
}
MEASURED = 4
"""The number of good payments measured to learn the time of one."""
_PAYMENTS, _STARTS = 4, 18
"""As measured: the good payments that take as long as a play, and the most starts of a run."""
BLIND = (
    "it needs a chain of ours: give --start COMMAND, or the --rpc address that the facilitator "
    "uses as its node"
)


dialects_in = one_of(OF_FACILITATORS, "dialects")
"""Reads dialects, separated by commas; raises `ValueError`."""


rows = partial(rows_of, "facilitator", *SECTIONS)
"""Returns the table of rows, in the order of the sections."""
all_cases = partial(cases_of, "facilitator", *SECTIONS)
"""Returns every case: controls first, then section by section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorOptions(OfJudge):
    """The user's options for the judgement of a facilitator."""

    subject: Facilitator
    start: tuple[str, ...] | None = flag(
        "Command that starts a facilitator; the judge sets PORT, RPC_URL and PRIVATE_KEY.",
        metavar="COMMAND",
        read=command_like("node facilitator.js"),
    )
    rpc: int | None = flag(
        "Node of a facilitator that runs already, http://127.0.0.1:PORT: the judge serves the "
        "chain there.",
        metavar="URL",
        read=port_for("its chain", "let the facilitator use it as its node"),
    )
    dialects: tuple[Dialect, ...] | None = flag(
        f"Dialects to judge: {', '.join(OF_FACILITATORS)}. [default: each whose control passes]",
        metavar="DIALECTS",
        read=dialects_in,
    )

    @property
    def is_blind(self) -> bool:
        """Whether the facilitator uses a node that the judge cannot see."""
        return self.start is None and self.rpc is None and isinstance(self.subject, AtUrl)


def _read(words: Sequence[str], flags: Mapping[str, Any]) -> FacilitatorOptions:
    """Return the options; `words` are the URL, if given. Raises `ValueError`."""
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
            "give the command that starts the facilitator, as in `x402sim conformance facilitator "
            '--start "node facilitator.js"`, or the URL of a running facilitator'
        )
    if command and chosen.get("rpc"):
        raise ValueError(
            "--rpc is for a facilitator that runs already; if the judge starts the facilitator, "
            "the judge sets RPC_URL"
        )
    values = given(FacilitatorOptions, flags)
    facilitator: Facilitator = AtUrl(url, chosen.get("wait", WAIT_S))
    if command:
        wait_s = chosen.get("wait", START_S)
        facilitator = facilitator_command(
            command,
            url or DEFAULT_URL,
            shown=keyless(flags["start"]),
            wait_s=wait_s,
            also=chosen["env"],
        )
    return FacilitatorOptions(
        subject=facilitator,
        rerun=again(("facilitator", *([url] if url else [])), FacilitatorOptions, values),
        **chosen,
    )


@asynccontextmanager
async def begin(
    options: FacilitatorOptions, cases: Sequence[RoomCase], tell: Tell
) -> AsyncIterator[Judging[RoomCase]]:
    """Start the facilitator, make a good payment in each dialect, and plan; raises `NotReady`."""
    subject = options.subject
    if isinstance(subject, AtUrl):
        subject = replace(subject, tell=tell)
    judge = FacilitatorJudge(
        subject=subject,
        network=options.network,
        seed=options.seed,
        patience_s=options.patience,
        port=options.rpc or 0,
        is_blind=options.is_blind,
        jobs=options.jobs or 0,
        tell=once(tell),
    )
    if options.rpc:
        tell(f"the chain is at http://127.0.0.1:{options.rpc}")
    wanted = [
        dialect for dialect in OF_FACILITATORS if dialect in (options.dialects or OF_FACILITATORS)
    ]
    wanted = [dialect for dialect in wanted if any(case.dialect is dialect for case in cases)]

    def left_out(case: RoomCase, broken: Mapping[Dialect, str]) -> CaseResult | None:
        is_asked = options.dialects is not None and case.dialect in options.dialects
        if options.is_blind and case.needs and (is_asked or case.dialect in judge.dialects):
            return skipped(case, Lacking(BLIND))
        if is_asked:
            return unclear(case, f"a good payment fails: {broken[case.dialect]}")
        return None

    async with in_rooms(
        judge,
        options,
        cases,
        wanted,
        control=lambda room, dialect: _control(judge, room, dialect),
        left_out=left_out,
        plan=lambda broken: _plan(judge, options, cases, broken),
        invalid=lambda why: (
            "settles no good payment, so there is nothing to judge. "
            f"{why}. The guide, `Judge your facilitator`, lists the requests and the wanted answers"
        ),
    ) as judging:
        yield judging


async def _control(judge: FacilitatorJudge, room: FacilitatorRoom, dialect: Dialect) -> ControlPlay:
    """Settle a good payment, and measure further payments; return why a payment fails."""
    play = await judge.begun(room, dialect, "supported")
    supported = await play.get(dialect.supported_path)
    if supported.status != 200:
        return ControlPlay(why=f"GET {dialect.supported_path}: {supported.how}")
    if dialect is Dialect.UPTO:
        try:
            await play.facilitator()
        except Inconclusive as unlisted:
            return ControlPlay(why=str(unlisted))
    if judge.is_blind:
        return ControlPlay()
    of_control = [case for case in all_cases() if case.is_control and case.dialect is dialect]
    played = await judge.played(of_control, room)  # the first payment is the slowest
    if (wrong := played.wrong) is not None:
        payment = played.play
        assert isinstance(payment, Play)
        says_so = any(answer.succeeded for answer in payment.answers)
        is_broken = says_so or bool((await payment.money()).moved)
        why = f"a good payment ({dialect}): {wrong.actual}"
        return ControlPlay(why=why, played=played, is_broken=is_broken)
    elapsed = stopwatch()
    why = await judge.try_good_payment(room, [dialect] * MEASURED)
    judge.payments_s.append(elapsed() / MEASURED)
    return ControlPlay(why=why or played.unclear, played=played)


def _plan(
    judge: FacilitatorJudge,
    options: FacilitatorOptions,
    cases: Sequence[RoomCase],
    broken: Mapping[Dialect, str],
) -> Plan:
    planned = [case for case in cases if case.dialect in judge.dialects]
    if options.is_blind:
        planned = [case for case in planned if Need.OBSERVE_CHAIN not in case.needs]
    plays = {case.played_as: case for case in planned}
    shared = sum(case.kind.is_shared for case in plays.values())
    waits_s = max((min(each.waits_s, judge.patience_s) for each in plays.values()), default=0)
    payment_s = fmean(judge.payments_s or [0])
    busy_s = (
        len(plays) * _PAYMENTS * payment_s + min(_STARTS, 1 + len(plays) // BATCH) * judge.start_s
    )
    seconds = max(busy_s / judge.jobs, waits_s) + judge.start_s  # waiting plays begin first
    cores = os.cpu_count() or 1
    ids = len({case.id for case in planned})
    together = "" if judge.is_fixed else f", {shared} of them {BATCH} to a room"
    lines = [
        f"Plan: {counted(ids, 'id')} in {counted(len(plays), 'play')}{together}, "
        f"{judge.jobs} at once on {cores} cores: about {seconds:.0f} s, "
        f"as a start takes {judge.start_s:.1f} s. What fails is played again. Time-outs of the "
        f"facilitator come on top: up to {judge.patience_s:g} s an answer"
    ]
    if judge.is_fixed:
        lines.append(
            f"One world, in turn: {options.shown} runs already, and cannot be started anew"
        )
    elif judge.subject.is_single:
        lines.append("One at a time: its port is fixed; {port} in the URL stands for any")
    lines += [f"Not judged: {dialect.about} ({dialect}): {why}" for dialect, why in broken.items()]
    return Plan(cases=planned, lines=tuple(lines), seconds=seconds)


FACILITATOR: Subject[FacilitatorOptions] = Subject(
    name="facilitator",
    words="[URL]",
    words_help="Base URL of a running facilitator; with --start, {port} in it is the port.",
    help="Judge a facilitator: does it verify and settle each good payment, once, and no other?\n\n"
    "Example: x402sim conformance facilitator --start 'python facilitator.py'",
    options=FacilitatorOptions,
    read=_read,
    cases=all_cases,
    documents=beginnings("facilitator"),
    sections=SECTIONS,
    begin=begin,
)


async def _judged(make: Make, cases: Sequence[RoomCase]) -> RoomResults:
    return await FacilitatorJudge(subject=App(make), dialects=(cases[0].dialect,), jobs=1).every(
        cases
    )


def plays(
    dialects: str = "v2", only: str | Sequence[str] = (), *, strict: bool = False
) -> list[CaseOfTest]:
    """Return the plays in these dialects, separated by commas; `only` as on the command line.

    Raises `ValueError` for an unknown dialect or id.
    """
    wanted, found = dialects_in(dialects), chosen(all_cases(), only, FACILITATOR.documents)
    return [CaseOfTest(cases, _judged, strict) for cases in found if cases[0].dialect in wanted]
