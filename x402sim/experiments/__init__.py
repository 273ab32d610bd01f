"""Sweeps: one experiment, played over a grid of parameters and many seeds, in many processes.

For users: `steady(run.orders, "waiting_s")` is the mean of one long run's steady state, and
`sweep(..., until=Until(relative=0.05))` plays seeds until the intervals are narrow enough.

`sweep.sweep` is the front. `grid` makes the cells, `drive` sizes tasks and has workers play them,
`tables` joins what they return and `folder` keeps it, and `summary`, `compare` and `longrun` say
what came out.
"""

from x402sim.experiments.summary import Until, steady

__all__ = ["Until", "steady"]
