"""Many payers, one service, one virtual day: the journal of it, for whoever compares.

`python -m tests.world.town SEED` prints its hash.
"""

import asyncio
import sys

from x402sim import LiveWorld, PaymentAuth, PaymentFailed, Run, SessionAuth, World

ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
LATENCY = {"service": (0.1, 0.5), "facilitator": (0.05, 0.5), "explorer": 0.05, "rpc": [0.01, 0.02]}
DAY_S = 86_400


def live(seed: int) -> Run:
    """Live through a day; return what happened."""

    async def town(world: LiveWorld) -> None:
        async def payer(number: int) -> None:
            luck = world.rng(f"payer {number}")
            someone = await world.payer(f"payer {number}", balance="100.00")
            auth = (PaymentAuth, SessionAuth)[number % 2](someone.wallet, clock=world.clock)
            http = world.client(someone, auth)
            for _ in range(8):
                await world.clock.sleep(luck.expovariate(1 / 5000))
                try:
                    await http.post("/api/perp/quote", json=ORDER)
                except PaymentFailed as failed:
                    world.note("payment failed", payer=number, text=str(failed))

        began = world.clock.now()
        await asyncio.gather(*(payer(number) for number in range(6)))
        await world.clock.sleep_until(began + DAY_S + 10)

    return World(seed=seed, latency=LATENCY).play(town)


if __name__ == "__main__":
    print(live(int(sys.argv[1])).sha256)
