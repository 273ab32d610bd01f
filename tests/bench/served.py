"""The server over loopback TCP: its CPU time for a 402, a quote of a session, and a payment.

The limit of the first two is a bare uvicorn that answers "hello", `python -m tests.bench.served`. The
CPU time of the servers alone counts, so the client may cost what it likes.
"""

import http.client
import json
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import uvicorn
from starlette.types import Receive, Scope, Send

from tests.bench.rounds import NotMeasured
from tests.serve.driver import ORDER, PAY, PRICE, QUOTE, Running, Server
from x402sim.payer.core import proofs
from x402sim.world.server.listen import Listen, listening_socket
from x402sim.world.server.serve import run

CONNECTIONS = 16
"""Requests are sent on so many connections at a time."""
SESSION_S = 86_400
BODY = json.dumps(ORDER).encode()


class Servers(ExitStack):
    """A server that logs nothing and a bare uvicorn; both are stopped at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = Server("--quiet", "--seed", "1")
        self.callback(self.ours.close)
        self._bare = Running(program=[sys.executable, "-m", "tests.bench.served"])
        self.callback(self._bare.close)
        self._bare_port = int(self._bare.line())
        self.port = self.ours.address[1]

    def bare(self, times: int) -> float:
        return _asked(self._bare, self._bare_port, [request(QUOTE, BODY)] * times, 200)

    def unpaid(self, times: int) -> float:
        return _asked(self.ours, self.port, [request(QUOTE, BODY)] * times, 402)

    def quotes(self, times: int) -> float:
        """Ask for quotes with the id of a new session; what it takes to open it is not counted."""
        deposit = f"{times * PRICE / 10**6:.2f}"
        session = self.ours.payer(deposit).open(deposit, SESSION_S)
        wanted = request(QUOTE, BODY, proofs(session_id=session["sessionId"]))
        return _asked(self.ours, self.port, [wanted] * times, 200)

    def payments(self, times: int) -> float:
        """Pay; what it takes to ask for the 402s and to sign is not counted."""
        offers = exchange(self.port, [request(QUOTE, BODY)] * times, 402)
        payer = self.ours.account(1)
        settlements = [payer.settlement(json.loads(offer), None) for offer in offers]
        pays = [request(PAY, json.dumps(each).encode()) for each in settlements]
        return _asked(self.ours, self.port, pays, 200)


def _asked(server: Running, port: int, requests: Sequence[bytes], status: int) -> float:
    before = cpu_s(server.process.pid)
    exchange(port, requests, status)
    return cpu_s(server.process.pid) - before


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its threads; raises `NotMeasured` except on Linux."""
    if sys.platform != "linux":
        raise NotMeasured("the CPU time of another process is read on Linux only")
    return time.clock_gettime(~pid << 3 | 2)  # the clock of clock_getcpuclockid(3)


def request(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    lines = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in (lines | (headers or {})).items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def exchange(port: int, requests: Sequence[bytes], status: int) -> list[bytes]:
    """Send requests over a few connections; return the bodies of the answers.

    Raises `ConnectionError` for an answer with another status.
    """
    bodies = []
    with ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in requests[:CONNECTIONS]
        ]
        for first in range(0, len(requests), CONNECTIONS):
            batch = list(zip(socks, requests[first : first + CONNECTIONS], strict=False))
            for sock, each in batch:
                sock.sendall(each)
            bodies += [body_of(sock, status) for sock, _ in batch]
    return bodies


def body_of(sock: socket.socket, status: int) -> bytes:
    answer = http.client.HTTPResponse(sock, method="POST")
    answer.begin()
    body = answer.read()
    if answer.status != status:
        raise ConnectionError(f"wanted {status}, a server answered {answer.status}: {body[:200]!r}")
    return body


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def main() -> None:
    """Serve on a free port, with the parser and the event loop that the product uses."""
    sock = listening_socket(Listen(port=0))
    config = uvicorn.Config(
        hello, http="httptools", log_level="critical", access_log=False, lifespan="off", ws="none"
    )
    print(sock.getsockname()[1], flush=True)
    run(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
