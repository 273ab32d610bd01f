"""Gas, fees and waiting a call, by request and by session, at three gas prices."""

import pandas as pd

from x402sim import LiveWorld, World, sweep
from x402sim.backends import PoissonBlocks
from x402sim.population import Buy, Every, Session

LATENCY, BLOCK_S, COIN = {"service": 0.05, "facilitator": 0.1}, 5, 0.1
GRID = {"way": ["request", "session"], "calls": [1, 2, 3, 10, 100, 1000], "gwei": [1, 5000, 25000]}


def experiment(way: str, calls: int, gwei: float, seed: int, payers: int = 4) -> dict[str, float]:
    spare, length_s = f"{(calls + 1) / 100:.2f}", 300 + 2 * calls
    visits = {
        "request": Buy(times=calls, wait=1),
        "session": Session(deposit=spare, requests=calls, wait=1, duration=length_s),
    }

    async def story(world: LiveWorld) -> None:
        await world.population(payers, arrivals=Every(7), behaviour=visits[way])
        await world.advance(length_s + 60)  # until what is left of the deposits is refunded

    chain = {"block_time_s": PoissonBlocks(BLOCK_S), "gas_price_gwei": gwei, "coin_price": COIN}
    costs = World(seed=seed, latency=LATENCY, **chain).play(story).costs
    of_orders = costs.dropna(subset="order")  # not what gives the payers their tokens
    return dict(of_orders[["gas", "fee", "waiting_s"]].sum() / (calls * payers))


def crossover(found: pd.DataFrame, what: str) -> pd.Series:
    """Return the fewest calls from which on a session costs less, at each gas price."""
    by_way = found.groupby(["gwei", "calls", "way"])[what].mean().unstack()
    less = by_way[by_way["session"] < 0.999 * by_way["request"]].reset_index()
    return less.groupby("gwei")["calls"].min()


if __name__ == "__main__":
    found = sweep(experiment, GRID, seeds=range(20))
    print(found.groupby(["gwei", "calls", "way"])[["gas", "fee", "waiting_s"]].mean())
    print({what: crossover(found, what).to_dict() for what in ("gas", "fee", "waiting_s")})
