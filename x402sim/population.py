"""Who comes to a world and what they do, as objects: for `world.population(...)`.

Arrivals: `Poisson(per_s=..., daily=...)`, `Every(seconds)`, `At([...])`. Behaviours:
`Buy(times=..., wait=...)`, `Session(deposit=..., requests=..., wait=...)`, or any
`async def visit(payer, rng)` of your own. `Exponential(mean_s=...)` for `wait`.
"""

from x402sim.durations import Exponential
from x402sim.world.population import At, Buy, Every, Poisson, Session

__all__ = ["At", "Buy", "Every", "Exponential", "Poisson", "Session"]
