"""The periodic work of a running service.

Clauses: 1/indexer, 3/expiry-refund, 8/cache-sweep, 8/indexer-interval.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable

from x402sim.service import indexer, sessions
from x402sim.service.reconcile import reconcile
from x402sim.service.state import Service

log = logging.getLogger("x402sim")


async def run_background(service: Service) -> None:
    """Run the periodic work until cancelled.

    The indexer every 300 s (8/indexer-interval), the cache sweep hourly (8/cache-sweep), session
    expiry, refunds and pending payments every few seconds, and once at start.
    """
    settings = service.settings

    async def sweep() -> None:
        service.entitlements.sweep(service.clock.now_ms())

    async with asyncio.TaskGroup() as group:
        every = _Every(service, group)
        every("reconcile", settings.reconcile_interval_s, lambda: reconcile(service), at_once=True)
        every("expire", settings.session_sweep_s, lambda: sessions.expire(service), at_once=True)
        every("index", settings.indexer_interval_s, lambda: indexer.run(service))
        every("sweep", settings.entitlement_sweep_s, sweep)


class _Every:
    """Runs each job in its own loop, at a fixed rate; missed turns are skipped.

    After a failure the job runs again at its next turn. A failure that repeats is logged once.
    """

    def __init__(self, service: Service, group: asyncio.TaskGroup) -> None:
        self._service = service
        self._group = group

    def __call__(
        self,
        name: str,
        interval_s: float,
        work: Callable[[], Awaitable[object]],
        *,
        at_once: bool = False,
    ) -> None:
        name = f"background work: {name}"
        self._group.create_task(self._loop(interval_s, work, at_once), name=name)

    async def _loop(
        self, interval_s: float, work: Callable[[], Awaitable[object]], at_once: bool
    ) -> None:
        clock = self._service.clock
        turn_s = clock.now() + (0 if at_once else interval_s)
        failed: str | None = None
        while True:
            await clock.sleep_until(turn_s)
            try:
                await work()
                failed = None
            except Exception as error:
                if repr(error) != failed:
                    text = "background work failed, and is tried again every %g s: %s"
                    log.exception(text, interval_s, error, exc_info=_trace(error))
                failed = repr(error)
            missed = max(0.0, clock.now() - turn_s) // interval_s
            turn_s += (missed + 1) * interval_s


def _trace(error: Exception) -> Exception | None:
    """Return the error if its stack trace says more than its text: not if a disk is full."""
    return None if isinstance(error, sqlite3.OperationalError) else error
