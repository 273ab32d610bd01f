"""Small comparisons: a session's debit, frames, a start, a judgement, and many worlds over processes."""

import asyncio
import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from time import process_time
from typing import Any

import msgspec
import pandas as pd

from tests.bench import size
from tests.bench.rounds import NotMeasured, Round, Work, cpu, spent_s
from tests.rig import ServiceRig
from x402sim import sweep
from x402sim.journal import Journal
from x402sim.protocol.routes import QUOTE
from x402sim.report import frames
from x402sim.world.loop import run_virtual

BUDGET = "900.00"
_UPDATE = (
    "UPDATE sessions SET released = released + 1 WHERE session_id = ? AND deposited - released >= 1"
)
_INSERT = "INSERT INTO debits(session_id, amount, resource_url, timestamp) VALUES (?, 1, ?, ?)"
PAYERS, PROCESSES = 20, 2


@contextmanager
def debits() -> Iterator[tuple[Work, Work]]:
    """Yield debits of one base unit by the service, and the same two statements by sqlite3 alone.

    Both databases are in memory, where the difference shows: on a disk, both wait for it.
    """
    with asyncio.Runner() as runner:
        rig = ServiceRig()
        session: str = runner.run(rig.open_session(BUDGET))["sessionId"]
        sessions, now_ms = rig.service.store.sessions, rig.clock.now_ms()

        def ours(times: int) -> None:
            for _ in range(times):
                assert sessions.debit(session, 1, QUOTE, now_ms) is not None

        with closing(rig.service.store.copy()) as database:
            database.execute("PRAGMA foreign_keys=ON")

            def raw(times: int) -> None:
                for _ in range(times):
                    database.execute("BEGIN IMMEDIATE")
                    assert database.execute(_UPDATE, (session,)).rowcount == 1
                    database.execute(_INSERT, (session, QUOTE, now_ms))
                    database.execute("COMMIT")

            yield cpu(ours), cpu(raw)
        runner.run(rig.http.aclose())
        rig.service.store.close()


def framing(journal: Journal) -> tuple[Round, Round]:
    """Return the making of all frames, and of one from a list of dictionaries, an event each with
    all its fields; the unit is an event."""
    rows = [
        {"seq": entry.seq, "at_ms": entry.at_ms, "event": entry.event.__struct_config__.tag}
        | msgspec.structs.asdict(entry.event)
        for entry in journal
    ]
    gc.freeze()  # the collector shall not walk through the rows of the limit while ours is timed

    def ours() -> float:
        journal.made = 0, {}  # what an earlier round has followed
        made = lambda: [table(journal) for table in frames.TABLES.values()]  # noqa: E731
        return spent_s(made) / len(rows)

    return ours, lambda: spent_s(lambda: pd.DataFrame(rows)) / len(rows)


def starting(*arguments: str) -> Round:
    """Return the start of a new Python with these arguments, to its end; it keeps bytecode."""
    keeps = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    how: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "env": keeps}
    return lambda: spent_s(lambda: subprocess.run([sys.executable, *arguments], **how))


def judging(every: int) -> Round:
    """Return a judgement of our own service by each `every`th case; the unit is a case."""
    from tests.mutants.judging import quiet  # other rows start without the cases
    from tests.suite.costs import count
    from x402sim.suite.service.engine import all_checks

    cases = all_checks()[::every]

    def once() -> None:
        with quiet():
            run_virtual(lambda: count(cases))

    return lambda: spent_s(once) / len(cases)


# --- many worlds over two new processes of Python, whose CPU time counts from start to end ---


def world(seed: int) -> float:
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
