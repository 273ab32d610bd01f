"""ASGI middleware in front of a part, in-process and over TCP: it injects faults, and records.

`Fault` tells what it can do to a request or its answer. No fault strikes a request that
is cut off, or longer than any part reads: it passes as it comes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.events import AnswerSent, Part, clipped
from x402sim.http.web import CONNECTION, MAX_BODY_BYTES, Connection
from x402sim.journal import Journal
from x402sim.world.transport.faults import ANSWERED, Caller, Fault, Faults, made_up, value_of

ABORT = "x402sim.abort"
"""The ASGI scope's key of the function that breaks the request's connection: "lost" or "refused" at
once, or "cut" when what was written of the answer has left."""

_PROOFS = (b"x-payment-id", b"x-session-id", b"x-payment", b"payment-signature")


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

    `caller` is who asks it, and says which faults strike.
    `crash` kills the service that it is for. `on_bug` is told what the application raises, after it
    has answered 500.
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
            await (app if faults.is_empty else struck)(scope, receive, send_and_record)
        except Exception as bug:
            on_bug(bug)
            raise

    async def struck(scope: Scope, receive: Receive, send: Send) -> None:
        messages, body = await _received(receive)
        if body is None:
            await app(scope, _replayed(messages, receive), send)
            return
        sent = scope["path"].encode() + b"?" + scope["query_string"] + b"\n" + body
        shown = b"".join(b"%b: %b\n" % each for each in scope["headers"] if each[0] in _PROOFS)
        fault = faults.next_for(victim, scope["path"], sent, shown, caller)
        if fault is None:
            await app(scope, _replayed(messages, receive), send)
        else:
            for listener in faults.on_strike:
                listener(victim, fault, scope["path"])
            request = _Request(app, scope, body, receive, send)
            await _strike(fault, crash, clock, request)

    return middleware


@dataclass(frozen=True, slots=True)
class _Buffered(Connection):
    """The connection to a fault, which breaks while the answer is written, or takes it all."""

    is_heard: bool

    def is_answered(self) -> bool:
        """Tell whether somebody gets the whole answer."""
        return self.is_heard


class _Request:
    """A buffered request, which can be passed to the victim more than once."""

    def __init__(
        self, app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        self._app, self._scope, self._body = app, scope, body
        self._receive, self.send = receive, send

    async def work(self, *, is_heard: bool = True, is_cut: bool = False) -> list[Message]:
        """Pass the request to the victim; return its answer, which counts as answered.

        If nobody will get the answer, or not all of it, the victim can see that it was not written.
        """
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        body: Message = {"type": "http.request", "body": self._body, "more_body": False}
        scope = {**self._scope, CONNECTION: _Buffered(is_heard=is_heard and not is_cut)}
        await self._app(scope, _replayed([body], self._receive if is_heard else _gone), keep)
        return answer

    @property
    def method(self) -> str:
        """Its HTTP method."""
        return str(self._scope["method"])

    async def abort(self, how: str) -> None:
        """Break the connection: "lost", "refused" or "cut"."""
        abort: Callable[[str], Awaitable[None]] = self._scope[ABORT]
        await abort(how)


async def _strike(fault: Fault, crash: Callable[[], None], clock: Clock, request: _Request) -> None:
    match fault.does:
        case "lose request" | "refuse":
            await request.abort("refused" if fault.does == "refuse" else "lost")
        case "lose answer":
            await request.work(is_heard=False)
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
                await request.work(is_heard=False)
            await _answer(request, made_up(*(value_of(fault, name) for name in ANSWERED)))
        case "truncate":
            await _cut(request, await request.work(is_cut=True))
        case "shorten":
            await _answer(request, _half(await request.work()))
        case "duplicate":
            await request.work(is_heard=False)
            await _answer(request, await request.work())
        case "crash before" | "crash after":
            if fault.does == "crash after":
                await request.work(is_heard=False)
            await asyncio.sleep(0)  # noqa: TID251 - the crash is to find whoever asks waiting
            crash()
            await request.abort("lost")
        case _ as unknown_kind:
            assert_never(unknown_kind)


async def _answer(request: _Request, messages: list[Message]) -> None:
    for message in messages:
        await request.send(message)


def _body(messages: list[Message]) -> bytes:
    return b"".join(message.get("body", b"") for message in messages[1:])


async def _cut(request: _Request, messages: list[Message]) -> None:
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


def _half(messages: list[Message]) -> list[Message]:
    """Return an answer whose whole body is half of it; nothing, if the victim is down."""
    if not messages:
        return []
    start, body = messages[0], _body(messages)
    half = body[: len(body) // 2]
    headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
    return [
        {**start, "headers": [*headers, (b"content-length", b"%d" % len(half))]},
        {"type": "http.response.body", "body": half},
    ]


async def _received(receive: Receive) -> tuple[list[Message], bytes | None]:
    """Return the messages of a request until its end, a cut, or more than any part reads.

    And its body; None if it did not arrive to its end.
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


def _replayed(messages: list[Message], rest: Receive) -> Receive:
    """Return a `receive` that gives messages again, and then the rest."""
    again = iter(messages)

    async def receive() -> Message:
        message = next(again, None)
        return await rest() if message is None else message

    return receive


async def _gone() -> Message:
    return {"type": "http.disconnect"}
