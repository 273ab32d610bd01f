"""Payments in one step by clients that hang up after a time-out and send the same header again.

With kills, the service is killed and started again meanwhile. At the end the ledger is compared
with the answers that each client got. `python -m tests.crash.hangups` prints the figures.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.crash.deployment import PAYERS, Command, Deployment, deployed
from tests.crash.kills import Phase, kill_under_load
from tests.crash.ledger import read_ledger
from tests.serve.driver import ORDER, QUOTE
from x402sim import Wallet
from x402sim.payer.core import proofs
from x402sim.payer.standard import authorization_in, choose, read_standard, sign
from x402sim.payer.wallet import AFTER_SIGNING_S
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    Version,
)

MARKET = "/api/perp/market"
PATIENT_S = 30.0
ASKED = {MARKET: ("GET", b""), QUOTE: ("POST", json.dumps(ORDER).encode())}
"""The method and the body of a request for each resource."""


@dataclass(slots=True)
class Order:
    """One payment in one step, and what its client saw."""

    path: str
    version: Version
    nonce: str
    header: Mapping[str, str]
    payment_id: str
    """The payment id of the 402 that it answers."""
    served: int = 0
    """Answers with the content that the client has read."""
    timeouts: int = 0
    cut: int = 0
    """Connections that broke: the service was killed, or is not up yet."""
    refusal: str = ""
    """The refusal that ended it."""
    has_access: bool = False
    """Whether X-Payment-Id gives access at the end."""


@dataclass(slots=True)
class Tally:
    """What became of the orders."""

    orders: list[Order] = field(default_factory=list)
    kills: int = 0
    charges: Mapping[str, int] = field(default_factory=dict)
    """Transfers, by nonce."""

    def counts(self) -> dict[str, int]:
        """Return the figures."""
        done = self.orders
        return {
            "orders": len(done),
            "kills": self.kills,
            "time-outs": sum(each.timeouts for each in done),
            "orders that timed out": sum(each.timeouts > 0 for each in done),
            "orders cut by a kill": sum(each.cut > 0 for each in done),
            "charged": sum(each.nonce in self.charges for each in done),
            "charged twice": sum(self.charges.get(each.nonce, 0) > 1 for each in done),
            "served": sum(each.served == 1 for each in done),
            "served twice": sum(each.served > 1 for each in done),
            "served, not charged": sum(
                each.served > 0 and each.nonce not in self.charges for each in done
            ),
            "charged, and the header refused": len(self.lost),
            "of these, access by the payment id of the 402": sum(
                each.has_access for each in self.lost
            ),
        }

    @property
    def lost(self) -> list[Order]:
        """The orders that were charged, and whose client got no answer: it was lost on the wire.

        On a busy machine a client may give up while the answer waits in its own socket.
        """
        return [each for each in self.orders if each.nonce in self.charges and not each.served]

    def violations(self) -> list[str]:
        """Return what must not be."""
        counts = self.counts()
        found = [
            f"{counts[name]} were {name}"
            for name in ("charged twice", "served twice", "served, not charged")
            if counts[name]
        ]
        for each in self.lost:
            if each.version == 2 and not each.has_access:
                found.append(f"{each.nonce} was charged, its payment id is refused: {each.refusal}")
            if each.cut and not each.timeouts:
                found.append(f"{each.nonce} was charged and refused after a kill: {each.refusal}")
        found += [
            f"{each.nonce} was not charged: {each.refusal}"
            for each in self.orders
            if each.nonce not in self.charges
        ]
        return found


def run(command: Command, **options: Any) -> Tally:
    """Play orders (see `play`) against a deployment of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="x402sim-hangups-") as folder,
        deployed(command, Path(folder)) as deployment,
    ):
        deployment.spawn()
        deployment.await_ready()
        tally = play(deployment, **options)
        assert not deployment.complaints, deployment.complaints
        return tally


def play(
    deployment: Deployment,
    *,
    orders: int,
    clients: int,
    timeout_s: float,
    kills: int = 0,
    seed: int = 1,
    versions: tuple[Version, ...] = (1, 2),
) -> Tally:
    """Play so many orders, at least until all kills are done, and look at the ledger."""
    tally, luck = Tally(), random.Random(seed)
    stop = threading.Event()
    killer = threading.Thread(target=_kill, args=(deployment, kills, tally, luck, stop))
    if kills:
        killer.start()
    try:
        load = _Load(deployment, tally, timeout_s, versions, luck)
        asyncio.run(load.play(orders, clients, lambda: kills > tally.kills and not stop.is_set()))
    finally:
        stop.set()
        if kills:
            killer.join()
    charges = read_ledger(deployment).charges
    tally.charges = {nonce: len(transfers) for nonce, transfers in charges.items()}
    return tally


def _kill(
    deployment: Deployment, kills: int, tally: Tally, luck: random.Random, stop: threading.Event
) -> None:
    try:
        while tally.kills < kills and not stop.is_set():
            time.sleep(luck.uniform(0.05, 0.4))
            kill_under_load(deployment, luck.choice((Phase.LOAD, Phase.FILE, Phase.FILE)), luck)
            tally.kills += 1
            deployment.spawn()
            deployment.await_ready()
    finally:
        stop.set()


class _Load:
    """The clients of one run."""

    def __init__(
        self,
        deployment: Deployment,
        tally: Tally,
        timeout_s: float,
        versions: tuple[Version, ...],
        luck: random.Random,
    ) -> None:
        self._deployment, self._tally, self._timeout_s = deployment, tally, timeout_s
        self._versions, self._luck = versions, luck
        accounts = deployment.ready["accounts"][:PAYERS]
        self._wallets = [Wallet(each["privateKey"]) for each in accounts]

    async def play(self, orders: int, clients: int, is_going_on: Callable[[], bool]) -> None:
        """Play orders, several clients at once, and as many more as it takes."""
        left = iter(range(orders))

        async def client() -> None:
            while next(left, None) is not None or is_going_on():
                order = await self._order()
                self._tally.orders.append(order)
                await self._pay(order)

        await asyncio.gather(*(client() for _ in range(clients)))
        for order in self._tally.orders:
            status, _, _ = await self._patiently(order.path, proofs(order.payment_id))
            order.has_access = status == 200

    async def _order(self) -> Order:
        """Ask for a resource, and sign what it costs."""
        path = self._luck.choice(list(ASKED))
        version = self._luck.choice(self._versions)
        _, headers, body = await self._patiently(path, {})
        required = read_standard(httpx.Response(402, headers=headers, content=body), version)
        assert required is not None
        offer = choose(required, TESTNET, lambda _: "")
        now_s = int(time.time())
        text = sign(offer, self._luck.choice(self._wallets), TESTNET, now_s, AFTER_SIGNING_S)
        return Order(
            path=path,
            version=version,
            nonce=to_hex(authorization_in(offer, text).nonce),
            header={PAYMENT_HEADERS[version]: text},
            payment_id=json.loads(body)["paymentId"],
        )

    async def _pay(self, order: Order) -> None:
        """Send the same header until an answer ends it."""
        while True:
            try:
                status, _, body = await self._send(order.path, order.header, self._timeout_s)
            except TimeoutError:
                order.timeouts += 1
                continue
            except (OSError, EOFError):
                order.cut += 1
                await asyncio.sleep(0.05)
                continue
            if status == 200:
                order.served += 1
                return
            said = json.loads(body)
            if status == 402 and said.get("final") is not False:
                order.refusal = str(said.get("reason") or said["error"])
                return
            await asyncio.sleep(0.1)

    async def _patiently(
        self, path: str, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        while True:
            try:
                return await self._send(path, headers, PATIENT_S)
            except (OSError, EOFError):
                await asyncio.sleep(0.05)

    async def _send(
        self, path: str, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request on a connection of its own; it is closed when the time is over."""
        url = self._deployment.service.base_url
        method, body = ASKED[path]
        lines = [f"{method} {path} HTTP/1.1", f"Host: {url.host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer = None
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(url.host, url.port)
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                got = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                content = await reader.readexactly(int(got["content-length"]))
                return int(head[0].split()[1]), got, content
        finally:
            if writer is not None:
                writer.close()


def main() -> int:
    """Run the campaign, and print its figures as JSON; 1 if any was violated, or if
    a tenth of the orders that timed out were lost on the wire."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.hangups", description=__doc__)
    parser.add_argument("--command", choices=[c.name.lower() for c in Command], default="serve")
    parser.add_argument("--orders", type=int, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument(
        "--timeout", type=float, default=0.3, help="seconds until a client gives up"
    )
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    tally = run(
        Command[asked.command.upper()],
        orders=asked.orders,
        clients=asked.clients,
        timeout_s=asked.timeout,
        kills=asked.kills,
        seed=asked.seed,
    )
    counts, violations = tally.counts(), tally.violations()
    print(json.dumps({**counts, "violations": violations}, indent=2))
    has_lost_many = len(tally.lost) * 10 > counts["orders that timed out"]
    return int(bool(violations) or has_lost_many)


if __name__ == "__main__":
    sys.exit(main())
