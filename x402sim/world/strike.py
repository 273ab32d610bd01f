"""The middleware of a part: strikes requests with faults, queues requests, records answers.

`faulty` wraps each part, in one process and over TCP; `strike` also serves the recording proxy.
Requests that are cut off, or longer than any part reads, pass without faults.

A `Queue` lets a part's `servers` serve one request each at a time, first in, first out. A request
takes a server for the service time and then for the part's work, until the answer. Faults
act before a request queues and after the answer. The request of a client that gives up stays in the
queue and is served in turn, because a server seldom knows that a client is gone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.durations import service_times
from x402sim.events import AnswerSent, Part, RequestArrived, RequestEnded, RequestStarted, clipped
from x402sim.explorer.index import ExplorerSettings
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.http import web
from x402sim.http.web import CONNECTION, MAX_BODY_BYTES, Connection
from x402sim.journal import Journal
from x402sim.rng import Stream
from x402sim.service.settings import Settings
from x402sim.world.faults import ANSWERED, Caller, Fault, Faults, require_path, value_of

ABORT = "x402sim.abort"
"""The ASGI scope's key of the function that breaks the request's connection: "lost" or "refused" at
once, or "cut" when what was written of the answer has left."""


def faulty(
    app: ASGIApp,
    victim: Part,
    faults: Faults,
    journal: Journal,
    clock: Clock,
    crash: Callable[[], None],
    on_bug: Callable[[Exception], None],
    caller: Caller = "service",
) -> ASGIApp:
    """Return `app` with faults, which records each answer: method, path and status.

    `caller` sends the requests: some faults are for one caller only. `crash` kills the service
    of the application. `on_bug` is called with an exception of the application, after the 500.
    """

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        def send_and_record(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                method, path, status = scope["method"], clipped(scope["path"]), message["status"]
                answer = AnswerSent(actor=victim, method=method, path=path, status=status)
                journal.record(clock.now_ms(), answer)
            return send(message)

        try:
            await (app if faults.is_empty else inject)(scope, receive, send_and_record)
        except Exception as bug:
            on_bug(bug)
            raise

    async def inject(scope: Scope, receive: Receive, send: Send) -> None:
        messages, body = await read_request(receive)
        if body is None:
            await app(scope, replay(messages, receive), send)
            return
        fault = faults.next_for(
            victim,
            scope["path"],
            body,
            query=scope["query_string"],
            headers=scope["headers"],
            caller=caller,
        )
        if fault is None:
            await app(scope, replay(messages, receive), send)
        else:
            for listener in faults.on_inject:
                listener(victim, fault, scope["path"])
            request = _Request(app, scope, body, receive, send)
            await strike(fault, clock, request, crash)

    return middleware


@dataclass(frozen=True, slots=True)
class _Buffered(Connection):
    """The connection given to a victim while a fault buffers the answer."""

    is_received: bool

    def is_answered(self) -> bool:
        """Return whether the client will get the whole answer."""
        return self.is_received


def cannot_crash() -> None:
    """Stand in for a crash where no fault may crash the caller, such as a facilitator."""
    raise AssertionError("no fault of these requests can be a crash")


class Struck(Protocol):
    """A whole request that a fault strikes; its answers are the messages of ASGI."""

    method: str

    async def work(self, *, is_received: bool = True) -> list[Message]:
        """Pass the request to the victim, at each call, and return the whole answer.

        The answer is empty if the victim is down. `is_received`: the client will get the answer.
        """

    def send(self, message: Message) -> Awaitable[None]:
        """Send a part of an answer to the client."""

    async def abort(self, how: str) -> None:
        """Break the client's connection: "lost", "refused" or "cut"; it is the last call."""


class _Request:
    """A request over ASGI, whose connection reports whether the client will get the answer."""

    def __init__(
        self, app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        self._app, self._scope, self._body = app, scope, body
        self._receive, self.send = receive, send
        self.method = scope["method"]

    async def work(self, *, is_received: bool = True) -> list[Message]:
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        body: Message = {"type": "http.request", "body": self._body, "more_body": False}
        scope = {**self._scope, CONNECTION: _Buffered(is_received=is_received)}
        await self._app(scope, replay([body], self._receive), keep)
        return answer

    async def abort(self, how: str) -> None:
        abort: Callable[[str], Awaitable[None]] = self._scope[ABORT]
        await abort(how)


async def strike(
    fault: Fault, clock: Clock, request: Struck, crash: Callable[[], None] = cannot_crash
) -> None:
    """Do to a request what each kind of fault does, over ASGI and through a proxy alike."""
    match fault.does:
        case "lose request" | "refuse":
            await request.abort("refused" if fault.does == "refuse" else "lost")
        case "lose answer":
            await request.work(is_received=False)
            await request.abort("lost")
        case "delay request":
            await clock.sleep(value_of(fault, "seconds"))
            await _answer(request, await request.work())
        case "delay answer":
            answer = await request.work()
            await clock.sleep(value_of(fault, "seconds"))
            await _answer(request, answer)
        case "answer":
            if value_of(fault, "work_done"):
                await request.work(is_received=False)
            await _answer(request, answer_messages(*(value_of(fault, name) for name in ANSWERED)))
        case "truncate":
            await _cut(request, await request.work(is_received=False))
        case "shorten":
            await _answer(request, _half(await request.work()))
        case "duplicate":
            await request.work(is_received=False)
            await _answer(request, await request.work())
        case "crash before" | "crash after":
            if fault.does == "crash after":
                await request.work(is_received=False)
            crash()
            await request.abort("lost")
        case _ as unknown_kind:
            assert_never(unknown_kind)


async def _answer(request: Struck, messages: list[Message]) -> None:
    for message in messages:
        await request.send(message)


def _body(messages: list[Message]) -> bytes:
    return b"".join(message.get("body", b"") for message in messages[1:])


async def _cut(request: Struck, messages: list[Message]) -> None:
    """Send an answer to the middle of its body, and end the connection.

    Nothing is sent of an answer without a body: its head alone would be a whole answer. If the
    victim is down, there is no answer, and the connection is broken already.
    """
    if not messages:
        return
    body = _body(messages)
    if not body or request.method == "HEAD":
        await request.abort("lost")
        return
    await request.send(messages[0])
    half = body[: len(body) // 2]
    await request.send({"type": "http.response.body", "body": half, "more_body": True})
    await request.abort("cut")


_LENGTHLESS = (204, 304)  # statuses whose answer has no body, and here no length (RFC 9110, 8.6)


def _half(messages: list[Message]) -> list[Message]:
    """Return the answer with half of the body as the whole body; nothing if the victim is down."""
    if not messages:
        return []
    start, body = messages[0], _body(messages)
    half = body[: len(body) // 2]
    headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
    if start["status"] not in _LENGTHLESS:
        headers.append((b"content-length", b"%d" % len(half)))
    return [
        {**start, "headers": headers},
        {"type": "http.response.body", "body": half},
    ]


async def read_request(receive: Receive) -> tuple[list[Message], bytes | None]:
    """Return the messages of a request until its end, a cut, or more than any part reads.

    And the body; None if the body did not arrive to the end.
    """
    messages: list[Message] = []
    body = b""
    while len(body) <= MAX_BODY_BYTES:
        messages.append(await receive())
        body += messages[-1].get("body", b"")
        if not messages[-1].get("more_body"):
            break
    last = messages[-1]
    is_whole = last["type"] == "http.request" and not last.get("more_body")
    return messages, body if is_whole else None


def replay(messages: list[Message], rest: Receive) -> Receive:
    """Return a `receive` that gives messages again, and then the rest."""
    again = iter(messages)

    async def receive() -> Message:
        message = next(again, None)
        return await rest() if message is None else message

    return receive


def answer_messages(
    status: int, body: str, content_type: str, headers: dict[str, str]
) -> list[Message]:
    """Return an answer as the messages of ASGI."""
    content = body.encode()
    named = {"content-type": content_type, **headers}
    if status not in _LENGTHLESS:
        named["content-length"] = str(len(content))
    raw = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    return [
        {"type": "http.response.start", "status": status, "headers": raw},
        {"type": "http.response.body", "body": content},
    ]


# --- the queue before a part's servers --------------------------------------------------

_full = web.error(503, "Queue full", "as many requests wait as can; try again later")


class Queue:
    """The servers of one part and the waiting requests; `numbers` numbers requests of all parts.

    Raises `ValueError` for the time of a path that the part lacks.
    """

    def __init__(
        self,
        part: Part,
        settings: FacilitatorSettings | ExplorerSettings | Settings,
        paths: Sequence[str],
        clock: Clock,
        journal: Journal,
        stream: Stream,
        numbers: Iterator[int],
    ) -> None:
        assert settings.servers is not None
        self._part, self._clock, self._journal = part, clock, journal
        self._stream, self._numbers = stream, numbers
        self._servers, self._most = settings.servers, float("inf")
        if settings.queue_length is not None:
            self._most = settings.servers + settings.queue_length
        self._times = service_times(settings.service_time_s)
        for path in self._times:
            try:
                require_path(part, path, paths)
            except ValueError as wrong:
                raise ValueError(f"service_time_s: {wrong}") from None
        self._inside: set[int] = set()  # the requests that wait or are served
        self._waiting: deque[asyncio.Future[None]] = deque()

    def before(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose requests queue here."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"] if scope["type"] == "http" else None
            times = (each for end, each in self._times.items() if path and path.endswith(end))
            if (duration := next(times, None)) is None:  # it takes no server
                await app(scope, receive, send)
            else:  # read it whole first: bytes in transit would stop virtual time while it waits
                messages, _ = await read_request(receive)
                whole = replay(messages, receive)
                await self._serve(app, duration(self._stream), scope, whole, send)

        return serve

    def lose(self) -> None:
        """Forget all requests: the part has crashed, and their tasks are cancelled."""
        for request in sorted(self._inside):
            self._record(RequestEnded(self._part, request, "lost"))
        self._inside.clear()

    async def _serve(
        self, app: ASGIApp, service_s: float, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # `service_s` is drawn on arrival: with more servers the same requests take the same times
        request, ahead = next(self._numbers), len(self._inside)
        self._record(RequestArrived(self._part, request, clipped(scope["path"]), ahead))
        if ahead >= self._most:
            self._record(RequestEnded(self._part, request, "refused"))
            await _full(scope, receive, send)
            return
        self._inside.add(request)
        try:
            if ahead >= self._servers:
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
            self._record(RequestStarted(self._part, request))
            if service_s:
                await self._clock.sleep(service_s)
            await app(scope, receive, send)
        finally:
            self._free(request, scope.get(web.CONNECTION, web.UNKNOWN))

    def _free(self, request: int, connection: web.Connection) -> None:
        if request not in self._inside:
            return  # lost
        self._inside.discard(request)
        is_answered = connection.is_answered()
        self._record(RequestEnded(self._part, request, "served" if is_answered else "left"))
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its task may have been cancelled
                turn.set_result(None)
                return

    def _record(self, event: RequestArrived | RequestStarted | RequestEnded) -> None:
        self._journal.record(self._clock.now_ms(), event)
