"""A standard server, as the subject of a judgement: a command that is started, or one that runs."""

import functools
import json
import runpy
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from x402sim.protocol.networks import NETWORKS, network_named
from x402sim.report.results import CaseResult, Result
from x402sim.spec.folder import folder
from x402sim.suite.case import of_id
from x402sim.suite.options import above_zero, again, flag, given, read
from x402sim.suite.played import Violation, skipped, unclear
from x402sim.suite.server.case import DOCUMENTS, Row, ServerCase, table
from x402sim.suite.server.judge import PATIENCE_S, Judge
from x402sim.suite.server.payment import Dialect, offers_in, payable, required_in
from x402sim.suite.server.play import Item
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import Room
from x402sim.suite.server.start import AtPort, Command, Server
from x402sim.suite.subject import Plan, Subject, Tell
from x402sim.suite.subjects import instead
from x402sim.suite.verdict import Inconclusive, NotReady

SECTIONS = {
    "control": "What must work",
    "offer": "What a 402 offers, and who can read it",
    "payment": "Payments that are wrong in one thing",
    "header": "Headers that are no payments",
    "binding": "What a payment buys",
    "many": "One payment many times, and at once",
    "path": "Other spellings, methods and headers of a paid path",
    "order": "A facilitator that refuses, fails or is lost: served and charged",
    "handler": "Handlers that fail, are slow, stream or redirect",
    "gone": "Clients that hang up",
    "identifier": "Payments with an id, where the 402 offers it",
    "sign-in": "Signing in instead of paying again, where the 402 offers it",
    "discovery": "What the 402 and a catalogue say of what is sold",
}
HANDLERS = ("failing", "slow", "streaming", "redirecting")
"""The options that name a request whose handler is not like others."""
NOT_ITS = "it does not offer this version, or --versions leaves it out"


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return the table of rows, in the order of the sections."""
    found: list[Row] = []
    for file in sorted(folder("server").glob("*.py")):
        found += runpy.run_path(str(file), run_name=file.stem)["ROWS"]
    return tuple(sorted(found, key=lambda row: [*SECTIONS].index(row.section)))


@functools.cache
def all_cases() -> tuple[ServerCase, ...]:
    """Return every case: controls first, then section by section."""
    return tuple(table(rows()))


def versions_in(text: str) -> tuple[Dialect, ...]:
    """Read versions, separated by commas; raises `ValueError`."""
    try:
        return tuple(Dialect(each.strip()) for each in text.split(","))
    except ValueError as wrong:
        raise ValueError(f"versions are {', '.join(Dialect)}; {wrong}") from None


def item_in(text: str) -> Item:
    """Read what is sold: a path or URL, with a method before it and a JSON body behind it.

    Without a method it is GET, or POST with a body. Raises `ValueError`.
    """
    words = text.strip().split(maxsplit=1)
    method = ""
    if words and words[0].isalpha() and words[0].isupper():
        method, text = words[0], words[1] if len(words) > 1 else ""
    target, _, body = text.strip().partition(" ")
    body = body.strip()
    if target.startswith(("http://", "https://")):
        parts = urlsplit(target)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.startswith("/"):
        raise ValueError(f"{text!r} is no path: give /weather, or 'POST /report {{\"a\": 1}}'")
    if body:
        try:
            json.loads(body)
        except ValueError as wrong:
            raise ValueError(f"{body!r} is no JSON: {wrong}") from None
    return Item(method or ("POST" if body else "GET"), target, body)


def _command(text: str) -> tuple[str, ...]:
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError('give a command, as in --start "node shop.js"')
    return words


def _facilitator(text: str) -> int:
    parts = urlsplit(text)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost") or not parts.port:
        raise ValueError(
            f"{text} is no address that the judge can serve its facilitator at: give "
            "http://127.0.0.1:PORT with a free port, and let the server use it"
        )
    return parts.port


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a user has chosen for the judgement of a server."""

    server: Server
    items: tuple[Item, ...]
    rerun: str = ""
    require: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    start: tuple[str, ...] | None = flag(
        "Command that starts it; the judge gives it PORT, FACILITATOR_URL, RPC_URL and "
        "X402SIM_PAY_TO, as often as it needs one.",
        metavar="COMMAND",
        read=_command,
    )
    also: tuple[Item, ...] = flag(
        "Something else that it sells, repeatable: a path, with a method before it and a JSON "
        "body behind it.",
        unset=(),
        metavar="ITEM",
        is_repeatable=True,
        default=(),
        read=lambda texts: tuple(map(item_in, texts)),
    )
    failing: Item | None = flag(  # noqa: RUF009 - it declares a field
        "A paid request whose handler fails, given as what it sells: is it charged?",
        metavar="ITEM",
        read=item_in,
    )
    slow: Item | None = flag(  # noqa: RUF009 - it declares a field
        "A paid request whose handler takes seconds: what if the payment expires, or the client "
        "leaves, meanwhile?",
        metavar="ITEM",
        read=item_in,
    )
    streaming: Item | None = flag(  # noqa: RUF009 - it declares a field
        "A paid request that is answered piece by piece for a second or longer.",
        metavar="ITEM",
        read=item_in,
    )
    redirecting: Item | None = flag(  # noqa: RUF009 - it declares a field
        "A paid request whose handler answers 3xx.",
        metavar="ITEM",
        read=item_in,
    )
    facilitator: int | None = flag(
        "Of one that runs already: the address, http://127.0.0.1:PORT, at which it looks for its "
        "facilitator. The judge serves it there.",
        metavar="URL",
        read=_facilitator,
    )
    versions: tuple[Dialect, ...] | None = flag(
        f"Versions to judge: {', '.join(Dialect)}; by default those that it offers.",
        metavar="VERSIONS",
        read=versions_in,
    )
    network: str = flag(
        "Network it is paid on.", unset="base-sepolia", default="base-sepolia", metavar="NAME"
    )
    seed: int = flag("Random seed of keys and nonces.", kind=int, unset=0, default=0, metavar="N")
    patience: float = flag(
        "Seconds that one answer may take.",
        kind=float,
        unset=PATIENCE_S,
        default=PATIENCE_S,
        metavar="SECONDS",
        read=above_zero("seconds", "--patience"),
    )
    jobs: int | None = flag(
        "Rooms side by side, each with a server; by default one for each core.",
        kind=int,
        metavar="N",
    )

    @property
    def handlers(self) -> Mapping[str, Item]:
        """The items whose handler is not like others, by the option that names them."""
        found = {name: getattr(self, name) for name in HANDLERS}
        return {name: item for name, item in found.items() if item is not None}

    @property
    def shown(self) -> str:
        """What reports call the server."""
        return self.server.shown


def _read(words: Sequence[str], flags: Mapping[str, Any]) -> ServerOptions:
    """Return the options; `words` are what it sells. Raises `ValueError`."""
    chosen = read(ServerOptions, flags)
    command = chosen.get("start")
    if not words:
        raise ValueError(
            "give what it sells, a path or URL, as in `x402sim conformance server /weather "
            '--start "node shop.js"`'
        )
    item = item_in(" ".join(words))
    url = next((each for each in words if each.startswith(("http://", "https://"))), "")
    port = urlsplit(url).port if url else None
    if command:
        server: Server = Command(command, port, shown=flags["start"], look=item.path)
        if chosen.get("facilitator"):
            raise ValueError(
                "--facilitator is for one that runs already: one that the judge starts gets "
                "FACILITATOR_URL"
            )
    elif not port or urlsplit(url).hostname not in ("127.0.0.1", "localhost"):
        raise ValueError(
            f"{' '.join(words)} is no server of this computer that the judge can stand behind: "
            "let the judge start it (--start COMMAND), or give http://127.0.0.1:PORT/PATH and "
            "--facilitator http://127.0.0.1:PORT, which it uses as its facilitator"
        )
    elif not chosen.get("facilitator"):
        raise ValueError(
            "--facilitator http://127.0.0.1:PORT is the address of its facilitator, which the "
            "judge serves; or let the judge start it: --start COMMAND"
        )
    else:
        server = AtPort(port)
    network_named(chosen["network"], NETWORKS)
    values = given(ServerOptions, flags)
    return ServerOptions(
        server=server,
        items=(item, *chosen.get("also", ())),
        rerun=again(("server", *words), ServerOptions, values),
        **chosen,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class ServerJudging:
    """A server that can be judged, in the versions that it offers."""

    judge: Judge
    cases: Sequence[ServerCase]
    options: ServerOptions
    broken: Mapping[Dialect, str]
    plan: Plan

    async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        """Play the cases; yield each result."""
        judged, asked_for = set(self.plan.ids), self.options.versions
        for case in self.cases:
            if case.id in judged:
                continue
            if asked_for is not None and case.dialect in asked_for:
                yield self._of(case, unclear(case, self.broken[case.dialect]))
            else:
                yield self._of(case, skipped(case, NOT_ITS, lacks=False))
        runnable = [case for case in self.cases if case.id in judged]
        async for case, found in self.judge.run(runnable, on_begin):
            yield self._of(case, found)

    def _of(self, case: ServerCase, found: CaseResult) -> Result:
        return of_id([case], {case: found}, self.options.rerun)

    def done(self) -> str:
        """Return how much was done."""
        return f"{self.judge.plays} plays, {self.judge.starts} starts of the server"

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Nothing is left to be told."""
        return [], []


@asynccontextmanager
async def begin(
    options: ServerOptions, cases: Sequence[ServerCase], tell: Tell
) -> AsyncIterator[ServerJudging]:
    """Start it, read its offer, buy in each version, and plan; raises `NotReady`."""
    judge = Judge(
        server=options.server,
        items=options.items,
        handlers=options.handlers,
        network=network_named(options.network),
        seed=options.seed,
        patience_s=options.patience,
        port=options.facilitator or 0,
    )
    if options.jobs is not None:
        judge.jobs = options.jobs
        judge.__post_init__()
    if options.facilitator:
        tell(f"the facilitator is at http://127.0.0.1:{options.facilitator}")
    try:
        room = await judge.room()
        wanted = options.versions or tuple(Dialect)
        broken = await controls(judge, room, wanted)
        if len(broken) == len(wanted):
            whys = "; ".join(f"{dialect}: {why}" for dialect, why in broken.items())
            raise NotReady(
                f"{options.shown} sells nothing at {options.items[0].shown}, so nothing can be "
                f"said of it. {whys}. The guide, `Judge your server`, says what it gets"
            )
        judge.dialects = tuple(each for each in wanted if each not in broken)
        await judge.leave(room, keep=True)
        yield ServerJudging(
            judge=judge,
            cases=cases,
            options=options,
            broken=broken,
            plan=_plan(judge, options, cases, broken),
        )
    except OSError as wrong:
        raise NotReady(f"{options.shown}: {wrong}") from wrong
    finally:
        await judge.close()


async def controls(judge: Judge, room: Room, wanted: Sequence[Dialect]) -> dict[Dialect, str]:
    """Buy in each version; return why it fails. Raises `NotReady` for what is no paid server."""
    broken = {}
    for dialect in wanted:
        play = await judge.play(room, dialect, "control")
        answer = await play.ask()
        if why := _why_not(answer):
            raise NotReady(f"{judge.server.shown}: {judge.items[0].shown}: {why}")
        if required_in(dialect, answer) is None:
            broken[dialect] = f"it does not offer version {dialect.version}"
        elif payable(dialect, answer, room.network) is None:
            offers = "; ".join(json.dumps(each)[:300] for each in offers_in(dialect, answer)[:3])
            broken[dialect] = (
                f"none of its offers is {room.network.name}, exact, for the token of the judge "
                f"(X402SIM_NETWORK, X402SIM_ASSET): {offers or 'there are none'}"
            )
        else:
            control = next(
                case for case in all_cases() if case.is_control and case.dialect is dialect
            )
            try:
                found = control.test(play, await control.play(play))
            except Inconclusive as why_not:
                found = Violation(expected="", actual=str(why_not))
            if isinstance(found, Violation):
                broken[dialect] = f"a good payment fails: {found.actual}"
    return broken


def _why_not(answer: Answer) -> str:
    """Return why what answers is no server that asks for a payment in one step; "" if it is."""
    body = answer.json if isinstance(answer.json, dict) else {}
    if answer.status == 402 and "paymentId" in body:
        return f"it asks for a payment in two steps: {instead('service')}"
    if answer.status == 402:
        return ""
    if answer.is_2xx and "kinds" in body:
        return f"it is a facilitator: {instead('facilitator')}"
    return f"it asks for no payment, and is no paid path: {answer.how}"


def _plan(
    judge: Judge,
    options: ServerOptions,
    cases: Sequence[ServerCase],
    broken: Mapping[Dialect, str],
) -> Plan:
    mine = [case for case in cases if case.dialect in judge.dialects]
    plays = {case.played_as: case for case in mine}
    waits = max((case.waits_s for case in mine), default=0)
    seconds = max(0.3 * len(plays) / judge.jobs, 2 * waits)
    sold = ", ".join(each.shown for each in options.items)
    at_once = f"{judge.jobs} at once" if judge.server.most_at_once is None else "in turn"
    lines = [
        f"Plan: {len(mine)} ids in {len(plays)} plays of {sold}, {at_once}: about {seconds:.0f} s, "
        f"as a start takes {judge.start_s:.1f} s. What fails is played again. Time-outs of the "
        f"server come on top: up to {judge.patience_s:g} s an answer"
    ]
    lines += [f"Not judged: {dialect}: {why}" for dialect, why in broken.items()]
    return Plan(ids=tuple(case.id for case in mine), lines=tuple(lines), seconds=seconds)


SERVER: Subject[ServerOptions] = Subject(
    name="server",
    words="ITEM",
    words_help="What it sells: a path or URL, with a method before it and a JSON body behind it.",
    help="Judge a server of the x402 standard: is it served only if paid, and paid only if served?",
    options=ServerOptions,
    read=_read,
    cases=all_cases,
    documents=tuple(dict.fromkeys(DOCUMENTS.values())),
    sections=SECTIONS,
    begin=begin,
    uncounted=NOT_ITS,
)
