"""Sweeps: one experiment, played over a grid of parameters and many seeds, in many processes.

For users: `steady(run.orders, "waiting_s")` is the mean of a long run's steady state, and
`sweep(..., until=Until(relative=0.05))` plays seeds until the intervals are narrow enough.

`sweep.sweep` is the front. `grid` makes the cells, `drive` cuts them into tasks for workers,
`tables` joins the results, and `folder` keeps them. `summary` and `compare` are the statistics.
`reproduce` repeats a saved result, and `dependencies` finds what results depend on.
"""

from x402sim.experiments.summary import Until, steady

__all__ = ["Until", "steady"]
