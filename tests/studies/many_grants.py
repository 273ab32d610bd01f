"""One authorization, sent by n concurrent requests to services of one merchant: how many grants?"""

import asyncio

from x402sim import Answer, LiveWorld, Payer, Settings, World, sweep
from x402sim.policies import NoClaim, ServeBeforeSettle, ServicePolicy

NAIVE = ServicePolicy(claim=NoClaim(), serve=ServeBeforeSettle())
POLICIES = {"correct": ServicePolicy(), "naive": NAIVE}
GRID = {"policy": POLICIES, "steps": [1, 2], "services": [1, 4], "n": [1, 10, 50, 200]}


def experiment(policy: ServicePolicy, steps: int, services: int, n: int, seed: int, shared=False):
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for _ in range(services - 1):
            await world.another_service(shares_database=shared)
        header = alice.sign(await alice.ask(), steps=steps)

        async def request(shop: Payer) -> Answer:
            if steps == 1:
                return await shop.ask(header=header)
            own = await shop.ask()
            paying = asyncio.create_task(shop.pay(own, header))
            await world.clock.sleep(0.25)  # it is verified by now, and not settled
            await shop.ask(payment_id=own.payment_id)
            await paying
            return await shop.ask(payment_id=own.payment_id)

        await asyncio.gather(*(request(alice.at(world.services[i % services])) for i in range(n)))
        await world.advance(10)  # naive in one step: it settles after it has answered

    settings, latency = Settings(policy=policy), {"facilitator": 0.1}
    run = World(seed=seed, service=settings, latency=latency, invariants=False).play(story)
    served = run.orders["served" if steps == 2 else "served_times"]  # in one step: one order
    return {"grants": served.sum(), "transfers": len(run.transfers) - 1}  # a mint


if __name__ == "__main__":
    print(sweep(experiment, GRID, seeds=1))
