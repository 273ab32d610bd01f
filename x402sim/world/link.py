"""The link between two parts, in one process or over TCP: adds latency and records messages.

Each link draws latencies from a separate random stream, so that links do not influence each other.
The journal gets `RequestSent`, then `AnswerReceived`, or `NoAnswer` with the reason.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote, unquote_plus

import httpx
import msgspec
from starlette.types import ASGIApp, Message, Scope

from x402sim.clock import Clock
from x402sim.durations import Duration
from x402sim.events import AnswerReceived, NoAnswer, Part, RequestSent, clipped
from x402sim.http.exchange import (
    Headers,
    OverClient,
    Request,
    Response,
    Transport,
    Url,
    plain,
    within,
)
from x402sim.http.web import CONNECTION, Connection
from x402sim.journal import Journal
from x402sim.protocol.header import read_versioned
from x402sim.protocol.messages import BadMessage, decoded
from x402sim.protocol.offers import PAYMENT_ID
from x402sim.protocol.permit2_payments import Permit2Payment, message_of
from x402sim.protocol.x402 import PAYMENT_HEADERS, PROOFS, json_in, read_payment
from x402sim.rng import Stream
from x402sim.tasks import InFlight
from x402sim.world.strike import ABORT


class Asgi(Transport):
    """An ASGI application as a transport that behaves like a server on a socket.

    The application runs in a separate task, which continues if the caller gives up. `tasks` holds
    running tasks, so that a closing world can cancel the rest.
    """

    is_local = True

    def __init__(self, app: ASGIApp, tasks: InFlight | None = None) -> None:
        self._app = app
        self._tasks = InFlight() if tasks is None else tasks

    async def send(self, request: Request) -> Response:
        """Pass a request to the application; raises `httpx.TransportError` if it is lost."""
        loop = asyncio.get_running_loop()
        exchange = _Exchange(request, asyncio.Future(loop=loop), self._tasks)
        name, work = f"{request.method} {request.url.path}"[:200], exchange.served_by(self._app)
        exchange.task = asyncio.Task(work, loop=loop, name=name)
        self._tasks.add(exchange.task)
        return await exchange.answered


class _Exchange(Connection):
    """One request and the answer, for the application: the connection to the caller."""

    task: asyncio.Task[None]
    """The task that serves the request, and leaves `tasks` at its end."""

    def __init__(
        self, request: Request, answered: "asyncio.Future[Response]", tasks: InFlight
    ) -> None:
        self._request, self.answered, self._tasks = request, answered, tasks
        self._is_received = False
        self._start: Message = {}
        self._parts: list[bytes] = []

    def is_closed(self) -> bool:
        """Return whether the caller has given up."""
        return self.answered.done()

    def is_answered(self) -> bool:
        """Return whether the caller has the answer."""
        return self.answered.done() and not self.answered.cancelled()

    async def served_by(self, app: ASGIApp) -> None:
        why = "the server sent no answer"
        try:
            request, url = self._request, self._request.url
            raw_path, path = url.raw_path, url.path
            if "target" in request.extensions:
                raw_path = request.extensions["target"].partition(b"?")[0]
                path = unquote(raw_path.decode("ascii"))
            scope: Scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": request.method,
                "scheme": url.scheme,
                "path": path,
                "raw_path": raw_path,
                "query_string": url.query,
                "root_path": "",
                "headers": request.headers,
                "server": (url.host, url.port),
                "client": ("127.0.0.1", 123),
                ABORT: self._abort,
                CONNECTION: self,
            }
            await app(scope, self._receive, self._send)
        except Exception as bug:  # noqa: BLE001 - the application has logged and answered it
            why = repr(bug)
        finally:
            if not self.answered.done():
                self._fail(httpx.RemoteProtocolError(why))
            # a callback of the task would be one more step of the loop, which the caller awaits
            self._tasks.discard(self.task)

    async def _receive(self) -> Message:
        if self._is_received:
            await asyncio.wait([self.answered])  # the caller hangs up when it has its answer
            return {"type": "http.disconnect"}
        self._is_received = True
        return {"type": "http.request", "body": self._request.body, "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._parts.append(message.get("body", b""))
        if message.get("more_body") or self.answered.done():  # or the caller has given up
            return
        content = b"" if self._request.method == "HEAD" else b"".join(self._parts)
        status, headers = self._start["status"], list(self._start["headers"])
        answer = Response(status, headers, content)
        if b"content-encoding" in dict(headers):
            answer = plain(httpx.Response(status, headers=headers, content=content))
        self.answered.set_result(answer)

    async def _abort(self, how: str) -> None:
        if how == "cut":  # in the words of httpx over TCP
            came, headers = "incomplete chunked read", dict(self._start["headers"])
            if (wanted := headers.get(b"content-length")) is not None:
                came = f"received {sum(map(len, self._parts))} bytes, expected {int(wanted)}"
            text = f"peer closed connection without sending complete message body ({came})"
            self._fail(httpx.RemoteProtocolError(text))
            return
        kind = httpx.ConnectError if how == "refused" else httpx.RemoteProtocolError
        self._fail(kind(f"the connection is {how}"))

    def _fail(self, error: httpx.TransportError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)
            self.answered.exception()  # read here: if the caller is gone, asyncio would log it


Turn = Callable[[int], Awaitable[None]]


async def _at_once(_: int) -> None:
    """Deliver in real time, in the order of arrival."""


Watch = Callable[[Part, Request], None]
"""Called with the receiving part and each request, at the sending."""
is_acting: ContextVar[bool] = ContextVar("an observer acts", default=False)
"""True while an observer's `act` sends: such requests are not observed."""


def linking(
    clock: Clock, journal: Journal, turn: Turn | None = None, watches: Sequence[Watch] = ()
) -> "Callable[..., Link]":
    """Return the maker of a world's links: `Link` without the arguments given here.

    `turn` is awaited before each delivery, with the exchange number: a virtual loop delivers one
    message at a time, in-process and over TCP alike. `watches` may grow later.
    """
    return partial(Link, clock, journal, turn or _at_once, itertools.count(1), watches)


class Link(Transport):
    """A link from one caller to one part, over any other transport."""

    def __init__(
        self,
        clock: Clock,
        journal: Journal,
        turn: Turn,
        exchanges: Iterator[int],
        watches: Sequence[Watch],
        caller: str,
        to: Part,
        inner: Transport,
        latency: Duration,
        stream: Stream,
    ) -> None:
        self._clock, self._journal, self._turn = clock, journal, turn
        self._exchanges, self._watches = exchanges, watches
        self._caller, self._to = caller, to
        self._inner, self._latency, self._stream = inner, latency, stream
        self.is_local = inner.is_local

    async def send(self, request: Request) -> Response:
        """Deliver a request and return its answer; raises `httpx.TransportError`."""
        exchange = request.extensions["exchange"] = next(self._exchanges)
        record, now_ms = self._journal.record, self._clock.now_ms
        record(now_ms(), request_event(self._caller, self._to, request, exchange))
        for watch in self._watches:
            watch(self._to, request)
        timeout_s = request.extensions.get("timeout", {}).get("read")
        why_not: str | None = "given up"
        try:
            crossing = self._cross(request, exchange)
            response = await (crossing if timeout_s is None else within(timeout_s, crossing))
            record(now_ms(), answer_event(self._caller, self._to, response, exchange))
            why_not = None
            return response
        except TimeoutError as error:
            why_not = "timeout"
            raise httpx.ReadTimeout(f"no answer in {timeout_s} s") from error
        except httpx.TransportError as error:
            why_not = type(error).__name__
            raise
        finally:
            if why_not is not None:
                lost = NoAnswer(actor=self._caller, exchange=exchange, to=self._to, reason=why_not)
                record(now_ms(), lost)

    async def _cross(self, request: Request, exchange: int) -> Response:
        if seconds := self._latency(self._stream):
            await self._clock.sleep(seconds)
        await self._turn(exchange)
        try:
            response = await self._inner.send(request)
        except httpx.TransportError:
            await self._turn(exchange)
            raise
        if seconds := self._latency(self._stream):
            await self._clock.sleep(seconds)
        await self._turn(exchange)
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


def request_event(caller: str, to: Part, request: Request, exchange: int) -> RequestSent:
    """Return the event of a request, with the carried ids."""
    fields = (request.body and decoded(request.body, _Body)) or _EMPTY
    headers = _recorded(request.headers)
    paid = _in_one_step(headers) if headers else (None, None)
    return RequestSent(
        actor=caller,
        exchange=exchange,
        to=to,
        method=request.method,
        path=str(fields.method)[:60] if to == "rpc" else _path(request, to),
        payment_id=_text(fields.payment_id) or _text(headers.get("x-payment-id")) or paid[1],
        session_id=_text(headers.get("x-session-id")),
        authorization=_authorization(fields.payment_header) or paid[0],
    )


def answer_event(caller: str, to: Part, response: Response, exchange: int) -> AnswerReceived:
    """Return the event of an answer, with status and recorded fields of the body."""
    fields = decoded(response.content, _Body) or _EMPTY
    headers = _recorded(response.headers)
    error = fields.error.get("message") if isinstance(fields.error, dict) else fields.error
    return AnswerReceived(
        actor=caller,
        exchange=exchange,
        to=to,
        status=response.status,
        error=_text(error),
        final=_flag(fields.final),
        payment_id=_text(fields.payment_id) or _text(headers.get("x-payment-id")),
        session_id=_text(fields.session_id),
        tx_hash=_text(fields.tx_hash),
        ok=_flag(fields.is_valid if fields.success is None else fields.success),
    )


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a body that the journal records, of any type."""

    method: Any = None
    payment_id: Any = None
    payment_header: Any = None
    session_id: Any = None
    error: Any = None
    final: Any = None
    success: Any = None
    is_valid: Any = None
    tx_hash: Any = None


_EMPTY = _Body()  # of a message that is no JSON object
_NONE: Mapping[str, str] = {}
_ACTION = re.compile(rb"(?:^|&)action=([^&]+)")


def _recorded(headers: Headers) -> Mapping[str, str]:
    if PROOFS.isdisjoint(dict(headers)):
        return _NONE
    return httpx.Headers([pair for pair in headers if pair[0] in PROOFS])


def _path(request: Request, to: str) -> str:
    path = clipped(request.url.path)
    action = _ACTION.search(request.url.query) if to == "explorer" else None
    return f"{path}?{unquote_plus(action[1].decode())}" if action else path


def _authorization(payment_header: object) -> str | None:
    """Return the nonce of a payment header in hex, "unreadable", or None if there is no header."""
    if not isinstance(payment_header, str):
        return None
    try:
        _, signed = read_versioned(payment_header)
    except BadMessage:
        return "unreadable"
    return signed.authorization.nonce.hex()


def _in_one_step(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the nonce of a payment in the headers of the x402 standard, as `_authorization`.

    And, in version 2, the payment id of the accepted 402, if the client sends the id back.
    """
    for version, name in PAYMENT_HEADERS.items():
        if name in headers:
            try:
                payment = read_payment(version, headers[name])
            except BadMessage:
                return _nonce_of_permit2(headers[name]) or "unreadable", None
            extra = (payment.accepted.extra if payment.accepted else None) or {}
            return payment.signed.authorization.nonce.hex(), _text(extra.get(PAYMENT_ID))
    return None, None


def _nonce_of_permit2(header: str) -> str | None:
    payment: Permit2Payment | None = json_in(header, Permit2Payment)
    with suppress(BadMessage):
        if payment is not None:
            auth, _ = message_of(payment)
            return auth.nonce.to_bytes(32).hex()
    return None


def _text(value: object) -> str | None:
    return clipped(value) if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


MOST_KNOWN = 256


class PartClient(httpx.AsyncClient):
    """An httpx client of a part, over a link or to the part itself.

    In one process, httpx's layers take longer than the answer: requests go directly to the
    transport, unless an `auth`, an event hook or a redirect needs the layers. So no cookies are
    kept.
    """

    def __init__(self, link: Transport, base_url: str, timeout_s: float | None) -> None:
        super().__init__(transport=link, base_url=_parsed(base_url), timeout=timeout_s)
        self._link, self._base = link, str(self.base_url).rstrip("/")
        self._known: dict[str, httpx.URL] = {}

    @property
    def is_local(self) -> bool:
        """Whether requests are function calls in this process."""
        return self._link.is_local

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        """Return a request; a URL that was used before is not parsed again."""
        if not isinstance(url, str) or options.get("params"):
            return super().build_request(method, url, **options)
        request = super().build_request(method, self._known.get(url, url), **options)
        if len(self._known) < MOST_KNOWN:
            self._known[url] = request.url
        return request

    def request_to(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Request:
        """Return a request with this client's headers and timeout; names are in lower case."""
        url, extensions = _at(self._base, path), {"timeout": self.timeout.as_dict()}
        own = {name.encode(): value.encode("ascii") for name, value in headers.items()}
        if body:
            own[b"content-length"] = b"%d" % len(body)
        named = {name.lower(): value for name, value in self.headers.raw}
        named = {b"host": url.netloc} | named | own
        return Request(method, url, list(named.items()), body, extensions)

    @property
    def _is_short(self) -> bool:
        is_plain = self.auth is None and not self.follow_redirects
        return self.is_local and is_plain and not any(self.event_hooks.values())

    async def ask(self, request: Request) -> Response:
        """Return the answer; raises `httpx.TransportError`."""
        return await (self._link if self._is_short else OverClient(self)).send(request)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Return the answer; raises `httpx.TransportError`."""
        default = (httpx.USE_CLIENT_DEFAULT, False)
        is_plain = all(options.get(each, False) in default for each in ("auth", "follow_redirects"))
        if not (self._is_short and is_plain):
            return await super().send(request, **options)
        response = await self._link.handle_async_request(request)
        response.request = request
        return response


_parsed = lru_cache(maxsize=MOST_KNOWN)(httpx.URL)


@lru_cache(maxsize=MOST_KNOWN)
def _at(base_url: str, path: str) -> Url:
    url = httpx.URL(path)
    return Url.of(url if url.is_absolute_url else httpx.URL(base_url + "/" + path.lstrip("/")))
