"""Sweeps: one experiment, played over a grid of parameters and many seeds, in many processes.

`sweep.sweep` is the front. `grid` makes the cells, `worker` plays the points of a task, `tables`
and `folder` keep what they return, `drive` sizes the tasks, which `executors` run, `frame` joins
their tables, and `summary` says what came out.
"""
