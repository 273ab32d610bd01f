"""The routes of the page: its files, the words, the stream of what happens, a payment.

The files are for everybody who may reach the control API; all else needs its token, if it has one.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from x402sim.http import web
from x402sim.journal import Journal
from x402sim.payer.mistakes import MISTAKES
from x402sim.report.page import FILES, alone, of_journal, read, tables
from x402sim.version import VERSION
from x402sim.world.assembly.running_world import ACTORS, RunningWorld
from x402sim.world.control.common import named
from x402sim.world.transport.faults import Callers, FaultKind
from x402sim.world.ui.pay import Pay, pay
from x402sim.world.ui.play import Play, play, playable
from x402sim.world.ui.watch import Watch

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PATH = "/_sim/ui"
"""Where the page is."""
DOES: dict[FaultKind, str] = {
    "lose answer": "does the work, then the connection breaks",
    "lose request": "the connection breaks before the work",
    "refuse": "the connection is refused",
    "delay request": "waits before the work",
    "delay answer": "waits after the work",
    "answer": "answers this status instead of doing the work",
    "truncate": "does the work, and the connection ends in the middle of the answer",
    "shorten": "does the work, and half of the answer arrives as if it were all",
    "duplicate": "gets the request twice",
    "crash before": "the service dies before the work",
    "crash after": "the service dies after the work",
}
"""What a victim does, or what happens to it, by the kind of fault."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class _Seen(msgspec.Struct, frozen=True):
    """What a reader of the stream has: the journal before this entry, exchanges to this number."""

    since: Annotated[int, Meta(ge=0)] = 0
    after: Annotated[int, Meta(ge=0)] = 0


def page_of(world: RunningWorld, watch: Watch, allow: Callable[[Request], None]) -> list[Route]:
    """Return the routes of a world's page, below /_sim; `allow` raises `Refused`."""

    async def paid(request: Request) -> Response:
        allow(request)
        asked = web.parse(await web.read_body(request) or b"{}", Pay)
        return web.answer(await pay(world, asked, _here(request)))

    async def played(request: Request) -> Response:
        allow(request)
        if request.method == "GET":
            return web.answer(playable(world))
        asked = web.parse(await web.read_body(request), Play)
        return web.answer(await play(asked, _here(request)))

    async def saved(request: Request) -> Response:
        allow(request)
        words = of_world(world) | {"live": False, "page": str(request.base_url.replace(path=PATH))}
        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="payments.html"'}
        return Response(alone(words, watch.told()), media_type="text/html", headers=headers)

    routes = routes_of(watch, lambda: of_world(world), allow)
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
    watch: Watch, words: Callable[[], dict[str, Any]], allow: Callable[[Request], None]
) -> list[Route]:
    """Return the routes of any page: what it shows is streamed by `watch`."""

    async def told(request: Request) -> Response:
        allow(request)
        return web.answer(words())

    async def stream(request: Request) -> Response:
        allow(request)
        seen: _Seen = web.parse_query(request, _Seen)
        told = watch.stream(seen.since, seen.after)
        return StreamingResponse(told, media_type="text/event-stream", headers=HEADERS)

    return [
        Route("/ui", partial(_file, "index.html")),
        Route("/ui/words", told),
        Route("/ui/events", stream),
        *(Route(f"/ui/{name}", partial(_file, name)) for name in FILES),
    ]


def saved_page(journal: Journal, title: str, watch: Watch) -> Starlette:
    """Return the application that shows a run that was saved."""

    async def to_page(_: Request) -> Response:
        return RedirectResponse(PATH)

    routes = routes_of(watch, lambda: of_journal(journal, title), lambda _: None)
    return web.Application([Route("/", to_page), Mount("/_sim", routes=routes)])


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
        "callers": get_args(Callers),
        "mistakes": {each.name: each.does for each in MISTAKES.values()},
    }
