"""Malformed HTTP over raw sockets: what is answered is no 5xx, and every connection ends."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from tests.campaign import at_length, seed
from tests.hostile.inputs import Sent, hostile
from tests.hostile.town import Town, town
from x402sim.serving.connection import Deadlines
from x402sim.serving.listen import Listen, listening_socket
from x402sim.serving.serve import Server, world_app


@pytest.mark.timeout(at_length(120, 1200))
@pytest.mark.parametrize(
    "count", [50, pytest.param(at_length(500, 2000), marks=pytest.mark.thorough)]
)
def test_malformed_http_causes_no_5xx_and_holds_no_connection(count):
    statuses, violations = asyncio.run(over_tcp(seed(11), count))
    assert violations == []
    assert {200, 400, 408} <= set(statuses)


# --- the requests ---------------------------------------------------------------------------

AT_ONCE = 50
SOON = Deadlines(head_s=0.5, body_s=0.5, idle_s=1)
HANG_S = 10
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
LINES = [
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, chunked", b"Content-Length: -1",
    b"Content-Length: +5", b"Content-Length: 5, 6", b"Content-Length: " + b"9" * 40,
    b"Content-Length : 5", b" folded: 1", b"No-Colon", b": empty", b"Bad\x00Name: 1", b"X: \x00",
    b"Host: other", b"Expect: 100-continue", b"Expect: 200-maybe", b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: websocket", b"Upgrade: h2c", b"X: \xff\xfe", b"X:" + b"y" * 99,
    b"Trailer: X", b"TE: trailers", b"Connection: keep-alive, close, upgrade", b"\r", b"X: a\nY: b",
]  # fmt: skip
CHUNKS = [
    b"5\r\nabcde\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"-1\r\n", b"5;x=" + b"y" * 500 + b"\r\nabcde",
    b"0\r\nX: 1\r\n\r\n", b"3\r\nab", b"zz\r\n", b"5\nabcde\n0\n\n", b"0" * 5000 + b"\r\n\r\n",
]  # fmt: skip
STARTS = [
    b"GET / HTTP/1.1", b"GET / HTTP/1.0", b"GET /", b"GET  /  HTTP/1.1", b"GET / HTTP/9.9", b"get / HTTP/1.1",
    b"GET http://127.0.0.1/healthz HTTP/1.1", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0",
    b"CONNECT a:1 HTTP/1.1", b"GET /\x00 HTTP/1.1", b"GET /\xff HTTP/1.1", b"\x16\x03\x01\x02\x00\x01",
    b"POST /api/pay HTTP/1.1", b"GET /%zz HTTP/1.1", b"GET //evil/ HTTP/1.1", b"GET ?x HTTP/1.1", b"\r\n\r\n",
]  # fmt: skip


def written(sent: Sent) -> bytes:
    """Return a request as bytes on the wire."""
    lines = [f"{sent.method} {sent.target} HTTP/1.1".encode(), b"Host: 127.0.0.1"]
    lines += [name + b": " + value for name, value in sent.headers]
    lines.append(b"Content-Length: %d" % len(sent.body))
    return b"\r\n".join([*lines, b"", sent.body])


def malformed(sent: Sent, rng: Random) -> bytes:
    """Return a request whose bytes on the wire are wrong."""
    whole = written(hostile(sent, rng) if rng.random() < 0.3 else sent)
    head, _, body = whole.partition(b"\r\n\r\n")
    match rng.randrange(7):
        case 0:
            return head + b"\r\n" + rng.choice(LINES) + b"\r\n\r\n" + body
        case 1:
            return rng.choice(STARTS) + head[head.index(b"\r\n") :] + b"\r\n\r\n" + body
        case 2:
            chunked = head.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX-Was")
            return chunked + b"\r\n\r\n" + rng.choice(CHUNKS)
        case 3:
            return whole[: rng.randrange(len(whole))]
        case 4:
            return whole + rng.choice([whole, rng.randbytes(50), b"GET / HTTP/1.1\r\n\r\n", b"\0"])
        case 5:
            return whole.replace(b"\r\n", rng.choice([b"\n", b"\r", b"\r\n\r\n"]))
        case _:
            return _flipped(whole, rng)


def _flipped(whole: bytes, rng: Random) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.choice([1, 3, 30])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


async def exchange(port: int, data: bytes) -> bytes | None:
    """Send bytes and return what comes back; None if the connection does not end."""
    try:
        async with asyncio.timeout(HANG_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answer = b""
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
                while part := await reader.read(65536):
                    answer += part
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            return answer
    except TimeoutError:
        return None


async def over_tcp(seed: int, count: int) -> tuple[Counter[int], list[str]]:
    """Send `count` malformed requests to a world on a socket; return the statuses, and violations."""
    async with town() as world:
        sock = listening_socket(Listen(port=0))
        ready = asyncio.Event()
        server = Server(world_app(world.parts, Listen()), ready.set, SOON)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        await ready.wait()
        try:
            return await _attack(world, sock.getsockname()[1], seed, count)
        finally:
            server.should_exit = True
            await serving


async def _attack(world: Town, port: int, seed: int, count: int) -> tuple[Counter[int], list[str]]:
    rng, statuses, violations = Random(seed), Counter[int](), list[str]()
    for begin in range(0, count, AT_ONCE):
        working = [
            each for each in await world.working()
            if each.part != "control" or each.method == "GET"  # a command changes other answers
        ]  # fmt: skip
        batch = [malformed(rng.choice(working), rng) for _ in range(min(AT_ONCE, count - begin))]
        for data, answer in zip(
            batch, await asyncio.gather(*(exchange(port, data) for data in batch)), strict=True
        ):
            found = [int(status) for status in STATUS.findall(answer or b"")]
            statuses.update(found)
            if answer is None:
                violations.append(f"the connection does not end: {data[:500]!r}")
            if any(status >= 500 for status in found):
                violations.append(f"{(answer or b'')[:300]!r} to {data[:500]!r}")
        await world.recover()
    alive = await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    if not (alive or b"").startswith(b"HTTP/1.1 200"):
        violations.append("the server lives no more")
    return statuses, violations
