"""What can go wrong on the way to a part of the world, as data.

A fault has a victim, a deed and a moment. It strikes at the victim's own door, so that
whoever asks, in this process or over TCP, meets it: the request is lost, or the answer
after the work was done, or something else is answered.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.rng import Stream

ABORT = "x402sim.abort"
"""Where a server puts the function that breaks the connection a request came on."""

Victim = Literal["service", "facilitator", "explorer", "rpc"]
Deed = Literal[
    "lose request",
    "lose answer",
    "refuse",
    "delay request",
    "delay answer",
    "answer",
    "truncate",
    "duplicate",
    "crash before",
    "crash after",
]
"""What a fault does:

- lose request: the connection breaks before the victim sees the request
- lose answer: the victim does the work, then the connection breaks
- refuse: nobody listens (over TCP it looks like a lost request)
- delay request, delay answer: `seconds` pass before the work is done, or after it
- answer: `status` and `body` are answered, instead of the work or after it (`work_done`)
- truncate: the work is done, and half of the answer arrives
- duplicate: the request arrives twice, and the second answer is the one that is seen
- crash before, crash after: the *service* dies as the request reaches the victim, or
  when its answer is ready, and starts again on its database
"""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to go wrong, and when: the requests it strikes, how often and how likely.

    It strikes requests whose path ends with `path` and whose path, query or body contains
    `contains`; it lets the first `skip` of those pass, and strikes at most `times`
    (None: as long as it stands), each with `probability`.
    """

    victim: Victim
    does: Deed
    path: str = ""
    contains: str = ""
    skip: Annotated[int, Meta(ge=0)] = 0
    times: Annotated[int, Meta(ge=1)] | None = 1
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    seconds: Annotated[float, Meta(ge=0, le=366 * 86400)] = 0.0
    status: Annotated[int, Meta(ge=200, le=599)] = 500
    body: str = ""
    content_type: str = "application/json"
    work_done: bool = False

    def __post_init__(self) -> None:
        if self.does.startswith("delay") and not self.seconds:
            raise ValueError(f"a fault that does {self.does!r} needs `seconds`")


When = Callable[[bytes], bool]
"""A condition of one's own on a request, given its path, query and body."""


class Faults:
    """The faults that stand, and whom they strike next."""

    def __init__(self, luck: Stream) -> None:
        self._luck = luck
        self._standing: list[_Standing] = []
        self.on_crash: Callable[[], None] = lambda: None

    def add(self, fault: Fault, when: When = lambda _: True) -> None:
        """Let a fault stand; it strikes requests that fit it, in the order of adding."""
        self._standing.append(_Standing(fault, when))

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        self._standing.clear()

    def standing(self) -> list[Fault]:
        """Return the faults that may still strike."""
        return [each.fault for each in self._standing]

    def next_for(self, victim: str, path: str, request: bytes) -> Fault | None:
        """Return the fault that strikes this request, if any; it counts as a strike."""
        for each in self._standing:
            fault = each.fault
            if fault.victim != victim or not path.endswith(fault.path):
                continue
            if fault.contains.encode() not in request or not each.when(request):
                continue
            each.seen += 1
            if each.seen <= fault.skip or self._luck.random() >= fault.probability:
                continue
            each.struck += 1
            if fault.times is not None and each.struck >= fault.times:
                self._standing.remove(each)
            return fault
        return None


class _Standing:
    """A fault, the requests that fitted it so far, and the ones it struck."""

    def __init__(self, fault: Fault, when: When) -> None:
        self.fault, self.when = fault, when
        self.seen = self.struck = 0


def faulty(app: ASGIApp, victim: Victim, faults: Faults, clock: Clock) -> ASGIApp:
    """Return `app` with the faults standing at its door."""

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not faults.standing():
            await app(scope, receive, send)
            return
        body = await _body(receive)
        request = scope["path"].encode() + b"?" + scope["query_string"] + b"\n" + body
        fault = faults.next_for(victim, scope["path"], request)
        if fault is None:
            await app(scope, _once(body), send)
        else:
            await _strike(fault, faults, clock, _Request(app, scope, body, send))

    return door


class _Request:
    """A request at the door: it can be carried in as often as one likes."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes, send: Send) -> None:
        self._app, self._scope, self._body, self.send = app, scope, body, send

    async def work(self) -> list[Message]:
        """Let the victim do the work; return its answer."""
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self._app(self._scope, _once(self._body), keep)
        return answer

    async def abort(self, how: str) -> None:
        """Break the connection."""
        abort: Callable[[str], Awaitable[None]] = self._scope[ABORT]
        await abort(how)


async def _strike(fault: Fault, faults: Faults, clock: Clock, request: _Request) -> None:
    match fault.does:
        case "lose request" | "refuse":
            await request.abort("refused" if fault.does == "refuse" else "lost")
        case "lose answer":
            await request.work()
            await request.abort("lost")
        case "delay request":
            await clock.sleep(fault.seconds)
            await _answer(request, await request.work())
        case "delay answer":
            answer = await request.work()
            await clock.sleep(fault.seconds)
            await _answer(request, answer)
        case "answer":
            if fault.work_done:
                await request.work()
            await _answer(request, _made_up(fault))
        case "truncate":
            await _answer(request, _half(await request.work()))
        case "duplicate":
            await request.work()
            await _answer(request, await request.work())
        case "crash before" | "crash after":
            if fault.does == "crash after":
                await request.work()
            faults.on_crash()
            await request.abort("lost")


async def _answer(request: _Request, messages: list[Message]) -> None:
    for message in messages:
        await request.send(message)


def _made_up(fault: Fault) -> list[Message]:
    headers = [(b"content-type", fault.content_type.encode())]
    return [
        {"type": "http.response.start", "status": fault.status, "headers": headers},
        {"type": "http.response.body", "body": fault.body.encode()},
    ]


def _half(messages: list[Message]) -> list[Message]:
    """Return an answer whose body ends in the middle."""
    start, body = messages[0], b"".join(message.get("body", b"") for message in messages[1:])
    headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
    return [
        {**start, "headers": headers},
        {"type": "http.response.body", "body": body[: len(body) // 2]},
    ]


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _once(body: bytes) -> Receive:
    """Return a `receive` that gives one whole body, and then the news that nobody is there."""
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive
