"""Revenue lost by a service that grants at k confirmations, on a chain that reorganises."""

from x402sim import LiveWorld, Settings, World, summarize, sweep
from x402sim.backends import FixedBlocks, Reorgs
from x402sim.policies import PayAndWait, PayerPolicy, ServeConfirmed, ServicePolicy
from x402sim.population import Buy, Every

P, Q, BLOCK_S = 0.1, 0.6, 10
PAYER = PayerPolicy(sessions=PayAndWait(times=20, wait_s=BLOCK_S))
GRID = {"k": [0, 1, 2, 6]}


def experiment(k: int, seed: int, payers: int = 150) -> dict[str, float]:
    async def story(world: LiveWorld) -> None:
        await world.population(payers, arrivals=Every(40), behaviour=Buy(), policy=PAYER)
        await world.advance(90 * BLOCK_S)

    service = Settings(policy=ServicePolicy(serve=ServeConfirmed(k)))
    blocks, reorgs = FixedBlocks(BLOCK_S, phase=5), Reorgs(P, deeper=Q)
    world = World(seed=seed, service=service, block_time_s=blocks, reorgs=reorgs)
    orders = world.play(story).orders
    served = orders[orders["served"]]
    return {"served": len(served), "lost": 1 - served["charged"].mean()}


if __name__ == "__main__":
    print(summarize(sweep(experiment, GRID, seeds=30), by="k", values="lost"))
