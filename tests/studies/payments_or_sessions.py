"""Payments or sessions? Payers over a day, lognormal latency, 1 % of the answers lost."""

from x402sim import Fault, LiveWorld, World
from x402sim.population import Buy, Poisson, Session

WAYS = {
    "payments": Buy(times=10, wait=60),
    "sessions": Session(deposit="0.15", requests=10, wait=60),
}
LATENCY = {"service": (0.05, 0.5), "facilitator": (0.2, 0.5)}
LOST = Fault(victim="service", does="lose answer", probability=0.01, times=None)


def experiment(*, way: str, seed: int, payers: int = 500, hours: float = 24) -> dict[str, float]:
    async def day(world: LiveWorld) -> None:
        await world.fault(LOST)
        visits = Poisson(per_s=payers / 86_400)
        await world.population(payers, arrivals=visits, behaviour=WAYS[way], until_s=hours * 3600)
        await world.advance(2 * 3600)  # until the last session is refunded

    orders = World(seed=seed, latency=LATENCY).play(day).orders
    quotes = orders[orders["way"] != "deposit"]
    served = quotes["served"].sum()
    return {
        "gas": orders["gas"].sum() / served,
        "price": (orders["paid"].sum() - orders["returned"].sum()) / served,
        "charged": quotes["charged"].sum(),
        "unserved": (quotes["charged"] & ~quotes["served"]).sum(),
        "waiting_s": quotes["waiting_s"].mean(),
    }
