"""The server over loopback TCP: its CPU time for a 402, a quote of a session, and a payment, and for its log.

The limit of the first two is a bare uvicorn that answers "hello", `python -m tests.bench.served hello`. The
CPU time of the servers alone counts, so the client may cost what it likes. What the log costs is told by
purchases with it and without, on one server: `python -m tests.bench.served` is `serve`, which logs the requests
with a header `Log: on`.
"""

import http.client
import json
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.bench.rounds import Measured, NotMeasured
from tests.serve.driver import ORDER, PAY, PRICE, QUOTE, Running, Server, header
from x402sim.cli import main as serve
from x402sim.payer.core import proofs, settlement
from x402sim.serving.listen import Listen, listening_socket
from x402sim.serving.log import ServerLog
from x402sim.serving.requests import Requests
from x402sim.serving.serve import run

MODULE = [sys.executable, "-u", "-m"]
"""Starts a Python of its own: a fork of the tests' server pays for the pages that it shares."""
CONNECTIONS = 16
"""Requests are sent on so many connections at a time."""
SESSION_S = 86_400
BODY = json.dumps(ORDER).encode()
ASLEEP_S = 0.001
"""How long after its answer a server has done what a request caused."""


class Servers(ExitStack):
    """A server that logs nothing and a bare uvicorn; both are stopped at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = Server("--quiet", "--seed", "1", program=[*MODULE, "x402sim"])
        self.callback(self.ours.close)
        self._bare = Running(program=[*MODULE, __name__, "hello"])
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


def say_hello() -> None:
    """Serve on a free port, with the parser and the event loop that the product uses."""
    sock = listening_socket(Listen(port=0))
    config = uvicorn.Config(
        hello, http="httptools", log_level="critical", access_log=False, lifespan="off", ws="none"
    )
    print(sock.getsockname()[1], flush=True)
    run(uvicorn.Server(config).serve(sockets=[sock]))


# --- the log ------------------------------------------------------------------------------


class Purchases(ExitStack):
    """A server whose log goes to a file, and rounds of so many purchases of each kind.

    Every other pair of purchases is logged, so that what changes on the machine hits both kinds.
    """

    def __init__(self, times: int) -> None:
        super().__init__()
        self.server = Server("--seed", "1", program=[*MODULE, __name__])
        self.callback(self.server.close)
        address = self.server.address
        self._sock = self.enter_context(socket.create_connection(address, timeout=30))
        self._times, self._logged, self.wrote_s = times, 0, 0.0
        self.round()  # to warm up

    def round(self) -> tuple[float, float]:
        """Return the CPU seconds of a purchase that is logged, and of one that is not.

        Of each kind it is the median, in which there is no rendering and no collection of garbage; the
        rendering of all that was logged, and the log's thread, are added to those logged.
        """
        pid, took_s = self.server.process.pid, {"on": [], "off": []}
        for number in range(2 * self._times):
            log, before_s = ("off", "on", "on", "off")[number % 4], _main_thread_s(pid)
            self._buy(log)
            time.sleep(ASLEEP_S)
            took_s[log].append(_main_thread_s(pid) - before_s)
        self._logged += 3 * self._times
        before_s, told = self.wrote_s, 0
        while told < self._logged:
            told, self.wrote_s = json.loads(self.server.line())
        wrote_s = (self.wrote_s - before_s) / self._times
        return median(took_s["on"]) + wrote_s, median(took_s["off"])

    def _buy(self, log: str) -> None:
        """Ask for a 402, pay, and show what was paid."""
        wallet = self.server.account(1).wallet
        offer = json.loads(self._ask(QUOTE, BODY, {"Log": log}, 402))
        payment_id, wanted = offer["paymentId"], offer["paymentRequirements"]
        signed = settlement(payment_id, header(wallet, wanted, int(time.time())), wanted)
        self._ask(PAY, json.dumps(signed).encode(), {"Log": log}, 200)
        self._ask(QUOTE, BODY, proofs(payment_id) | {"Log": log}, 200)

    def _ask(self, path: str, body: bytes, headers: dict[str, str], status: int) -> bytes:
        self._sock.sendall(request(path, body, headers))
        return body_of(self._sock, status)


def log(servers: int, rounds: int, times: int) -> Measured:
    """Return how many times as much a purchase costs with its log: so many rounds of each server."""
    found = []
    for _ in range(servers):
        with Purchases(times) as buy:
            found += [buy.round() for _ in range(rounds)]
    values = tuple(logged_s / unlogged_s for logged_s, unlogged_s in found)
    return Measured(values, *map(median, zip(*found, strict=True)))


def _main_thread_s(pid: int) -> float:
    """Return the CPU seconds of a process's main thread, which is asleep."""
    if sys.platform != "linux":
        raise NotMeasured("the CPU time of another's thread is read on Linux only")
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def log_some() -> None:
    """Serve; log the requests that say so; print how many were rendered, and the CPU seconds it took."""
    around, pass_on = Requests.around, ServerLog._pass_on
    count, rendered_s = 0, 0.0

    def chosen(requests: Requests, app: ASGIApp) -> ASGIApp:
        told, ended, alone = around(requests, app), requests._on_ended, requests._on_alone

        async def one(scope: Scope, receive: Receive, send: Send) -> None:
            is_logged = (b"log", b"on") in scope["headers"]
            requests._on_ended = ended if is_logged else ended[:-1]  # the page's stays
            requests._on_alone = alone if is_logged else []
            await told(scope, receive, send)

        return one

    def passed_on(log: ServerLog) -> None:
        nonlocal count, rendered_s
        waiting, before_s = len(log._waiting), time.thread_time()
        pass_on(log)
        rendered_s += time.thread_time() - before_s
        count += waiting - len(log._waiting)
        while log._thread.is_writing:  # the other thread
            time.sleep(ASLEEP_S)
        clock = time.pthread_getcpuclockid(log._thread.thread.ident or 0)
        print(json.dumps([count, rendered_s + time.clock_gettime(clock)]), flush=True)

    Requests.around = chosen  # type: ignore[method-assign]
    ServerLog._pass_on = passed_on  # type: ignore[method-assign]
    serve()


if __name__ == "__main__":
    if sys.argv[1] == "hello":
        say_hello()
    else:
        log_some()
