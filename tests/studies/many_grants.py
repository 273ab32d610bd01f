"""One authorization, sent by n concurrent requests to services of one merchant: how many grants?"""

import asyncio

from x402sim import LiveWorld, Settings, World, policies, sweep

POLICIES = {
    "correct": policies.ServicePolicy(),
    "naive": policies.ServicePolicy(claim=policies.NoClaim(), serve=policies.ServeBeforeSettle()),
}
GRID = {"policy": list(POLICIES), "n": [1, 10, 50, 200], "services": [1, 4]}


def experiment(policy: str, n: int, services: int, seed: int) -> dict[str, int]:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for _ in range(services - 1):
            await world.another_service()
        shops = [alice.at(world.services[number % services]) for number in range(n)]
        asked = await asyncio.gather(*(shop.ask() for shop in shops))
        header = alice.sign(asked[0])

        async def pay_and_ask(number: int) -> None:
            paying = asyncio.create_task(shops[number].pay(asked[number], header))
            await world.clock.sleep(0.25)  # it is verified by now, and not settled
            await shops[number].ask(payment_id=asked[number].payment_id)
            await paying
            await shops[number].ask(payment_id=asked[number].payment_id)

        await asyncio.gather(*map(pay_and_ask, range(n)))

    settings, latency = Settings(policy=POLICIES[policy]), {"facilitator": 0.1}
    world = World(seed=seed, service=settings, latency=latency, invariants=False)
    orders = world.play(story).orders
    return {"grants": int(orders["served"].sum()), "transfers": orders["tx"].nunique()}


if __name__ == "__main__":
    print(sweep(experiment, GRID, seeds=1))
