"""The periodic work of a running service.

Clauses: 1/indexer, 3/expiry-refund, 8/cache-sweep, 8/indexer-interval.
"""

import logging
import sqlite3
from collections.abc import Awaitable, Callable

from x402sim.service import indexer, metered, sessions
from x402sim.service.reconcile import reconcile
from x402sim.service.state import Service
from x402sim.service.store.database import Waiting
from x402sim.tasks import together

log = logging.getLogger("x402sim")

Work = Callable[[Service], Awaitable[object]]
Phases = Callable[[str, float], float]
"""Returns the seconds until the first turn of a kind of work, given name and interval in seconds;
modulo the interval."""


def in_step(work: str, interval_s: float) -> float:
    """Return 0: the first turn comes one whole interval from now."""
    return 0.0


async def run_background(service: Service, phases: Phases = in_step) -> None:
    """Run the periodic work until cancelled.

    The indexer every 300 s (8/indexer-interval), the cache sweep hourly (8/cache-sweep), session
    expiry, refunds and pending payments every few seconds, and once at start.
    """
    settings = service.env.settings

    async def sweep(service: Service) -> None:
        service.entitlements.sweep(service.clock.now_ms())

    async def resolve(service: Service) -> None:
        await reconcile(service)
        if service.env.shop.by_permit2:
            await metered.reconcile(service)

    jobs: list[tuple[str, float, Work, Waiting | None]] = [
        ("reconcile", settings.reconcile_interval_s, resolve, "payments"),
        ("expire", settings.session_sweep_s, sessions.expire, "refunds"),
        ("index", settings.indexer_interval_s, indexer.run, None),
        ("sweep", settings.entitlement_sweep_s, sweep, None),
    ]
    async with together() as begin:
        for name, interval_s, work, waiting in jobs:
            first_s = phases(name, interval_s) % interval_s or interval_s
            loop = _every(service, interval_s, first_s, work, waiting)
            begin(loop, f"background work: {name}")


async def _every(
    service: Service, interval_s: float, first_s: float, work: Work, waiting: Waiting | None
) -> None:
    """Work `first_s` seconds from now, and at each interval.

    With a table of waiting rows (`waiting`), the waits end now, and the first turn comes at once.
    Waits for a time also end when the clock was set back. Missed turns are skipped. After a failure
    the work goes on at the next turn; a repeated failure is logged once.
    """
    clock, has_begun = service.clock, False
    turn_s = clock.now() + first_s - (interval_s if waiting else 0)
    failed: str | None = None
    while True:
        await clock.sleep_until(turn_s)
        try:
            if waiting is not None and not has_begun:
                service.store.end_waits(waiting)
                has_begun = True
            await work(service)
            failed = None
        except Exception as error:
            if repr(error) != failed:
                text = "background work failed, and is tried again every %g s: %s"
                log.exception(text, interval_s, error, exc_info=_trace(error))
            failed = repr(error)
            if _trace(error) is not None:  # without the frame of this loop
                trace = error.__traceback__
                service.on_bug(error.with_traceback(trace and trace.tb_next))
        if clock.now() < turn_s - interval_s:  # time was given back meanwhile
            turn_s, has_begun = clock.now(), False
        missed = max(0.0, clock.now() - turn_s) // interval_s
        turn_s += (missed + 1) * interval_s


def _trace(error: Exception) -> Exception | None:
    """Return an error with a stack trace worth reading; None for a full disk."""
    return None if isinstance(error, sqlite3.OperationalError) else error
