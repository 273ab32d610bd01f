"""The live page of a world: its files, the payments and the scenarios that it plays, its routes.

Its static files are for everybody who can reach the control API; all else needs the control token,
if there is one.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, get_args

import httpx
import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from x402sim.http import web
from x402sim.http.web import Refused, bad_body
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.core import PaymentFailed
from x402sim.payer.flow import FlowAuth
from x402sim.payer.mistakes import (
    MISTAKES,
    Change,
    Draft,
    ObservedAuth,
    draft_of,
    paid_in,
    request_of,
)
from x402sim.payer.session import SessionAuth
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import Wire
from x402sim.protocol.routes import MARKET, ORDER, QUOTE
from x402sim.report.page import FILES, alone, read, tables
from x402sim.text.program import start
from x402sim.text.suggest import unknown
from x402sim.version import VERSION
from x402sim.world.control.actions import named, require_service
from x402sim.world.feed import PageFeed
from x402sim.world.running_world import ACTORS, RunningWorld
from x402sim.world.scenario import shipped, shipped_names
from x402sim.world.transport.faults import DELAYS, DOES, Callers

DEADLINE_S = 20.0
_PLENTY = "1000000.00"
_DEPOSIT = "0.10"


class Pay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A payment that the page requests: what to buy, from which account, with which mistake."""

    account: Annotated[int, Meta(ge=0)] = 0
    buys: Literal["quote", "market", "session"] = "quote"
    wrong: str = ""


class PageAnswer(Wire, frozen=True):
    """The outcome of a payment: the last answer's status, or None and why there is none.

    `payment` is what its lane is found by: the payment id, or the nonce of its authorization in
    hex; None if nothing was signed.
    """

    status: int | None
    said: str
    payment: str | None


async def pay(world: RunningWorld, wanted: Pay, url: str) -> PageAnswer:
    """Pay the service at this URL over TCP, as any payer does; raises `Refused`."""
    require_service(world, "/ui/pay")
    if wanted.account >= len(world.accounts.funded):
        raise bad_body(f"account: there are {len(world.accounts.funded)}, counted from 0")
    if wanted.wrong and wanted.wrong not in MISTAKES:
        raise bad_body(unknown("mistake", wanted.wrong, MISTAKES))
    if wanted.wrong and wanted.buys == "session":
        raise bad_body("a mistake is made with a quote or the market, not with a session")
    network, clock = world.service.env.network, world.clock
    wallet, used = world.accounts.funded[wanted.account], list[Authorization]()
    payments = list[str]()

    def draft(request: httpx.Request) -> Draft:
        return draft_of(request, wallet, network, clock.now_s())

    def on_request(request: httpx.Request) -> None:
        if paid_in(request):
            sent = draft(request)
            payments.append(sent.payment_id or sent.auth.nonce.hex())

    def on_answer(request: httpx.Request, _: httpx.Response) -> None:
        if paid_in(request) and not used:
            used.append(draft(request).auth)

    def changed(request: httpx.Request) -> httpx.Request:
        right = draft(request)
        wrong = MISTAKES[wanted.wrong].change(replace(right, auth=(*used, right.auth)[0]))
        return request_of(wrong, request)

    async def buy(change: Change | None) -> httpx.Response:
        here: dict[str, Any] = {"network": network, "clock": clock, "deadline_s": DEADLINE_S}
        payer: FlowAuth = PaymentAuth(wallet, max_amount=_PLENTY, max_total=_PLENTY, **here)
        if wanted.buys == "session":
            payer = SessionAuth(wallet, deposit=_DEPOSIT, **here)
        flow = ObservedAuth(
            choose=lambda _: payer,
            on_request=on_request,
            on_answer=on_answer,
            limits=payer.limits,
            change=change,
        )
        if wanted.buys == "market":
            return await http.get(MARKET, auth=flow)
        return await http.post(QUOTE, json=ORDER, auth=flow)

    # what answers there is this process, with a certificate of its own
    client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=DEADLINE_S, verify=False)  # noqa: S501
    async with client as http:
        try:
            if wanted.wrong == "replay":
                await buy(None)
            answer = await buy(changed if wanted.wrong else None)
        except (PaymentFailed, httpx.HTTPError) as failed:
            return PageAnswer(None, str(failed) or repr(failed), next(reversed(payments), None))
    return PageAnswer(answer.status_code, answer.text[:1000], next(reversed(payments), None))


LONGEST_S = 300


class Play(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scenario to play."""

    scenario: str


def playable(world: RunningWorld) -> list[dict[str, Any]]:
    """Return the shipped scenarios: name, title, description, and needs that this world lacks."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "story": each.description,
            "takesTime": "clock" in each.needs,
            "lacks": [need.meaning for need in each.needs if need not in world.capabilities],
        }
        for each in shipped()
    ]


async def play(wanted: Play, url: str) -> dict[str, Any]:
    """Play a scenario at this URL, in a process of its own; return what `run --json` prints of it.

    Raises `Refused`.
    """
    if wanted.scenario not in (known := shipped_names()):
        raise bad_body(unknown("scenario", wanted.scenario, known))
    command = (*start(), "run", wanted.scenario, "--on", url, "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    try:
        async with asyncio.timeout(LONGEST_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise Refused(504, "Too slow", f"it took longer than {LONGEST_S} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    report = msgspec.json.decode(printed)
    (played,) = report["scenarios"]
    return {**played, "clockAheadSeconds": report["clock_ahead_s"]}


_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PATH = "/_sim/ui"
"""Where the page is."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class _Position(msgspec.Struct, frozen=True):
    """What a reader of the stream has: the journal before this entry, exchanges to this number."""

    since: Annotated[int, Meta(ge=0)] = 0
    after: Annotated[int, Meta(ge=0)] = 0


def page_of(world: RunningWorld, feed: PageFeed, allow: Callable[[Request], None]) -> list[Route]:
    """Return the routes of a world's page, below /_sim; `allow` raises `Refused`."""

    async def paid(request: Request) -> Response:
        allow(request)
        wanted = web.parse(await web.read_body(request) or b"{}", Pay)
        return web.answer(await pay(world, wanted, _here(request)))

    async def played(request: Request) -> Response:
        allow(request)
        if request.method == "GET":
            return web.answer(playable(world))
        wanted = web.parse(await web.read_body(request), Play)
        return web.answer(await play(wanted, _here(request)))

    async def saved(request: Request) -> Response:
        allow(request)
        words = of_world(world) | {"live": False, "page": str(request.base_url.replace(path=PATH))}
        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="payments.html"'}
        return Response(alone(words, feed.messages()), media_type="text/html", headers=headers)

    routes = routes_of(feed, lambda: of_world(world), allow)
    return [
        *routes,
        Route("/ui/pay", paid, methods=["POST"]),
        Route("/ui/play", played, methods=["GET", "POST"]),
        Route("/ui/saved", saved),
    ]


def _here(request: Request) -> str:
    """Return the URL of this server, for a client on this machine."""
    (host, port), scheme = request.scope["server"], request.url.scheme
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def routes_of(
    feed: PageFeed, words: Callable[[], dict[str, Any]], allow: Callable[[Request], None]
) -> list[Route]:
    """Return the routes of any page: what it shows is streamed by `watch`."""

    async def words_of_page(request: Request) -> Response:
        allow(request)
        return web.answer(words())

    async def stream(request: Request) -> Response:
        allow(request)
        position: _Position = web.parse_query(request, _Position)
        events = feed.stream(position.since, position.after)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    return [
        Route("/ui", partial(_file, "index.html")),
        Route("/ui/words", words_of_page),
        Route("/ui/events", stream),
        *(Route(f"/ui/{name}", partial(_file, name)) for name in FILES),
    ]


def journal_page(words: Callable[[], dict[str, Any]], feed: PageFeed) -> Starlette:
    """Return the application of a page that steers nothing: of a run, or of what is watched."""
    routes = routes_of(feed, words, lambda _: None)
    return web.Application([Route("/", _to_page), Mount("/_sim", routes=routes)])


def one_page(page: str) -> Starlette:
    """Return the application that shows a page with all that it needs, such as a part of a run."""
    headers = HEADERS | {"Content-Security-Policy": "frame-ancestors 'none'"}  # it has its own

    async def shown(_: Request) -> Response:
        return Response(page, media_type="text/html", headers=headers)

    return web.Application([Route("/", _to_page), Route(PATH, shown)])


async def _to_page(_: Request) -> Response:
    return RedirectResponse(PATH)


async def home(request: Request) -> Response:
    """GET / of a browser: the way to the page and to the documentation."""
    return await _file("home.html", request)


async def _file(name: str, _: Request) -> Response:
    return Response(read(name), media_type=_TYPES[name.rpartition(".")[2]], headers=HEADERS)


def of_world(world: RunningWorld) -> dict[str, Any]:
    """Return the words for a world that runs."""
    network = world.service.env.network
    return tables() | {
        "live": True,
        "version": VERSION,
        "title": network.name,
        "service": world.options.has_service,
        "symbol": network.token_symbol,
        "decimals": network.decimals,
        "names": named(world),
        "victims": world.faults.paths,
        "actors": ACTORS,
        "faults": DOES,
        "delays": DELAYS,
        "callers": get_args(Callers),
        "mistakes": {each.name: each.does for each in MISTAKES.values()},
    }
