"""The base of every ASGI application of the kit: routing, request bodies, JSON answers, errors.

A body has at most 1 MiB. Every error is `{"error": text}`, with a `reason` where there are
details. No failure shows a stack trace. While a database cannot be used (a full disk, a lock) the
answer is 503.
"""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from x402sim.http.limits import MAX_BODY_BYTES as MAX_BODY_BYTES
from x402sim.protocol.messages import BadMessage, ErrorBody, decode, encode
from x402sim.protocol.refusals import RequestError, status_of
from x402sim.spec.decisions import Decisions
from x402sim.text.keys import keyless

_NONE: Mapping[str, str] = {}
_DEFAULT = Decisions()
_NO_STORE, _JSON = (b"cache-control", b"no-store"), (b"content-type", b"application/json")
Handler = Callable[[Request, Any], Awaitable[Response]]
log = logging.getLogger("x402sim")


class Refused(Exception):
    """An error answer: raised anywhere, sent as `{"error", "reason"}`."""

    def __init__(self, status: int, error: str, reason: str | None = None) -> None:
        super().__init__(status, error, reason)
        self.status, self.error, self.reason = status, error, reason


def refused(
    error: RequestError, reason: str | None = None, *, decisions: Decisions = _DEFAULT
) -> Refused:
    """Return the exception to raise for an error; `reason` gives details of this case."""
    return Refused(status_of(error, decisions), error.text, reason or error.meaning)


def bad_body(reason: str) -> Refused:
    """Return the exception for a body that cannot be read; `reason` names the defect."""
    return refused(RequestError.INVALID_BODY, reason)


class _Json(Response):
    """A JSON body that no cache stores, with its headers already as ASGI sends them."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.status_code, self.body, self.background = status, body, None
        self.raw_headers = [_NO_STORE]
        for name, value in headers.items():
            self.raw_headers.append((_lowered(name), value.encode("latin-1")))
        self.raw_headers += (b"content-length", b"%d" % len(body)), _JSON


@lru_cache(maxsize=64)
def _lowered(name: str) -> bytes:
    return name.lower().encode()


def answer(message: Any, status: int = 200, headers: Mapping[str, str] = _NONE) -> Response:
    """Return a message as a JSON response that no cache stores: it may hold a proof of payment."""
    return _Json(encode(message), status, headers)


def error(status: int, text: str, reason: str | None = None, final: bool | None = None) -> Response:
    """Return an error as a JSON response; `final` is for a refused settlement."""
    return answer(ErrorBody(error=text, reason=reason, final=final), status)


def storage_unavailable(
    request: Request, failure: sqlite3.Error, final: bool | None = None
) -> Response:
    """Return the 503 for a database that cannot be used now; `final` is for a settlement.

    Raises `failure` again if our own defect, not the storage, caused the failure.
    """
    if getattr(failure, "sqlite_errorcode", 0) & 0xFF not in _STORAGE_FAILURES:
        raise failure
    log.warning("%s %s: the database: %s", request.method, request.url.path, failure)
    unavailable = RequestError.STORAGE_UNAVAILABLE
    return error(status_of(unavailable, _DEFAULT), unavailable.text, str(failure), final)


_FAILURES = "BUSY CANTOPEN CORRUPT FULL IOERR LOCKED NOTADB PERM PROTOCOL READONLY"
_STORAGE_FAILURES = {getattr(sqlite3, f"SQLITE_{name}") for name in _FAILURES.split()}
"""SQLite's primary result codes for failures by the disk or by another program."""


class Connection:
    """The connection of a request; this base class reports nothing."""

    __slots__ = ()
    is_socket = False
    """Whether the client is behind a socket, and not a part of the same process."""

    async def drained(self) -> None:
        """Return once earlier writes have left, so that an answer can leave at once."""

    def is_closed(self) -> bool:
        """Return whether the client has hung up.

        After this call the server checks again when it writes the answer, and writes nothing to a
        client that has left in between.
        """
        return False

    def is_answered(self) -> bool:
        """Return whether the whole answer was written, once it was sent."""
        return True

    def forget(self, size: int) -> None:
        """Note that a WebSocket's message of `size` bytes is done."""


CONNECTION = "x402sim.connection"
"""The ASGI scope's key of the `Connection`. Only this package's servers set it.

Middleware that holds an answer back must replace the connection in the scope: by `is_answered` an
application decides whether its client has got the paid goods.
"""
UNKNOWN = Connection()


def connection(request: HTTPConnection) -> Connection:
    """Return the connection of a request, or of a WebSocket."""
    found: Connection = request.scope.get(CONNECTION, UNKNOWN)
    return found


async def require_client(connection: Connection) -> None:
    """Raise `ClientDisconnect` if the client has hung up, before the caller charges the client.

    After this check the caller must not `await` until the answer is written: the client could hang
    up in between, and would have paid for an answer that nobody gets.
    """
    await connection.drained()
    if connection.is_closed():
        raise ClientDisconnect


def header(request: Request, name: bytes) -> str | None:
    """Return the first header of a lower-case name, or None."""
    for each, value in request.scope["headers"]:
        if each == name:
            return str(value, "latin-1")
    return None


def url_of(request: Request) -> str:
    """Return the URL of a request to a route without parameters; the query is left out."""
    scope = request.scope
    host, server = header(request, b"host"), scope.get("server")
    return _url(scope["scheme"], server and tuple(server), host, scope["path"])


@lru_cache(maxsize=8)  # a host or a path may be long, and there are few
def _url(scheme: str, server: tuple[str, int] | None, host: str | None, path: str) -> str:
    headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    origin = URL(scope={"scheme": scheme, "server": server, "headers": headers, "path": ""})
    return str(origin) + quote(path, safe="/:@!$&'()*+,;=~")


async def read_body(request: Request) -> bytes:
    """Return the request's body; raises `Refused` 413 as soon as it passes 1 MiB."""
    announced = header(request, b"content-length") or ""
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > MAX_BODY_BYTES):
        raise _too_large()
    parts, size, is_whole = [], 0, False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise _too_large()
        is_whole = not message.get("more_body", False)
    return b"".join(parts)


def parse(body: bytes, kind: type[Any]) -> Any:
    """Return the body as a message; raises `Refused` 400 with the defect and its place."""
    try:
        return decode(body, kind)
    except BadMessage as wrong:
        raise bad_body(keyless(str(wrong))) from wrong


def parse_query(request: Request, kind: type[Any]) -> Any:
    """Return the query's parameters as a message; raises `Refused` 400 with the defect."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as wrong:
        raise Refused(400, "Invalid query", str(wrong)) from wrong


def _too_large() -> Refused:
    return refused(RequestError.BODY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes are read")


class Application(Starlette):
    """An ASGI application in which every error is a JSON body.

    Routes without parameters are looked up by path and method, and their endpoint is called
    directly. Other requests go through Starlette's layers, with the same answers.
    """

    def __init__(
        self, routes: Sequence[BaseRoute], handlers: Mapping[type[Exception], Handler] | None = None
    ) -> None:
        ours = {
            Refused: _on_refused,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_disconnect,
            sqlite3.Error: _on_storage_error,
            Exception: _on_bug,
        }
        super().__init__(routes=routes, exception_handlers={**ours, **(handlers or {})})
        self.router.redirect_slashes = False  # a path without a route is a 404, never a redirect
        self._direct: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {}
        for route in routes:
            if isinstance(route, Route) and "{" not in route.path:
                for method in route.methods or ():
                    self._direct.setdefault((route.path, method), route.endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; an unexpected exception is raised again once 500 is answered."""
        is_direct = scope["type"] == "http" and not scope.get("root_path")
        endpoint = self._direct.get((scope["path"], scope["method"])) if is_direct else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        request, response = Request(scope, receive), None
        try:
            try:
                response = await endpoint(request)
            except Exception as raised:
                kind = next(k for k in type(raised).__mro__ if k in self.exception_handlers)
                if kind is Exception:
                    raise
                response = await self.exception_handlers[kind](request, raised)
            await response(scope, receive, send)
        except Exception as bug:
            failed = await _on_bug(request, bug)
            if response is None:  # else an answer has begun, and another cannot follow
                await failed(scope, receive, send)
            raise


async def _on_refused(_: Request, refused: Any) -> Response:
    return error(refused.status, refused.error, refused.reason)


_TEXTS = {
    error.status: error.text for error in (RequestError.NOT_FOUND, RequestError.METHOD_NOT_ALLOWED)
}


async def _on_http_exception(request: Request, raised: Any) -> Response:
    reason = f"{request.method} {request.url.path}"
    response = error(raised.status_code, _TEXTS.get(raised.status_code, raised.detail), reason)
    response.headers.update(raised.headers or {})
    return response


async def _on_disconnect(_: Request, __: Any) -> Response:
    return error(400, RequestError.DISCONNECTED.text)


async def _on_storage_error(request: Request, raised: Any) -> Response:
    return storage_unavailable(request, raised)


async def _on_bug(request: Request, raised: Any) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=raised)
    return error(500, RequestError.INTERNAL.text)
