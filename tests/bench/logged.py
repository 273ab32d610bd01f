"""What the log of a server costs: the CPU of a purchase with it and without, on one server.

`python -m tests.bench.logged` is `serve` on a free port, which logs the requests with a header `Log: on`.
"""

import json
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from starlette.types import ASGIApp, Receive, Scope, Send

from tests.bench.rounds import Measured, NotMeasured
from tests.bench.served import BODY, body_of, request
from tests.serve.driver import PAY, QUOTE, Server, header
from x402sim.cli import main as serve
from x402sim.payer.core import proofs, settlement
from x402sim.world.server.log import ServerLog
from x402sim.world.transport.requests import Requests

ASLEEP_S = 0.001
"""How long after its answer a server has done what a request caused."""


class Purchases(ExitStack):
    """A server whose log goes to a file, and rounds of so many purchases of each kind.

    Every other pair of purchases is logged, so that what changes on the machine hits both kinds.
    """

    def __init__(self, times: int) -> None:
        super().__init__()
        self.server = Server("--seed", "1", program=[sys.executable, "-m", "tests.bench.logged"])
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


def measured(servers: int, rounds: int, times: int) -> Measured:
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


def main() -> None:
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
    main()
