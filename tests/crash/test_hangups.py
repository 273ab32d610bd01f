"""Clients that hang up, and kills after serving: who is charged in one step is served, once.

A client hangs up after a time-out, and sends the same header again; with kills, the service is killed
and started again meanwhile. Each time a client sends its payment it orders something else, so that an
answer which is given again differs from a second service. At the end the ledger is compared with the
answers that each client got.

`python -m tests.campaign` plays three hundred orders with each of three seeds, and 420 kills.
"""

import json
import random
import select
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.campaign import at_length
from tests.crash.deployment import PAYERS, Command, Deployment, Phase, deployed, kill_under_load
from tests.money import (
    Law,
    Transfer,
    Violation,
    access_is_paid,
    charged_once,
    receipt_stays,
    served_once,
)
from tests.serve.driver import ORDER, QUOTE
from x402sim import Wallet
from x402sim.payer.signing import choose, sign
from x402sim.payer.standard import read_standard
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.x402 import PAYMENT_HEADERS, RESPONSE_HEADERS, Version


def test_clients_that_hang_up_are_served_what_they_paid_for() -> None:
    tally = run(Command.SERVE, orders=40, clients=30, timeout_s=0.08, settles_in_s=0.08)
    assert tally.violations() == []
    assert tally.counts()["time-outs"] > 10


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("timeout_s", "settles_in_s"), [(0.1, 0.1), (1, 1.5)])
@pytest.mark.parametrize("seed", range(1, 1 + at_length(1, 3)))
def test_many_orders_of_clients_that_hang_up(
    seed: int, timeout_s: float, settles_in_s: float
) -> None:
    tally = run(
        Command.SERVE,
        orders=at_length(150, 300),
        clients=64,
        timeout_s=timeout_s,
        seed=seed,
        settles_in_s=settles_in_s,
    )
    counts = tally.counts()
    print(counts)
    assert tally.violations() == []
    assert counts["orders that timed out"] > 50
    assert counts["charged, and the header refused"] * 10 <= counts["orders that timed out"]


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "campaign",
    [
        {"command": Command.SERVE, "kills": at_length(15, 300), "versions": (2,)},
        {"command": Command.SERVICE, "kills": at_length(15, 60)},
    ],
    ids=["serve, named payments", "service"],
)
def test_many_kills(campaign: dict[str, Any]) -> None:
    tally = run(**campaign, orders=100, clients=32, timeout_s=5)
    print(tally.counts())
    assert tally.violations() == []
    assert tally.counts()["orders cut by a kill"] > campaign["kills"]


# --- the load ----------------------------------------------------------------------------

PATIENT_S = 30.0
ORDER_S = 600.0
"""The most seconds of one order: a service that does not start again ends the run."""
BROKEN = (OSError, HTTPException)


@dataclass(slots=True)
class Order:
    """One payment in one step, in the client's view."""

    version: Version
    nonce: str
    header: dict[str, str]
    charges: list[Transfer] = field(default_factory=list)
    """The transfers on the ledger."""
    sent: int = 0
    answers: list[bytes] = field(default_factory=list)
    """What the client has read of the content, with the receipt."""
    timeouts: int = 0
    cut: int = 0
    """Connections that broke: the service was killed, or is not up yet."""
    refusal: str = ""
    """The refusal that ended it."""

    @property
    def served(self) -> int:
        """Return how often it was served: an answer that is given again is no second service."""
        return len(set(self.answers))

    @property
    def is_lost(self) -> bool:
        """Whether it was charged, and its client got no answer: it was lost on the wire."""
        return bool(self.charges) and not self.served

    def violations(self) -> Iterator[Violation]:
        yield from charged_once(self.nonce, len(self.charges))
        yield from served_once(self.nonce, self.served)
        if self.served:
            yield from access_is_paid(self.nonce, self.charges)
            yield from receipt_stays(self.nonce, has_access=not self.refusal)
        is_named = self.version == 2  # by its payer (5/payment-identifier)
        is_only_cut = self.cut and not self.timeouts
        if self.is_lost and (is_named or is_only_cut):
            how = f"{self.nonce} was charged, and its answer is not given again: {self.refusal}"
            yield Violation(Law.PAID_IS_SERVED, how)


@dataclass(slots=True)
class Tally:
    """What became of the orders."""

    orders: list[Order] = field(default_factory=list)
    kills: int = 0

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter(orders=len(self.orders), kills=self.kills)
        for each in self.orders:
            found["time-outs"] += each.timeouts
            found["orders that timed out"] += each.timeouts > 0
            found["orders cut by a kill"] += each.cut > 0
            found["charged, and the header refused"] += each.is_lost
        return found

    def violations(self) -> list[Violation]:
        return [wrong for each in self.orders for wrong in each.violations()]


def run(
    command: Command,
    *,
    orders: int,
    clients: int,
    timeout_s: float,
    kills: int = 0,
    seed: int = 1,
    versions: tuple[Version, ...] = (1, 2),
    settles_in_s: float = 0,
) -> Tally:
    """Play orders at a deployment of its own, at least until all kills are done; read the ledger.

    Clients of version 2 name their payments. The facilitator settles after `settles_in_s` seconds.
    """
    with (
        tempfile.TemporaryDirectory(prefix="x402sim-hangups-") as folder,
        deployed(command, Path(folder)) as deployment,
    ):
        deployment.spawn()
        deployment.await_ready()
        if settles_in_s:
            slow = {"does": "delay request", "seconds": settles_in_s, "times": None}
            deployment.world.sim("faults", victim="facilitator", path="/settle", **slow)
        tally, luck, stop = Tally(), random.Random(seed), threading.Event()
        killer = threading.Thread(target=_kill, args=(deployment, kills, tally, luck, stop))
        killer.start()
        try:
            load = _Load(deployment, tally, timeout_s, luck, versions)
            load.play(orders, clients, stop)
        finally:
            stop.set()
            killer.join()
        ledger = deployment.ledger()
        for order in tally.orders:
            order.charges = ledger.charges(order.nonce)
        assert not [order for order in tally.orders if not order.charges], "an order bought nothing"
        assert not deployment.complaints, deployment.complaints
        return tally


def _kill(
    deployment: Deployment, kills: int, tally: Tally, luck: random.Random, stop: threading.Event
) -> None:
    """Kill so many times, and start again each time; then, or if a start fails, stop the load."""
    try:
        while tally.kills < kills and not stop.is_set():
            time.sleep(luck.uniform(0.05, 0.4))
            kill_under_load(deployment, luck.choice((Phase.LOAD, Phase.FILE, Phase.FILE)), luck)
            tally.kills += 1
            deployment.spawn()
            deployment.await_ready()
    finally:
        stop.set()


@dataclass
class _Load:
    deployment: Deployment
    tally: Tally
    timeout_s: float
    luck: random.Random
    versions: tuple[Version, ...]

    def play(self, orders: int, clients: int, stop: threading.Event) -> None:
        """Play orders, several clients at once, and as many more as it takes until `stop`."""
        accounts = self.deployment.world.ready["accounts"][:PAYERS]
        wallets, left = [Wallet(each["privateKey"]) for each in accounts], iter(range(orders))

        def client() -> None:
            while next(left, None) is not None or not stop.is_set():
                order = self._sign(self._required(), self.luck.choice(wallets))
                self.tally.orders.append(order)
                self._pay(order)

        with ThreadPoolExecutor(clients) as pool:
            for each in [pool.submit(client) for _ in range(clients)]:
                each.result()

    def _sign(self, required: httpx.Response, wallet: Wallet) -> Order:
        version: Version = self.luck.choice(self.versions)
        standard = read_standard(required, version)
        assert standard is not None, f"{required.status_code}: {required.text}"
        auth, text = sign(choose(standard, TESTNET), wallet, TESTNET, int(time.time()))
        return Order(version, auth.nonce.hex(), {PAYMENT_HEADERS[version]: text})

    def _pay(self, order: Order) -> None:
        """Send the same header until an answer ends it, each time with a little more patience.

        Who has named its payment asks for the answer once more: a kill may have come between.
        """
        end = time.monotonic() + ORDER_S
        while True:
            assert time.monotonic() < end, f"an order does not end: {order}"
            timeout_s = min(PATIENT_S, self.timeout_s * 1.3**order.timeouts)
            order.sent += 1
            try:
                answer = self._send(order.header, timeout_s, 1 + order.sent % 999)
            except TimeoutError:
                order.timeouts += 1
                continue
            except BROKEN:
                order.cut += 1
                time.sleep(self.luck.uniform(0.05, 0.3))  # so that nobody is always late
                continue
            if answer.status_code == 200:
                receipt = answer.headers[RESPONSE_HEADERS[order.version]]
                order.answers.append(answer.content + receipt.encode())
                if order.version == 1 or len(order.answers) == 2:
                    return
                continue
            said = answer.json()
            if answer.status_code == 402 and said.get("final") is not False:
                order.refusal = str(said.get("reason") or said["error"])
                return
            time.sleep(0.1)

    def _required(self) -> httpx.Response:
        """Ask until there is a 402: beside other programs a request may be too slow for the server
        (408), or be answered as it stops (503)."""
        end = time.monotonic() + ORDER_S
        while True:
            assert time.monotonic() < end, "a service does not answer"
            with suppress(*BROKEN):
                answer = self._send({}, PATIENT_S)
                if answer.status_code not in (408, 503):
                    return answer
            time.sleep(0.05)

    def _send(
        self, headers: dict[str, str], timeout_s: float, leverage: int = 10
    ) -> httpx.Response:
        """Ask for a quote on a connection of its own, and hang up when the time is over.

        Its sending side is shut down then, which the service sees. An answer that has arrived by
        then is returned: its client did not lose it.
        """
        url, body = self.deployment.service.base_url, ORDER | {"leverage": leverage}
        asking = HTTPConnection(url.host, url.port, timeout=PATIENT_S)
        with closing(asking):
            asking.request("POST", QUOTE, json.dumps(body), headers)
            if not select.select([asking.sock], [], [], timeout_s)[0]:
                with suppress(OSError):  # the service has closed it
                    asking.sock.shutdown(socket.SHUT_WR)
                if not select.select([asking.sock], [], [], 0)[0]:
                    raise TimeoutError
            answer = asking.getresponse()
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
