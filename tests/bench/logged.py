"""What the log of a server costs: the CPU of a purchase with it and without, on one server.

`python -m tests.bench.logged` is `serve` on a free port, whose log SIGUSR1 turns off, and on again.
"""

import json
import signal
import sys
import time
from contextlib import ExitStack

from tests.bench.served import BODY, cpu_s, exchange, request
from tests.serve.driver import PAY, QUOTE, Server, header
from x402sim.cli import main as serve
from x402sim.payer.core import proofs, settlement
from x402sim.world.server.log import PAUSE_S
from x402sim.world.server.requests import Look, Requests


class Purchases(ExitStack):
    """A server whose log goes to a file, and rounds of so many purchases."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.server = Server("--seed", "1", program=[sys.executable, "-m", "tests.bench.logged"])
        self.callback(self.server.close)
        self._times, self._is_logged = times, True
        self.logged(), self.unlogged()  # to warm up

    def logged(self) -> float:
        return self._bought(is_logged=True)

    def unlogged(self) -> float:
        return self._bought(is_logged=False)

    def _bought(self, *, is_logged: bool) -> float:
        """Buy quotes, each with a 402, a payment and the request that is served; do not count signing.

        What the log still has to write afterwards is waited for.
        """
        if is_logged is not self._is_logged:
            self.server.process.send_signal(signal.SIGUSR1)
            self.server.http.get("/healthz")  # it answers after the signal
            self._is_logged = is_logged
        pid, wallet = self.server.process.pid, self.server.account(1).wallet
        port = int(self.server.ready["service"].rsplit(":", 1)[1])
        began_s, pays, shown = cpu_s(pid), [], []
        offers = exchange(port, [request(QUOTE, BODY)] * self._times, 402)
        asked_s = cpu_s(pid) - began_s
        for offer in map(json.loads, offers):
            payment_id, wanted = offer["paymentId"], offer["paymentRequirements"]
            signed = settlement(payment_id, header(wallet, wanted, int(time.time())), wanted)
            pays.append(request(PAY, json.dumps(signed).encode()))
            shown.append(request(QUOTE, BODY, proofs(payment_id)))
        began_s = cpu_s(pid)
        exchange(port, pays, 200)
        exchange(port, shown, 200)
        time.sleep(1.5 * PAUSE_S)
        return (asked_s + cpu_s(pid) - began_s) / self._times


def main() -> None:
    """Serve, and turn the log off and on."""
    looks: list[tuple[Requests, Look]] = []
    add, is_on = Requests.add, True

    def added(requests: Requests, look: Look) -> None:
        if not look.for_payments:  # the page's, which stays
            looks.append((requests, look))
        add(requests, look)

    def toggled(*_: object) -> None:
        nonlocal is_on
        is_on = not is_on
        for requests, look in looks:
            others = tuple(each for each in requests._looks if each is not look)
            requests._looks = (*others, look) if is_on else others
            requests._wants_all = is_on

    Requests.add = added  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, toggled)
    serve()


if __name__ == "__main__":
    main()
