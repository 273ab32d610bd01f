"""Sends a recorded request again, as the reader of the page has changed it.

The request goes through the proxy, and so is recorded. Nothing is signed: a payment in the request
is sent as it is.
"""

from collections.abc import Mapping

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.events import Part
from x402sim.http import web
from x402sim.http.bounded import BoundedTransport, Limits
from x402sim.http.web import bad_body
from x402sim.serving.page import PageAnswer

DEADLINE_S = 60.0
MOST_SHOWN = 16 * 1024
"""Characters of an answer that the page gets."""


class Again(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a part: target and headers as they are sent, and the body as text."""

    method: str
    target: str
    headers: list[tuple[str, str]] = []
    body: str = ""
    to: Part = "service"


def sending(proxies: Mapping[Part, str]) -> Route:
    """Return the route of the page that sends a request to one of the proxies, at their URLs."""

    async def sent(request: Request) -> Response:
        wanted: Again = web.parse(await web.read_body(request), Again)
        if wanted.to not in proxies:
            raise bad_body(f"to: watch does not record the {wanted.to} here")
        if not wanted.target.startswith("/"):
            raise bad_body("target: it begins with /, such as /weather?city=Oslo")
        try:
            url = httpx.URL(proxies[wanted.to]).copy_with(raw_path=wanted.target.encode("latin-1"))
            headers = [
                (name.encode("latin-1"), it.encode("latin-1")) for name, it in wanted.headers
            ]
            again = httpx.Request(wanted.method, url, headers=headers, content=wanted.body.encode())
        except (ValueError, httpx.InvalidURL) as wrong:
            raise bad_body(f"it is no request of HTTP: {wrong}") from None
        limits = Limits(deadline_s=DEADLINE_S)
        transport = BoundedTransport(httpx.AsyncHTTPTransport(trust_env=False), limits)
        async with httpx.AsyncClient(transport=transport, timeout=DEADLINE_S) as http:
            try:
                answer = await http.send(again)
            except httpx.HTTPError as failed:
                return web.answer(PageAnswer(None, str(failed) or repr(failed), None))
        return web.answer(PageAnswer(answer.status_code, answer.text[:MOST_SHOWN], None))

    return Route("/ui/send", sent, methods=["POST"])
