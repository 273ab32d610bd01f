"""Sweeps: one experiment, played over a grid of parameters and many seeds, in many processes.

For users: `steady(run.orders, "waiting_s")` is the mean of one long run's steady state, and
`sweep(..., until=Until(relative=0.05))` plays seeds until the intervals are narrow enough.

`sweep.sweep` is the front. `grid` makes the cells, `worker` plays the points of a task, `tables`
joins what they return and `folder` keeps it, `drive` sizes the tasks and runs them, and `summary`,
`compare` and `longrun` say what came out.
"""

from x402sim.experiments.longrun import steady
from x402sim.experiments.until import Until

__all__ = ["Until", "steady"]
