"""What the log of a server costs: the CPU of a purchase with it and without, on one server.

`python -m tests.bench.logged` is `serve` on a free port, whose log SIGUSR1 turns off, and on again.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.rounds import Round
from tests.bench.served import BODY, cpu_s, exchange, request
from tests.serve.driver import PAY, QUOTE, Server, header
from x402sim.payer.core import proofs, settlement
from x402sim.world.server.log import PAUSE_S
from x402sim.world.server.requests import Look, Requests


@contextmanager
def purchases(times: int) -> Iterator[tuple[Round, Round]]:
    """Serve; yield rounds of so many purchases that are logged, and of others that are not."""
    server = Server("--seed", "1", program=[sys.executable, "-m", "tests.bench.logged"])
    is_logged = True

    def bought(with_log: bool) -> float:
        nonlocal is_logged
        if with_log is not is_logged:
            server.process.send_signal(signal.SIGUSR1)
            server.http.get("/healthz")  # answered after the signal has worked
            is_logged = with_log
        return _buy(server, times) / times

    try:
        for with_log in (True, False):
            bought(with_log)  # to warm up
        yield lambda: bought(True), lambda: bought(False)
    finally:
        server.close()


def _buy(server: Server, times: int) -> float:
    """Buy quotes, each with a 402, a payment and the request that is served; signing is not counted.

    What the log still has to write afterwards is waited for.
    """
    pid, wallet = server.process.pid, server.account(1).wallet
    port = int(server.ready["service"].rsplit(":", 1)[1])
    began = cpu_s(pid)
    offers = [json.loads(each) for each in exchange(port, [request(QUOTE, BODY)] * times, 402)]
    asked_s = cpu_s(pid) - began
    pays, shown = [], []
    for each in offers:
        wanted = each["paymentRequirements"]
        signed = settlement(each["paymentId"], header(wallet, wanted, int(time.time())), wanted)
        pays.append(request(PAY, json.dumps(signed).encode()))
        shown.append(request(QUOTE, BODY, proofs(each["paymentId"])))
    began = cpu_s(pid)
    exchange(port, pays, 200)
    exchange(port, shown, 200)
    time.sleep(1.5 * PAUSE_S)
    return asked_s + cpu_s(pid) - began


def main() -> None:
    looks: list[tuple[Requests, Look]] = []
    add = Requests.add

    def added(requests: Requests, look: Look) -> None:
        looks.append((requests, look))
        add(requests, look)

    def toggled(*_: object) -> None:
        nonlocal is_on
        is_on = not is_on
        for requests, look in looks:
            (add if is_on else Requests.remove)(requests, look)

    from x402sim.cli import main as serve

    is_on = True
    Requests.add = added  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, toggled)
    serve()


if __name__ == "__main__":
    main()
