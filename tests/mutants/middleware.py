"""How a defect is made by HTTP alone: middleware, which changes what is requested or answered."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request as Received
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.mutants.changes import Change, on_app
from tests.mutants.messages import JSON, Answer, Request, Serve
from x402sim.http.web import CONNECTION
from x402sim.service.state import Service

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


# --- what many defects share -----------------------------------------------------------------


def at(path: str, *states: Callable[[], Any]) -> Callable[[Callable[..., Any]], Change]:
    """Let a handler deal with the requests below this path.

    It gets a new state of each kind for each world, before its other arguments.
    """
    return lambda handler: (
        lambda world: middleware(partial(handler, *(state() for state in states)), path)(world)
    )


def paths(rewrite: Callable[[str], str]) -> Change:
    """Serve other paths than were requested."""
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
    return replies(path, lambda _, it: replace(it, status=after) if it.status == before else it)
