"""Ten thousand requests, 64 at once, through `watch`: none is lost, and its cost is small and flat."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.serve.driver import Running, resident_bytes
from tests.watch.said import packed, required, settled, signed
from tests.watch.wire import upstream
from x402sim.clock import Clock
from x402sim.events import AnswerReceived, PaymentSettled
from x402sim.journal import Journal

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]
CLIENTS, REQUESTS = 64, 10_240
MOST_CPU_MS = 2.0
"""Of one request: a third of this on an idle machine, half of whose time a busy one may take."""
MOST_GROWTH = 2 << 20
SOLD = b'{"weather": "sunny"}'
OFFER = b"HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: %b\r\nContent-Length: 2\r\n\r\n{}" % (
    packed(required()).encode()
)
GOODS = b"HTTP/1.1 200 OK\r\nPAYMENT-RESPONSE: %b\r\nContent-Length: %d\r\n\r\n%b" % (
    packed(settled()).encode(), len(SOLD), SOLD,
)  # fmt: skip


async def shop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        writer.write(GOODS if b"PAYMENT-SIGNATURE" in head else OFFER)
        await writer.drain()


class Used:
    """What a process has used: seconds of CPU, and bytes of memory."""

    def __init__(self, pid: int) -> None:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        self.cpu_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        self.bytes = resident_bytes(pid)


async def client(port: int, headers: list[bytes], requests: int) -> int:
    """Ask and pay in turn, and check each answer; return how many there were."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(requests):
        pays = number % 2
        paid = b"PAYMENT-SIGNATURE: %b\r\n" % headers[number % len(headers)] if pays else b""
        writer.write(b"GET /w HTTP/1.1\r\nHost: x\r\n%b\r\n" % paid)
        wanted = GOODS if pays else OFFER
        assert await reader.readexactly(len(wanted)) == wanted
    writer.close()
    return requests


@pytest.mark.parametrize("keeps", ["in memory", "in a file"])
def test_no_request_is_lost_and_the_cost_is_flat(keeps: str, tmp_path: Path) -> None:
    file, now_s = tmp_path / "all.ndjson", int(Clock().now())
    headers = [signed(now_s).encode() for _ in range(100)]
    more = ["--out", str(file)] if keeps == "in a file" else []

    async def main() -> list[Used]:
        async with upstream(shop) as port:
            run = Running(
                "watch", "--upstream", f"http://127.0.0.1:{port}", "--port", "0",
                "--json", "--quiet", *more,
            )  # fmt: skip
            with run:
                ready = json.loads(await asyncio.to_thread(run.first_line))
                to, used = int(ready["service"].rpartition(":")[2]), [Used(run.process.pid)]
                for _ in range(4):
                    share = REQUESTS // CLIENTS // 4
                    done = await asyncio.gather(
                        *(client(to, headers, share) for _ in range(CLIENTS))
                    )
                    assert sum(done) == REQUESTS // 4
                    used.append(Used(run.process.pid))
                assert await asyncio.to_thread(run.end, signal.SIGINT) == 0, run.errors()
        return used

    used = asyncio.run(main())
    spent_ms = (used[-1].cpu_s - used[0].cpu_s) * 1000 / REQUESTS
    assert spent_ms < MOST_CPU_MS
    assert used[-1].bytes - used[-3].bytes < MOST_GROWTH  # by the second half of the requests
    if keeps == "in a file":
        journal = Journal.open(file)
        assert sum(1 for _ in journal.of(AnswerReceived)) == REQUESTS
        assert sum(1 for _ in journal.of(PaymentSettled)) == REQUESTS // 2
