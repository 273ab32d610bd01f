"""A study of many worlds over processes: by `sweep`, and by `multiprocessing.Pool.map` alone.

Both start two new processes of Python, whose CPU time counts from their start to their end.
"""

import multiprocessing
from importlib.util import find_spec
from time import process_time
from typing import Any

from tests.bench import size
from tests.bench.rounds import NotMeasured, Round, spent_s
from x402sim import sweep

PAYERS, PROCESSES = 20, 2


def world(seed: int) -> float:
    """Return the transfers of a small world with this seed."""
    return sum(1 for _ in size.play(PAYERS, 2 * PAYERS, seed=seed).journal)


def by_sweep(worlds: int) -> Round:
    """Return a round of a sweep over processes of its own; the unit is a world."""
    return lambda: spent_s(lambda: _swept(worlds, None)) / worlds


def by_dask(worlds: int) -> Round:
    """Return a round of a sweep over a cluster of Dask on this machine, whose start is not counted."""
    if find_spec("distributed") is None:
        raise NotMeasured("Dask is not installed")
    from distributed import Client, LocalCluster

    def once() -> float:
        options = {"n_workers": PROCESSES, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:

            def used_s() -> float:
                return process_time() + sum(client.run(process_time).values())

            before = used_s()
            _swept(worlds, client)
            return (used_s() - before) / worlds

    return once


def by_pool(worlds: int) -> Round:
    """Return a round of a pool of processes that are started as a sweep starts them."""

    def once() -> None:
        pool = multiprocessing.get_context("spawn").Pool(PROCESSES)
        pool.map(world, range(worlds))
        pool.close()
        pool.join()

    return lambda: spent_s(once) / worlds


def _swept(worlds: int, executor: Any) -> None:
    sweep(world, {}, seeds=worlds, executor=executor, workers=PROCESSES, progress=False)
