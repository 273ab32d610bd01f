"""Sweeps: one experiment, played over a grid of parameters and many seeds, in many processes.

`sweep.sweep` is the front. `grid` makes the cells, `worker` plays the points of a task, `tables`
joins what they return and `folder` keeps it, `drive` sizes the tasks and runs them, and `summary`
says what came out.
"""
