"""What reaches a victim while a fault stands: a whole request, or exactly what came of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim import Fault
from x402sim.clock import Clock
from x402sim.http import web
from x402sim.http.web import MAX_BODY_BYTES
from x402sim.journal import Journal
from x402sim.rng import Rng
from x402sim.serving.listen import Listen, listening_socket
from x402sim.serving.serve import Server
from x402sim.world.faults import Faults
from x402sim.world.link import Asgi
from x402sim.world.strike import ABORT, faulty

SCOPE: Scope = {
    "type": "http",
    "method": "POST",
    "path": "/api/pay",
    "query_string": b"",
    "headers": [],
}
GONE: Message = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Victim:
    """An application that reads until the end or a disconnect, and keeps what it read."""

    def __init__(self) -> None:
        self.read: list[list[Message]] = []

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        messages = [await receive()]
        self.read.append(messages)
        while messages[-1].get("more_body"):
            messages.append(await receive())
        if messages[-1] != GONE:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})


def asked(app: ASGIApp, messages: list[Message], **wanted: Any) -> tuple[list[Message], Faults]:
    """Send messages to a faulty application; return its answer, and the faults."""
    faults, answer, incoming = Faults(Rng(1)), [], iter(messages)
    faults.add(Fault(victim="service", **({"does": "duplicate"} | wanted)))

    async def receive() -> Message:
        return next(incoming)

    async def send(message: Message) -> None:
        answer.append(message)

    async def abort(how: str) -> None:
        answer.append({"aborted": how})

    scope = {**SCOPE, ABORT: abort}
    struck = faulty(app, "service", faults, Journal(), Clock(), lambda: None, lambda _: None)
    asyncio.run(struck(scope, receive, send))
    return answer, faults


def test_a_whole_request_is_struck() -> None:
    victim = Victim()
    answer, faults = asked(victim, [part(b"ab", more=True), part(b"cd", more=False)])
    assert victim.read == [[part(b"abcd", more=False)]] * 2
    assert len(answer) == 2
    assert faults.active() == []


@pytest.mark.parametrize("before", [[], [part(b"{}", more=True)]])
def test_a_request_that_is_cut_off_does_not_reach_the_victim_as_whole(
    before: list[Message],
) -> None:
    victim = Victim()
    answer, faults = asked(victim, [*before, GONE])
    assert victim.read == [[*before, GONE]]
    assert answer == []
    assert len(faults.active()) == 1, "it strikes the next request"


def test_a_request_longer_than_any_part_reads_is_not_collected() -> None:
    parts = [part(bytes(MAX_BODY_BYTES), more=True), part(b"12", more=True)]
    tail = [part(b"3", more=True), part(b"4", more=False)]
    victim = Victim()
    taken: list[Message] = []

    async def first_part_only(scope: Scope, receive: Receive, send: Send) -> None:
        taken.append(await receive())

    _, faults = asked(first_part_only, [*parts])  # the third part is never asked for
    assert taken == parts[:1]
    asked(victim, [*parts, *tail])
    assert victim.read == [[*parts, *tail]]
    assert len(faults.active()) == 1


# --- an answer that is cut off ---------------------------------------------------------------

LONG = 1 << 24
"""More bytes than the buffers of a connection hold."""
LEFT: list[bool] = []
"""Whether each answer was written as a whole, as its connection said afterwards."""


async def told(request: Request) -> None:
    LEFT.append(web.connection(request).is_answered())


async def long(request: Request) -> Response:
    answer = Response(bytes(LONG), headers={"x-kind": "whole"})
    answer.background = BackgroundTask(told, request)
    return answer


async def streamed(_: Request) -> Response:
    return StreamingResponse(iter([b"ab", b"cd"]))


async def empty(_: Request) -> Response:
    return Response(status_code=204)


@asynccontextmanager
async def client(app: ASGIApp, over: str) -> AsyncIterator[httpx.AsyncClient]:
    """Ask an application in this process, or on a server's socket."""
    if over == "in process":
        async with httpx.AsyncClient(transport=Asgi(app), base_url="http://victim") as http:
            yield http
        return
    ready = asyncio.Event()
    server = Server(app, ready.set)
    with listening_socket(Listen(port=0)) as sock:
        serving, port = asyncio.create_task(server.serve(sockets=[sock])), sock.getsockname()[1]
        await ready.wait()
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                yield http
        finally:
            server.should_exit = True
            await serving


async def cuts(over: str) -> None:
    """Truncate answers of three kinds, and see how a client is told."""
    faults = Faults(Rng(1))
    app = web.Application([Route("/long", long), Route("/chunks", streamed), Route("/none", empty)])
    struck = faulty(app, "service", faults, Journal(), Clock(), lambda: None, lambda _: None)
    peer = "peer closed connection without sending complete message body"
    async with client(struck, over) as http:

        async def broken(method: str, path: str) -> str:
            faults.add(Fault(victim="service", does="truncate"))
            with pytest.raises(httpx.TransportError) as seen:
                await http.request(method, path)
            assert faults.is_empty
            return str(seen.value)

        LEFT.clear()
        wanted = f"{peer} (received {LONG // 2} bytes, expected {LONG})"
        assert await broken("GET", "/long") == wanted
        assert LEFT == [False], "the victim knows that its answer did not leave as a whole"
        assert await broken("GET", "/chunks") == f"{peer} (incomplete chunked read)"
        for method, path in (("HEAD", "/long"), ("GET", "/none")):
            assert peer not in await broken(method, path), "there is no half of no body"
        assert len((await http.get("/long")).content) == LONG


@pytest.mark.parametrize("over", ["in process", "tcp"])
def test_a_truncated_answer_ends_in_the_middle_of_its_body(over: str) -> None:
    """The exceptions of httpx are alike in process and over TCP."""
    asyncio.run(cuts(over))
