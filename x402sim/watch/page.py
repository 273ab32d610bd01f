"""The page of what is watched: the lanes of `serve`'s page, without its steering."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from x402sim.http import web
from x402sim.journal import Journal
from x402sim.report.page import of_journal
from x402sim.world.ui import PATH, PageFeed, routes_of


def watched_page(journal: Journal, feed: PageFeed, *, title: str, origin: str) -> Starlette:
    """Return the application of the page; `origin` is the proxy's URL, for what is copied."""

    async def to_page(_: Request) -> Response:
        return RedirectResponse(PATH)

    words = {**of_journal(journal, title), "label": "watching", "origin": origin}
    routes = routes_of(feed, lambda: words, lambda _: None)
    return web.Application([Route("/", to_page), Mount("/_sim", routes=routes)])
