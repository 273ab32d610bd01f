"""Large requests: one that is refused, one that is never answered, one that breaks the service."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.suite.cases import case
from x402sim.spec.ground import ours
from x402sim.suite.report.exchange import written
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service import expect
from x402sim.suite.service.engine import run
from x402sim.suite.service.inputs import LARGE, MIB, send_bad
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.sending import client
from x402sim.suite.service.setting import Setting

OURS = ours(because="a test")
REQUIRED = b'{"error": "Payment Required"}'


async def read_head(reader: asyncio.StreamReader) -> int:
    """Read the head of a request; return the size of its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    sizes = [line for line in head.split("\r\n") if line.startswith("content-length:")]
    return int(sizes[0].split(":")[1]) if sizes else 0


def server(*, on_large: str) -> Callable[[Any, Any], Coroutine[Any, Any, None]]:
    """Return a server that says 402, but closes on a large body, or never answers it."""
    dead = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dead
        size = await read_head(reader)
        if size >= LARGE and on_large == "hang":
            await reader.read()  # until the client gives up
        elif size >= LARGE:
            dead = on_large == "crash"
            writer.transport.abort()
            return
        elif not dead:
            await reader.readexactly(size)
            head = f"HTTP/1.1 402 P\r\ncontent-length: {len(REQUIRED)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + REQUIRED)
            await writer.drain()
        writer.close()

    return serve


async def a_large_body(probe: Probe) -> None:
    sent = await send_bad(probe, "a mebibyte", "POST", "/api/pay", content=b"A" * MIB)
    what = f"an answer to {sent.label}"
    expect.holds(what, sent.is_answered and sent.lives, sent.answer.summary, sent.answer.show)


a_large_body = case("7/malformed-body", a_large_body, ground=OURS)


async def a_plain_request(probe: Probe) -> None:
    await probe.send("POST", "/api/pay", content=b"A" * MIB)


a_plain_request = case("7/malformed-body", a_plain_request, ground=OURS)


def over_tcp(on_large: str, case: Any) -> Result:
    async def main() -> Result:
        async with await asyncio.start_server(server(on_large=on_large), "127.0.0.1", 0) as it:
            url = f"http://127.0.0.1:{it.sockets[0].getsockname()[1]}"
            async with client(url, Options(timeout_s=0.5 if on_large == "hang" else 10)) as http:
                setting = Setting(http=http)
                (result,) = [each async for each in run(setting, [case])]
                return result

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("on_large", "outcome"), [("close", "passed"), ("hang", "failed"), ("crash", "failed")]
)
def test_a_large_body_may_be_refused_early_but_not_be_hung_on(on_large: str, outcome: str) -> None:
    result = over_tcp(on_large, a_large_body)
    assert result.outcome == outcome
    if outcome == "failed":
        assert "a mebibyte, POST /api/pay, 1048592 bytes" in str(result.expected)


def test_an_exchange_that_broke_is_in_the_report_with_its_size() -> None:
    result = over_tcp("close", a_plain_request)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "POST /api/pay with a body of 1048576 bytes was not answered: " in result.reason
    assert "('')" not in result.reason
    text = "\n".join(written(result.exchanges))
    assert "<no answer: " in text
    assert len(text) < 5000
