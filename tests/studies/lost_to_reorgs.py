"""Revenue lost by a service that grants at k confirmations, on a chain that reorganises."""

from x402sim import LiveWorld, Payer, Settings, World, policies, summarize, sweep
from x402sim.backends import FixedBlocks, Reorgs
from x402sim.population import Every
from x402sim.rng import Stream

P, Q = 0.1, 0.6
GRID = {"k": [0, 1, 2, 6]}


async def visit(payer: Payer, rng: Stream) -> None:
    """Pay, and ask again in each block until it is served, or the money is gone."""
    answer = bought = await payer.buy()
    for _ in range(20 if bought.status == 200 else 0):
        answer = await payer.ask(payment_id=bought.payment_id)
        if answer.status == 200:
            break
        await payer.world.clock.sleep(10)


def experiment(k: int, seed: int, payers: int = 150) -> dict[str, float]:
    async def story(world: LiveWorld) -> None:
        await world.population(payers, arrivals=Every(40), behaviour=visit)
        await world.advance(900)

    serve = policies.ServicePolicy(serve=policies.ServeConfirmed(k))
    chain = {"block_time_s": FixedBlocks(10, phase=5), "reorgs": Reorgs(P, deeper=Q)}
    orders = World(seed=seed, service=Settings(policy=serve), **chain).play(story).orders
    served = orders[orders["served"]]
    return {"served": len(served), "lost": 1 - served["charged"].mean()}


if __name__ == "__main__":
    print(summarize(sweep(experiment, GRID, seeds=30), by="k", values="lost"))
