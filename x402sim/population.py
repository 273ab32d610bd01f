"""Who comes to a world and what they do, as objects: for `world.population(...)`.

Arrivals: `Poisson(per_s=..., daily=...)`, `Every(seconds)`, `At([...])`. Behaviours:
`Buy(times=..., wait=...)`, `Session(deposit=..., requests=..., wait=...)`, or any
`async def visit(payer, rng)` of your own. Each is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from x402sim.world.population.arrivals import At, Every, Poisson
    from x402sim.world.population.behaviours import Buy, Session
    from x402sim.world.population.group import Population

__all__ = ["At", "Buy", "Every", "Poisson", "Population", "Session"]

_HOME = {
    "At": "arrivals",
    "Buy": "behaviours",
    "Every": "arrivals",
    "Poisson": "arrivals",
    "Population": "group",
    "Session": "behaviours",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'x402sim.population' has no attribute {name!r}")
    value = getattr(import_module(f"x402sim.world.population.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
