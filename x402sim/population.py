"""Crowds of payers: their arrivals and their behaviour.

For world.population(...). help(x402sim.population.Buy) and so on explain
each; the guide's page own-parts.md shows how to write one.

arrivals   Poisson(per_s=...): at random
           Every(seconds): at fixed intervals
           Arrivals: what an object of your own must have
behaviour  Buy(times=..., wait=..., at=...): gets quotes
           Session(deposit=..., requests=..., wait=...): opens a session
           or an `async def visit(payer, rng)` of your own
wait       Exponential(mean_s=...), or what a latency can be
"""

from x402sim.durations import Exponential as Exponential
from x402sim.story.population import (
    Arrivals as Arrivals,
    Buy as Buy,
    Every as Every,
    Poisson as Poisson,
    Session as Session,
)

# There is no `__all__`: `help` of this module would be that of each class.
