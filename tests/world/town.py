"""Many payers, one service, one virtual day: the journal of it, for whoever compares.

`python -m tests.world.town SEED` prints its hash.
"""

import asyncio
import sys
from typing import Any

import httpx

from x402sim import TESTNET, PaymentAuth, PaymentFailed, SessionAuth, Wallet
from x402sim.clock import Clock
from x402sim.rng import Rng
from x402sim.service.background import run_background
from x402sim.world.link import Link, lognormal
from x402sim.world.loop import run_virtual
from x402sim.world.parts import Parts, Recipe, build

NOON = 1_800_000_000
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


def live(seed: int, payers: int = 6, requests: int = 8) -> Parts:
    """Live through a day; return the world as it is afterwards."""

    async def main() -> Parts:
        loop = asyncio.get_running_loop()
        clock, rng = Clock(lambda: NOON + loop.time()), Rng(seed)

        def link(name: str, app: Any) -> Link:
            return Link(app, clock, lognormal(0.05, 0.5), rng.stream(f"wire to {name}"))

        parts = build(Recipe(network=TESTNET, seed=seed), clock, link)
        background = asyncio.create_task(run_background(parts.service))

        async def payer(number: int) -> None:
            luck = rng.stream(f"payer {number}")
            wallet = Wallet(parts.accounts[number].private_key, nonces=lambda: luck.randbytes(32))
            auth = (PaymentAuth, SessionAuth)[number % 2](wallet, clock=clock)
            wire = Link(parts.service_app, clock, lognormal(0.1, 0.5), luck)
            async with httpx.AsyncClient(transport=wire, base_url="http://service") as http:
                for _ in range(requests):
                    await clock.sleep(luck.expovariate(1 / 5000))
                    try:
                        await http.post("/api/perp/quote", json=ORDER, auth=auth)
                    except PaymentFailed as failed:
                        parts.journal.record(clock.now_ms(), f"payer {number}", str(failed))

        await asyncio.gather(*(payer(number) for number in range(payers)))
        await clock.sleep_until(NOON + 86_400 + 10)
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
        await parts.http.aclose()
        return parts

    return run_virtual(main)


if __name__ == "__main__":
    print(live(int(sys.argv[1])).journal.sha256())
