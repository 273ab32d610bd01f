"""A standard server as a subject: a command for the judge to start, or a running server.

The module has the control (a good payment that is served), the flags, the plan, and plays as tests.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from x402sim.clock import stopwatch
from x402sim.protocol import mcp, x402
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import Network
from x402sim.suite import rooms
from x402sim.suite.dialect import OF_SERVERS, Dialect
from x402sim.suite.engine import Judging, Plan, skipped, unclear
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
from x402sim.suite.rooms import ControlPlay, RoomResults, in_rooms
from x402sim.suite.row import RoomCase, RoomKind, beginnings, cases_of, rows_of
from x402sim.suite.server.double import SETTLE, Double
from x402sim.suite.server.payment import is_meant, offers_in, offers_of, payable, required_in
from x402sim.suite.server.play import COUNTER, Item, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import (
    PLAIN,
    REPLICAS,
    AtPort,
    Make,
    Server,
    ServerRoom,
    Spoken,
    opened,
    server_command,
)
from x402sim.suite.server.tools import STDIO
from x402sim.suite.started import START_S, WAIT_S, App
from x402sim.suite.subject import Subject, Tell, instead, once
from x402sim.suite.verdict import Inconclusive, Lacking, NotApplicable, NotReady, Violation
from x402sim.text.keys import keyless
from x402sim.text.words import as_given, counted, often

QUICK_S = 3.0
"""The longest start, in seconds, that is repeated unless the user chooses --restart."""
OFFER = "offer"
"""The section that is judged even without a purchase."""
WHOLE = OFFER, "whole"
"""The row whose play asks once: its demands can be tested on any offer."""


@dataclass(slots=True, kw_only=True, eq=False)
class ServerJudge(rooms.RoomJudge[ServerRoom, Play]):
    """One judgement of one server."""

    plain: ClassVar[RoomKind] = PLAIN
    beside: ClassVar[int] = 6
    after: ClassVar[Violation] = Violation(
        expected="a good payment that is served afterwards", actual="", why="nobody is served"
    )

    items: Sequence[Item]
    handlers: Mapping[str, Item] = field(default_factory=dict)
    """Requests for a special purpose, by option."""
    metered: Sequence[Item] = ()
    """Requests sold `upto`, whose amount used is known."""

    doubles: list[Double] = field(default_factory=list)
    """The facilitators of all rooms."""
    purchase_s: float = 0
    """Seconds for the second good payment."""
    restart: bool | None = None
    """Whether the server is killed and started again; None lets the duration of a start decide."""
    shares: bool = False
    """Whether two servers with one folder share their stored data."""
    meant: set[Dialect] = field(default_factory=set)
    """The dialects whose offer is for the judge's payers."""
    broken: dict[Dialect, ControlPlay] = field(default_factory=dict)
    """The failed controls."""
    misoffered: set[Dialect] = field(default_factory=set)
    """The dialects whose offer breaks a MUST."""

    @property
    def only_offers(self) -> set[Dialect]:
        """The dialects whose offer is judged even without a purchase.

        If no dialect has a purchase, only wrong offers are judged.
        """
        return self.meant if self.dialects else self.meant & self.misoffered

    @property
    def restarts(self) -> bool:
        """Whether the server is killed and started again; by default, the first start decides."""
        if self.restart is None:
            self.restart = self.start_s < QUICK_S
        return self.restart and not self.is_fixed

    async def open(self, kind: RoomKind, name: str) -> ServerRoom:
        """Open a room, and start one server in it, or two; raises `NotReady` and `Lacking`."""
        if kind is REPLICAS and (not self.shares or self.subject.is_single):
            raise Lacking(
                "it needs two servers with one store, each at the port that the judge gives: "
                "say so with --shared-store"
            )
        room = await opened(self.subject, kind, self.network, self.seed, name, self.port)
        self.doubles.append(room.double)
        return room

    def read_offer(self, play: Play, answer: Answer) -> None:
        """Note whether an offer is `meant` for the judge's payers, and `misoffered`."""
        dialect = play.dialect
        if not is_meant(dialect, answer, play.room.network):
            return
        self.meant.add(dialect)
        whole = next(row for row in rows() if (row.section, row.slug) == WHOLE)
        musts = [each for each in whole.cases() if (each.dialect, each.level) == (dialect, "MUST")]
        if any(isinstance(each.test(play, answer), Violation) for each in musts):
            self.misoffered.add(dialect)

    def notes(self) -> list[str]:
        """Return a line if each settlement of `upto` was the maximum, and no use is known."""
        is_less = [
            (call.amount_base or 0) < call.most_base
            for double in self.doubles
            for call in double.calls
            if call.path == SETTLE and call.most_base and double.is_settled(call.nonce)
        ]
        if self.metered or not is_less or any(is_less):
            return []
        return [
            "Each settlement of `upto` was the maximum, used or not: --metered 'AMOUNT ITEM' "
            "judges the used amount"
        ]

    def play(self, room: ServerRoom, dialect: Dialect, name: str, patience_s: float) -> Play:
        """Return a play in a room."""
        return Play(
            room=room,
            dialect=dialect,
            items=self.items,
            handlers=self.handlers,
            metered=self.metered,
            restarts=self.restarts,
            name=name,
            patience_s=patience_s,
        )

    async def try_good_payment(self, room: ServerRoom, dialects: Sequence[Dialect] = ()) -> str:
        """Make a good payment in each version; return why a payment fails, "" if all are served."""
        known = self.dialects or dialects
        # no purchase in a version judged by its offer only
        for dialect in [each for each in dialects if each in known] or known:
            play = await self.begun(room, dialect, "sound")
            try:
                answer = await play.pay(await play.draft())
            except Inconclusive as why:
                return str(why)
            if room.has_ended:
                return room.has_ended
            if not answer.is_2xx:
                return f"a good payment gets {answer.how}"
        return ""


RESTART = "restart"
"""The section of plays that kill the server."""
PLAY_S, PURCHASES = 0.2, 2
"""Seconds of a play on one core, measured with its share of good payments; and the number of
purchases whose time is added for each play."""
SECTIONS = {
    "control": "What must work",
    OFFER: "What a 402 offers, and who can read it",
    "payment": "Payments that are wrong in one thing",
    "header": "Headers that are no payments",
    "binding": "What a payment buys",
    "many": "One payment many times, and at once",
    "tool": "What is of tools of MCP only",
    "path": "Other spellings, methods and headers of a paid path",
    "order": "A facilitator that refuses, fails or is lost: served and charged",
    "handler": "Handlers that fail, are slow, stream or redirect",
    "gone": "Clients that hang up",
    RESTART: "A server that is killed, and started again",
    "replicas": "Two servers of one deployment",
    "identifier": "Payments with an id, where the 402 offers it",
    "sign-in": "Signing in instead of paying again, where the 402 offers it",
    "discovery": "What the 402 and a catalogue say of what is sold",
}
HANDLERS = ("failing", "slow", "streaming", "redirecting", COUNTER)
"""The options for requests with a special purpose."""
dialects_in = one_of(OF_SERVERS, "dialects")
"""Reads dialects, separated by commas; raises `ValueError`."""


rows = partial(rows_of, "server", *SECTIONS)
"""Returns the table of rows, in the order of the sections."""
all_cases = partial(cases_of, "server", *SECTIONS)
"""Returns every case: controls first, then section by section."""


def item_in(text: str) -> Item:
    """Read an item for sale: a path or URL, perhaps with a method before and a JSON body after it.

    The default method is GET, or POST with a body. A tool is MCP, the path or URL of the server or
    `stdio`, the name, and the arguments: MCP /mcp forecast {"city": "Oslo"}. Raises `ValueError`.
    """
    words = text.strip().split(maxsplit=1)
    method = ""
    if words[:1] == [TOOL]:
        return _tool_in(words[1] if len(words) > 1 else "")
    if words and words[0].isalpha() and words[0].isupper():
        method, text = words[0], words[1] if len(words) > 1 else ""
    target, _, body = text.strip().partition(" ")
    body = body.strip()
    if target.startswith(("http://", "https://")):
        parts = urlsplit(target)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.startswith("/"):
        raise ValueError(
            f"{as_given(text)} is no path: give /weather, or 'POST /report {{\"a\": 1}}'"
        )
    if body:
        try:
            json.loads(body)
        except ValueError as wrong:
            raise ValueError(f"{as_given(body)} is no JSON: {wrong}") from None
    return Item(method or ("POST" if body else "GET"), target, body)


def metered_in(text: str) -> Item:
    """Read an amount used, in tokens, and the item: 0.0015 /chat. Raises `ValueError`."""
    used, _, item = text.strip().partition(" ")
    try:
        to_base(used, 18)
    except ValueError:
        raise ValueError(
            f"{as_given(text)} begins with no amount in tokens: give '0.0015 /chat'"
        ) from None
    return replace(item_in(item), used=used)


def _yes(text: str) -> bool:
    """Read yes or no; raises `ValueError`."""
    if text.lower() not in ("yes", "no"):
        raise ValueError(f"it is yes or no, not {as_given(text)}")
    return text.lower() == "yes"


def _tool_in(text: str) -> Item:
    target, name, arguments = [*text.split(maxsplit=2), "", "", ""][:3]
    if target.startswith(("http://", "https://")):
        target = urlsplit(target).path or "/"
    if not name or (target != STDIO and not target.startswith("/")):
        raise ValueError(
            f'MCP {as_given(text)} is no tool: give MCP /mcp forecast {{"city": "Oslo"}}'
        )
    try:
        given = json.loads(arguments or "{}")
    except ValueError as wrong:
        raise ValueError(f"{as_given(arguments)} is no JSON: {wrong}") from None
    if not isinstance(given, dict):
        raise ValueError(f"{as_given(arguments)}: the arguments of a tool are a JSON object")
    return Item(TOOL, target, arguments, name)


TOOL = "MCP"
"""The word before a tool, where other items have a method."""


def _handler_flag(meaning: str) -> Any:
    """Declare a request with a special purpose."""
    return flag(meaning, metavar="ITEM", read=item_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(OfJudge):
    """The user's options for the judgement of a server."""

    subject: Server
    items: tuple[Item, ...]
    start: tuple[str, ...] | None = flag(
        "Command that starts a server; the judge sets PORT, FACILITATOR_URL, RPC_URL and "
        "X402SIM_PAY_TO.",
        metavar="COMMAND",
        read=command_like("node shop.js"),
    )
    also: tuple[Item, ...] = flag(
        "Something else that it sells; repeatable.",
        unset=(),
        metavar="ITEM",
        is_repeatable=True,
        default=(),
        read=lambda texts: tuple(map(item_in, texts)),
    )
    failing: Item | None = _handler_flag("Paid request whose handler fails: is the payer charged?")
    slow: Item | None = _handler_flag(
        "Paid request whose handler takes seconds: the payment expires, or the client leaves."
    )
    streaming: Item | None = _handler_flag(
        "Paid request that is answered piece by piece, for a second or longer."
    )
    redirecting: Item | None = _handler_flag("Paid request whose handler answers 3xx.")
    counter: Item | None = _handler_flag(
        "Free request that answers how often paid handlers ran: tells a stored answer from a new."
    )
    metered: tuple[Item, ...] = flag(
        "Request sold `upto` with the amount that it uses, such as '0.0015 /chat'; repeatable.",
        unset=(),
        metavar="'AMOUNT ITEM'",
        is_repeatable=True,
        default=(),
        read=lambda texts: tuple(map(metered_in, texts)),
    )
    facilitator: int | None = flag(
        "Facilitator of a server that runs already, http://127.0.0.1:PORT: the judge serves it.",
        metavar="URL",
        read=port_for("its facilitator", "let the server use it"),
    )
    dialects: tuple[Dialect, ...] | None = flag(
        f"Dialects to judge: {', '.join(OF_SERVERS)}. [default: those that it offers]",
        metavar="DIALECTS",
        read=dialects_in,
    )
    restart: bool | None = flag(
        f"Kill it within payments. [default: yes, if a start takes less than {QUICK_S:g} s]",
        metavar="YES|NO",
        read=_yes,
    )
    shared_store: bool = flag(
        "Servers with one X402SIM_STATE_DIR share a store: judge two as one deployment.",
        kind=bool,
        unset=False,
        default=False,
    )

    @property
    def handlers(self) -> Mapping[str, Item]:
        """The items for a special purpose, by option."""
        found = {name: getattr(self, name) for name in HANDLERS}
        return {name: item for name, item in found.items() if item is not None}


def _read(words: Sequence[str], flags: Mapping[str, Any]) -> ServerOptions:
    """Return the options; `words` are the item for sale. Raises `ValueError`."""
    chosen = read(ServerOptions, flags)
    command, wanted = chosen.get("start"), chosen.get("dialects")
    if not words:
        raise ValueError(
            "give what it sells, a path or URL, as in `x402sim conformance server /weather "
            '--start "node shop.js"`'
        )
    item = item_in(" ".join(words))
    is_tool = bool(item.tool)
    if any(bool(each.tool) is not is_tool for each in chosen.get("also", ())):
        raise ValueError("--also: give paths with a path, and tools with a tool")
    if wanted and ((Dialect.MCP in wanted) is not is_tool or (is_tool and len(wanted) > 1)):
        raise ValueError(f"--dialects: a tool is judged in {Dialect.MCP}, and nothing else is")
    url = next((each for each in words if each.startswith(("http://", "https://"))), "")
    port = urlsplit(url).port if url else None
    if item.target == STDIO:
        if not command:
            raise ValueError(f"{STDIO}: the judge must start it: --start COMMAND")
        if "wait" in chosen:
            raise ValueError(f"--wait: {STDIO} is asked at once, and has {START_S:g} s to answer")
        server: Server = Spoken(command, shown=keyless(flags["start"]), also=chosen["env"])
    elif command:
        wait_s = chosen.get("wait", START_S)
        server = server_command(
            command,
            port,
            shown=keyless(flags["start"]),
            look=item.path,
            wait_s=wait_s,
            also=chosen["env"],
        )
        if chosen.get("facilitator"):
            raise ValueError(
                "--facilitator is for one that runs already: one that the judge starts gets "
                "FACILITATOR_URL"
            )
    elif not port or urlsplit(url).hostname not in ("127.0.0.1", "localhost"):
        raise ValueError(
            f"{' '.join(words)} is no server of this computer that the judge can stand behind: "
            "let the judge start the server (--start COMMAND), or give http://127.0.0.1:PORT/PATH "
            "and --facilitator http://127.0.0.1:PORT, the facilitator that the server uses"
        )
    elif not chosen.get("facilitator"):
        raise ValueError(
            "--facilitator http://127.0.0.1:PORT is the address at which the judge serves the "
            "server's facilitator; or let the judge start the server: --start COMMAND"
        )
    else:
        server = AtPort(f"http://127.0.0.1:{port}", chosen.get("wait", WAIT_S))
    values = given(ServerOptions, flags)
    return ServerOptions(
        subject=server,
        items=(item, *chosen.get("also", ())),
        rerun=again(("server", *words), ServerOptions, values),
        **chosen,
    )


def offered(items: Sequence[Item]) -> tuple[Dialect, ...]:
    """Return the dialects in which the items may be sold."""
    return tuple(each for each in OF_SERVERS if (each is Dialect.MCP) is bool(items[0].tool))


@asynccontextmanager
async def begin(
    options: ServerOptions, cases: Sequence[RoomCase], tell: Tell
) -> AsyncIterator[Judging[RoomCase]]:
    """Start the server, read its offer, buy in each version, and plan; raises `NotReady`."""
    subject = options.subject
    if isinstance(subject, AtPort):
        subject = replace(subject, tell=tell)
    judge = ServerJudge(
        subject=subject,
        items=options.items,
        handlers=options.handlers,
        metered=options.metered,
        network=options.network,
        seed=options.seed,
        patience_s=options.patience,
        restart=options.restart,
        shares=options.shared_store,
        port=options.facilitator or 0,
        jobs=options.jobs or 0,
        tell=once(tell),
    )
    if options.facilitator:
        tell(f"the facilitator is at http://127.0.0.1:{options.facilitator}")

    def left_out(case: RoomCase, broken: Mapping[Dialect, str]) -> CaseResult | None:
        if options.dialects is not None and case.dialect in options.dialects:
            return unclear(case, broken[case.dialect])
        if case.dialect in judge.only_offers:
            return skipped(case, NotApplicable(broken[case.dialect]))
        return None

    async with in_rooms(
        judge,
        options,
        cases,
        options.dialects or offered(options.items),
        control=lambda room, dialect: _control(judge, room, dialect),
        left_out=left_out,
        plan=lambda broken: _plan(judge, options, cases, broken),
        invalid=lambda why: (
            f"sells nothing at {options.items[0].shown}, so there is nothing to judge. {why}. The "
            "guide, `Judge your server`, lists the variables that the judge sets for a server"
        ),
    ) as judging:
        yield replace(judging, left_open=lambda _: (judge.notes(), []))


async def _control(judge: ServerJudge, room: ServerRoom, dialect: Dialect) -> ControlPlay:
    """Ask for the first item in a version, and buy it; return why the purchase fails.

    Raises `NotReady` if the URL is no paid server.
    """
    play = await judge.begun(room, dialect, "control")
    answer = await play.ask()
    if why := _why_not(answer):
        if judge.broken:  # a purchase has opened it
            return judge.broken.get(dialect, ControlPlay(why=why))
        raise NotReady(f"{judge.subject.shown}: {judge.items[0].shown}: {why}")
    judge.read_offer(play, answer)
    if why := _why_unpayable(dialect, answer, room.network):
        return ControlPlay(why=why)
    of_control = [case for case in all_cases() if case.is_control and case.dialect is dialect]
    played = await judge.played(of_control, room)
    if played.unclear:
        return ControlPlay(why=f"a good payment fails: {played.unclear}", played=played)
    if (wrong := played.wrong) is not None:
        purchase = played.play
        assert isinstance(purchase, Play)
        is_served = any(answer.is_2xx for answer in purchase.answers)
        is_broken = bool(await purchase.moved()) or is_served
        why = f"a good payment fails: {wrong.actual}"
        if not room.double.calls:
            why += "; it asked another facilitator, or none: wanted is the one at FACILITATOR_URL"
        found = ControlPlay(why=why, played=played, is_broken=is_broken)
        if is_broken:
            judge.broken[dialect] = found
        return found
    elapsed = stopwatch()
    why = await judge.try_good_payment(room, [dialect])
    judge.purchase_s = max(judge.purchase_s, elapsed())
    return ControlPlay(why=why, played=played)


def _why_unpayable(dialect: Dialect, answer: Answer, network: Network) -> str:
    """Return why the judge's payers cannot take an offer in a version; "" if they can."""
    if required_in(dialect, answer) is None:
        return f"it does not offer version {dialect.version}"
    if dialect.by_permit2 and not any(offers_of(dialect, answer)):
        return f"it sells no {dialect.scheme} by Permit2"
    if payable(dialect, answer, network) is not None:
        return ""
    offers = "; ".join(json.dumps(each)[:300] for each in offers_in(dialect, answer)[:3])
    wanted = f"{x402.network_name(dialect.version, network)}, {dialect.scheme}"
    return (
        f"none of its offers is {wanted}, for the token of the judge "
        f"(X402SIM_NETWORK, X402SIM_ASSET): {offers or 'there are none'}"
    )


def _why_not(answer: Answer) -> str:
    """Return why an answer is not from a server that sells in one step; "" if it is."""
    body = answer.json if isinstance(answer.json, dict) else {}
    offers = any(required_in(each, answer) for each in (Dialect.V1, Dialect.V2))
    if answer.status == 402 and "paymentId" in body and not offers:
        return f"it asks for a payment in two steps: {instead('service')}"
    if answer.status == 402:
        return ""
    if answer.rpc and answer.is_2xx and mcp.required_in({**body, "isError": True}) is not None:
        return "its result holds an offer, and isError is not true: clients do not see it"
    if answer.is_2xx and "kinds" in body:
        return f"it is a facilitator: {instead('facilitator')}"
    what = "tool" if answer.rpc else "path"
    return f"it asks for no payment, and is no paid {what}: {answer.how}"


def _plan(
    judge: ServerJudge,
    options: ServerOptions,
    cases: Sequence[RoomCase],
    broken: Mapping[Dialect, str],
) -> Plan:
    offers = judge.only_offers
    planned = [
        case
        for case in cases
        if case.dialect in judge.dialects or (case.dialect in offers and case.section == OFFER)
    ]
    plays = {case.played_as: case for case in planned}
    is_alone = judge.subject.is_single
    beside = 1 if is_alone else judge.beside
    restarts = sum(case.section == RESTART for case in plays.values()) * judge.restarts
    waits_s = sum(case.waits_s for case in plays.values()) / beside
    longest_s = 2 * max((case.waits_s for case in plays.values()), default=0)
    play_s = PLAY_S + PURCHASES * judge.purchase_s
    works_s = (play_s * len(plays) + judge.start_s * (restarts + beside)) / judge.jobs
    seconds = max(works_s, longest_s) + (waits_s if is_alone else 0)
    sold = ", ".join(each.shown for each in options.items)
    at_once = "in turn" if is_alone else f"{judge.jobs} at once"
    ids = len({case.id for case in planned})
    lines = [
        f"Plan: {counted(ids, 'id')} in {counted(len(plays), 'play')} of {sold}, {at_once}: "
        f"about {seconds:.0f} s, as a start takes {judge.start_s:.1f} s. What fails is played "
        f"again. Time-outs of the server come on top: up to {judge.patience_s:g} s an answer"
    ]
    if judge.is_fixed:
        lines.append("A good payment follows each play, and buys an item: the server runs already")
    if restarts:
        lines.append(f"It is killed and started again {often(restarts)} (--restart no: not at all)")
    elif any(case.section == RESTART for case in plays.values()) and not judge.is_fixed:
        lines.append("It is not killed and started again: a start takes long, or --restart no")
    lines += [
        f"{'Only its offer is judged' if dialect in offers else 'Not judged'}: {dialect}: {why}"
        for dialect, why in broken.items()
    ]
    return Plan(cases=planned, lines=tuple(lines), seconds=seconds)


SERVER: Subject[ServerOptions] = Subject(
    name="server",
    words="ITEM",
    words_help="What it sells: a path or URL, with a method before and a JSON body behind, if any; "
    "or a tool: MCP, path or stdio, name, arguments.",
    help="Judge a server of the x402 standard: is it served only if paid, and paid only if served?"
    "\n\nExample: x402sim conformance server /weather --start 'node shop.js'",
    options=ServerOptions,
    read=_read,
    cases=all_cases,
    documents=beginnings("server"),
    sections=SECTIONS,
    begin=begin,
)


def plays(
    sells: str | Sequence[str],
    dialects: str = "v2",
    only: str | Sequence[str] = (),
    *,
    strict: bool = False,
    shared_store: bool = False,
    metered: Sequence[str] = (),
    **handlers: str,
) -> list[CaseOfTest]:
    """Return the plays of items, in these dialects for paths; `only` as on the command line.

    `metered` are amounts used, each with its item. `handlers` are the options that name a request,
    such as `failing` and `slow`. Raises
    `ValueError` for an unknown dialect, id or option, and for a text that is no item.
    """
    if unknown := handlers.keys() - set(HANDLERS):
        raise ValueError(f"{', '.join(sorted(unknown))}: options are {', '.join(HANDLERS)}")
    special = {name: item_in(text) for name, text in handlers.items()}
    uses = [metered_in(each) for each in metered]
    items = [item_in(each) for each in ([sells] if isinstance(sells, str) else sells)]
    wanted = offered(items) if items[0].tool else dialects_in(dialects)
    found = chosen(all_cases(), only, SERVER.documents)

    async def judged(make: Make, cases: Sequence[RoomCase]) -> RoomResults:
        judge = ServerJudge(
            subject=App(make),
            dialects=(cases[0].dialect,),
            items=items,
            handlers=special,
            metered=uses,
            shares=shared_store,
            jobs=1,
        )
        return await judge.every(cases)

    return [CaseOfTest(cases, judged, strict) for cases in found if cases[0].dialect in wanted]
