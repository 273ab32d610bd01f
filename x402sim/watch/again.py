"""Sends a recorded request again, changed, through the proxy that records it; signs nothing."""

from collections.abc import Mapping
from typing import Annotated

import httpx
import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.events import Part
from x402sim.http import web
from x402sim.http.bounded import BoundedTransport, Limits
from x402sim.serving.page import PageAnswer

MOST_SHOWN, DEADLINE_S = 16 * 1024, 60
Latin = Annotated[str, Meta(pattern=r"^[\x20-\xff]*$")]


class Again(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a part: target and headers as they are sent, and the body as text."""

    method: str
    target: Annotated[str, Meta(pattern=r"^/[\x21-\xff]*$")]
    headers: list[tuple[Latin, Latin]] = []
    body: str = ""
    to: Part = "service"


def sending(proxies: Mapping[Part, str]) -> Route:
    """Return the route of the page that sends a request to one of the proxies, at their URLs."""

    async def sent(request: Request) -> Response:
        wanted: Again = web.parse(await web.read_body(request), Again)
        if (url := proxies.get(wanted.to)) is None:
            raise web.bad_body(f"to: watch does not record the {wanted.to} here")
        headers = [(name.encode("latin-1"), it.encode("latin-1")) for name, it in wanted.headers]
        target, body = {"target": wanted.target.encode("latin-1")}, wanted.body.encode()
        again = httpx.Request(wanted.method, url, headers=headers, content=body, extensions=target)
        plain, limits = httpx.AsyncHTTPTransport(trust_env=False), Limits(deadline_s=DEADLINE_S)
        async with httpx.AsyncClient(
            transport=BoundedTransport(plain, limits), timeout=DEADLINE_S
        ) as http:
            try:
                answer = await http.send(again)
            except httpx.HTTPError as failed:
                return web.answer(PageAnswer(None, str(failed) or repr(failed), None))
        return web.answer(PageAnswer(answer.status_code, answer.text[:MOST_SHOWN], None))

    return Route("/ui/send", sent, methods=["POST"])
