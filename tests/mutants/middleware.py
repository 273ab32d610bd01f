"""Defects around the service's application, where only HTTP is seen.

A handler gets the service, the request and the way to have it served; it may change the
request, serve it twice, change the answer, or give one of its own.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request as Received
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.mutants.change import Change, Service, all_of, on_app
from tests.mutants.wrapper import overriding
from x402sim.http.web import CONNECTION
from x402sim.protocol.messages import BadMessage, decode

JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """A whole request; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""

    @property
    def json(self) -> Any:
        """The body; None if it is not JSON."""
        try:
            return decode(self.body, Any)
        except BadMessage:
            return None

    def field(self, name: str) -> str:
        """Return a string of the body; empty if there is none."""
        body = self.json
        found = body.get(name) if isinstance(body, dict) else None
        return found if isinstance(found, str) else ""

    def having(self, **headers: str | None) -> "Request":
        """Return the request with other headers; None takes one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {**self.headers, **named}
        return replace(self, headers={k: v for k, v in kept.items() if v is not None})

    def sending(self, body: Any) -> "Request":
        """Return the request with another body."""
        content = msgspec.json.encode(body)
        return replace(self.having(content_length=str(len(content))), body=content)


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """The headers besides content-type and content-length."""

    @property
    def json(self) -> Any:
        """The body; None if it is not JSON."""
        return msgspec.json.decode(self.body) if self.media_type == JSON else None

    @property
    def error(self) -> Any:
        """The error's text; None if there is none."""
        body = self.json
        return body.get("error") if isinstance(body, dict) else None


def answer(status: int, body: Any) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, msgspec.json.encode(body))


def page(text: str, status: int = 200) -> Answer:
    """Return a web page."""
    return Answer(status, text.encode(), "text/html; charset=utf-8")


CRASHED = answer(500, {"error": "Internal server error"})
"""What is seen of a handler that has raised an exception."""

Serve = Callable[[Request], Awaitable[Answer]]
Handler = Callable[[Service, Request, Serve], Awaitable[Answer]]


def middleware(handler: Handler, path: str = "/") -> Change:
    """Let a handler deal with the requests below this path."""

    def around(service: Service, app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not scope["path"].startswith(path):
                await app(scope, receive, send)
                return
            received = Received(scope, receive)
            try:
                body = await received.body()
            except ClientDisconnect:
                return
            asked = Request(
                scope["method"],
                scope["path"],
                dict(received.headers.items()),
                body,
                scope["query_string"].decode(),
            )

            async def serve(request: Request) -> Answer:
                return await _served(app, scope, request, receive)

            reply = await handler(service, asked, serve)
            response = Response(reply.body, reply.status, media_type=reply.media_type)
            response.raw_headers[:0] = reply.headers
            await response(scope, receive, send)

        return wrapped

    return on_app(around)


async def _served(app: ASGIApp, scope: Scope, request: Request, receive: Receive) -> Answer:
    waiting = [{"type": "http.request", "body": request.body, "more_body": False}]
    sent: list[Message] = []

    async def read() -> Message:
        return waiting.pop() if waiting else await receive()

    async def keep(message: Message) -> None:
        sent.append(message)

    headers = [
        (name.encode("latin-1"), it.encode("latin-1")) for name, it in request.headers.items()
    ]
    asked = {**scope, "method": request.method, "path": request.path, "headers": headers}
    asked.pop(CONNECTION, None)  # the answer is kept back here
    try:
        await app(asked, read, keep)
    except Exception:  # Starlette answers 500 and then raises all the same
        if not sent:
            raise
    start, body = sent[0], b"".join(message.get("body", b"") for message in sent[1:])
    headers_sent = dict(start["headers"])
    media_type = headers_sent.pop(b"content-type", b"").decode()
    headers_sent.pop(b"content-length", None)
    return Answer(start["status"], body, media_type, tuple(headers_sent.items()))


# --- what many defects share ---------------------------------------------------------


def paths(rewrite: Callable[[str], str]) -> Change:
    """Serve other paths than were asked for."""
    return requests("/", lambda request: replace(request, path=rewrite(request.path)))


def instead(
    path: str, given: Answer, when: Callable[[Request], bool] = lambda request: True
) -> Change:
    """Give one answer to every request for this path, or to some."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        return given if request.path == path and when(request) else await serve(request)

    return middleware(handler, path)


def requests(path: str, change: Callable[[Request], Request]) -> Change:
    """Change the requests below this path before they are served."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        return await serve(change(request))

    return middleware(handler, path)


def replies(path: str, change: Callable[[Request, Answer], Answer]) -> Change:
    """Change the answers below this path."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        return change(request, await serve(request))

    return middleware(handler, path)


def answers(status: int | None, path: str, change: Callable[[Any], Any]) -> Change:
    """Change the JSON bodies of the answers with this status (None: any), below this path.

    `change` alters the body in place, or returns another one.
    """

    def changed(_: Request, reply: Answer) -> Answer:
        if reply.media_type != JSON or status not in (None, reply.status):
            return reply
        body = reply.json
        return replace(reply, body=msgspec.json.encode(change(body) or body))

    return replies(path, changed)


def statuses(path: str, before: int, after: int) -> Change:
    """Answer one status where another one is meant."""
    return replies(path, lambda _, it: replace(it, status=after) if it.status == before else it)


# --- a gate that stands open ---------------------------------------------------------

FREE = "pay_free-pass"


def free(request: Request) -> Request:
    """Return a request that passes the gate without payment, if it is `unlocked`."""
    return request.having(x_payment_id=FREE, x_session_id=None)


unlocked = overriding("entitlements", grants=lambda it, payment_id, *of: (
    payment_id == FREE or it.inner.grants(payment_id, *of)
))  # fmt: skip
"""A cache with one entitlement for everything."""


def let_in(path: str, when: Callable[[Service, Request], bool]) -> Change:
    """Let some requests for this path pass the gate without payment."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        return await serve(free(request) if when(service, request) else request)

    return all_of(unlocked, middleware(handler, path))
