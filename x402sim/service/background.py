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

Work = Callable[[], Awaitable[object]]
Phases = Callable[[str, float], float]
"""Returns when a kind of work, by name, with this interval, has its first turn: in seconds from
now, modulo the interval."""


def in_step(work: str, interval_s: float) -> float:
    """Start every interval now."""
    return 0.0


async def run_background(service: Service, phases: Phases = in_step) -> None:
    """Run the periodic work until cancelled.

    The indexer every 300 s (8/indexer-interval), the cache sweep hourly (8/cache-sweep), session
    expiry, refunds and pending payments every few seconds, and once at start.
    """
    settings, store = service.settings, service.store
    resolve = _after(store.payments.look_now, lambda: reconcile(service))
    expire = _after(store.sessions.look_now, lambda: sessions.expire(service))

    async def sweep() -> None:
        service.entitlements.sweep(service.clock.now_ms())

    async with asyncio.TaskGroup() as group:
        every = _Every(service, group, phases)
        every("reconcile", settings.reconcile_interval_s, resolve, at_once=True)
        every("expire", settings.session_sweep_s, expire, at_once=True)
        every("index", settings.indexer_interval_s, lambda: indexer.run(service))
        every("sweep", settings.entitlement_sweep_s, sweep)


def _after(begin: Callable[[], None], work: Work) -> Work:
    """Return work whose first turns begin with something, until that has succeeded once."""
    has_begun = False

    async def begin_and_work() -> None:
        nonlocal has_begun
        if not has_begun:
            begin()
            has_begun = True
        await work()

    return begin_and_work


class _Every:
    """Runs each job in its own loop, at a fixed rate; missed turns are skipped.

    After a failure the job runs again at its next turn. A failure that repeats is logged once.
    """

    def __init__(self, service: Service, group: asyncio.TaskGroup, phases: Phases) -> None:
        self._service, self._group, self._phases = service, group, phases

    def __call__(
        self,
        name: str,
        interval_s: float,
        work: Work,
        *,
        at_once: bool = False,
    ) -> None:
        first_s = self._phases(name, interval_s) % interval_s or interval_s
        loop = self._loop(interval_s, first_s - interval_s * at_once, work)
        self._group.create_task(loop, name=f"background work: {name}")

    async def _loop(self, interval_s: float, first_s: float, work: Work) -> None:
        """Work `first_s` seconds from now, at once if that is past, and at each interval."""
        clock = self._service.clock
        turn_s = clock.now() + first_s
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
                if _trace(error) is not None:  # without this frame, which goes on
                    trace = error.__traceback__
                    self._service.on_bug(error.with_traceback(trace and trace.tb_next))
            if clock.now() < turn_s - interval_s:  # time was given back while it worked or slept
                turn_s = clock.now()
            missed = max(0.0, clock.now() - turn_s) // interval_s
            turn_s += (missed + 1) * interval_s


def _trace(error: Exception) -> Exception | None:
    """Return the error if its stack trace says more than its text: not if a disk is full."""
    return None if isinstance(error, sqlite3.OperationalError) else error
