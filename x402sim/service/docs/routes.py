"""The routes of the documentation.

The index and the pages, the OpenAPI document, and the interactive page with two files. Their code
is imported at the first request, because it needs all decisions.
Clauses: 4.5/llms-txt.
"""

from functools import partial
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from x402sim.http import page as text_page, web
from x402sim.protocol.refusals import RequestError
from x402sim.service.state import Service
from x402sim.text.templates import render

_CSP = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
}

WELL_KNOWN = "/.well-known/x402"
_FILES = {"json": "application/json", "ts": "text/plain"}
"""The media types of files other than pages, by the ending of the name."""


def documentation(service: Service) -> list[Route]:
    """Return the routes of the documentation."""
    return [
        Route("/", partial(llms, service)),
        Route("/llms.txt", partial(llms, service)),
        Route("/docs", interactive),
        Route("/docs.js", partial(asset, "docs.js", "text/javascript")),
        Route("/docs.css", partial(asset, "docs.css", "text/css")),
        Route("/docs/guide", guide),
        Route("/docs/guide/", guide),
        Route("/docs/{name:path}", partial(markdown, service)),
        Route("/openapi.json", partial(openapi_json, service)),
        Route(WELL_KNOWN, partial(well_known, service)),
    ]


async def llms(service: Service, request: Request) -> Response:
    """GET /llms.txt, and GET /: the index of all documentation pages (4.5/llms-txt)."""
    from x402sim.service.docs.pages import llms_txt

    text = llms_txt(_base(request), [each.good for each in service.env.shop.sold])
    if request.url.path.endswith("/llms.txt"):
        return PlainTextResponse(text)
    return text_page.answer(request, text, _links(request), media_type="text/plain")


async def markdown(service: Service, request: Request) -> Response:
    """GET /docs/NAME.md: one documentation page, which a browser gets as HTML."""
    from x402sim.service.docs.pages import page

    name, decisions = request.path_params["name"], service.env.settings.decisions
    text = page(name, decisions, service.env.network, _base(request))
    if text is None:
        raise web.refused(RequestError.NOT_FOUND, "see /llms.txt for the documentation pages")
    if (media_type := _FILES.get(name.rpartition(".")[2])) is not None:
        return Response(text, media_type=media_type)
    return text_page.answer(request, text, _links(request))


async def guide(request: Request) -> Response:
    """GET /docs/guide: a redirect to the guide's first page; relative links need its folder."""
    return RedirectResponse(_links(request)["Guide"])


async def openapi_json(service: Service, _: Request) -> Response:
    """GET /openapi.json: this API, for machines."""
    from x402sim.service.docs.openapi import openapi

    env = service.env
    return web.answer(openapi(env.settings.decisions, env.quote_price_base, env.network, env.shop))


async def well_known(service: Service, request: Request) -> Response:
    """GET /.well-known/x402: the resources for sale and the ways to pay, for indexes of x402."""
    from x402sim.service.docs import listing

    offered = listing.accepts(service, _base(request))
    resources = [offer.resource for offer in offered]
    return web.answer({"version": 1, "resources": resources, "accepts": offered})


async def interactive(_: Request) -> Response:
    """GET /docs: the page for openapi.json, which sends requests."""
    from x402sim.service.docs.pages import PAGES

    text = render(__package__, "docs.html", pages=PAGES)
    return Response(text, media_type="text/html", headers=_CSP)


async def asset(name: str, media_type: str, _: Request) -> Response:
    """GET /docs.js and /docs.css: the files of assets/."""
    content = (files("x402sim.service.docs") / "assets" / name).read_bytes()
    return Response(content, media_type=media_type, headers=_CSP)


def _links(request: Request) -> dict[str, str]:
    root = request.scope.get("root_path", "")
    return {
        "Guide": f"{root}/docs/guide/index.md",
        "API": f"{root}/docs",
        "All pages": f"{root}/llms.txt",
    }


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")
