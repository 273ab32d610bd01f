"""What runs beside the requests."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from .chain import Explorer
from .config import CACHE_CLEAR_SECONDS, INDEX_SECONDS, bug, on
from .payments import Payments
from .sessions import Sessions
from .store import Store

log = logging.getLogger("shop.jobs")


class Jobs:
    """Periodic jobs; stop() lets the running ones finish."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def every(
        self,
        seconds: float,
        job: Callable[[], Awaitable[None]],
        *,
        wait_first: bool = False,
        fragile: bool = False,
    ) -> None:
        self._tasks.append(asyncio.create_task(self._repeat(seconds, job, wait_first, fragile)))

    async def _repeat(
        self, seconds: float, job: Callable[[], Awaitable[None]], wait_first: bool, fragile: bool
    ) -> None:
        if wait_first:
            await self._pause(seconds)
        while not self._stopping.is_set():
            try:
                await job()
            except Exception:
                log.exception("background job failed")
                if fragile:
                    return
            await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def stop(self, patience: float = 3) -> None:
        self._stopping.set()
        _, late = await asyncio.wait(self._tasks, timeout=patience)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


async def index(store: Store, explorer: Explorer) -> None:
    """Complete stored payments with their block; a match counts for the reputation of the service paid."""
    for payment in await store.unindexed():
        block = await explorer.block_of(payment.tx_hash)
        if block is not None:
            await store.matched(payment, block)


def start(store: Store, explorer: Explorer, payments: Payments, sessions: Sessions) -> Jobs:
    async def clear() -> None:
        payments.clear_entitlements()
        await store.drop_old_offers(time.time() - 86400)

    jobs = Jobs()
    jobs.every(
        INDEX_SECONDS * (12 if bug("indexer_hourly") else 1),
        lambda: index(store, explorer),
        wait_first=on("first_index_late"),
        fragile=bug("indexer_dies"),
    )
    jobs.every(CACHE_CLEAR_SECONDS, clear, wait_first=True)
    jobs.every(0.5, sessions.expire)
    jobs.every(2, payments.reconcile_open)
    return jobs
