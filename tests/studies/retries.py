"""Payers that time out and sign again, or not, while answers come too late: what do they pay?"""

from x402sim import Fault, LiveWorld, World, summarize, sweep
from x402sim.policies import AtMost, NewAuthorization, PayerPolicy, SameAuthorization, StartOver
from x402sim.population import Buy, Every

QUOTES, BUDGET, PRICE = 5, "0.05", 0.01
RETRIES = {
    "same": SameAuthorization(times=40),
    "new": NewAuthorization(times=40),
    "start over": StartOver(times=40),
}
GRID = {"retry": list(RETRIES), "counts": ["paid", "exposed", "signed"], "p": [0.1, 0.3]}
VISIT = Buy(times=QUOTES, wait=600)  # by the next quote, an authorization has expired


def experiment(retry: str, counts: str, p: float, seed: int, payers: int = 500) -> dict[str, float]:
    budget = AtMost(BUDGET, counts=counts)
    policy = PayerPolicy(steps=1, timeout_s=5, retry=RETRIES[retry], budget=budget)
    late = {"does": "delay answer", "seconds": 60, "probability": p, "times": None}

    async def story(world: LiveWorld) -> None:
        await world.fault(Fault(victim="service", contains="payment", **late))
        await world.population(payers, arrivals=Every(1), behaviour=VISIT, policy=policy)

    of = World(seed=seed).play(story).orders.groupby("payer", observed=True)
    return {
        "double": (of["payments"].sum() - of["served"].sum()).mean(),
        "overrun": ((of["paid"].sum() - float(BUDGET)) / PRICE).clip(lower=0).mean(),
        "served": of["served"].sum().mean(),
    }


if __name__ == "__main__":
    print(summarize(sweep(experiment, GRID, seeds=20), by=list(GRID)))
