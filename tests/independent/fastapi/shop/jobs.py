"""What runs beside the requests."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import httpx

from .chain import block_of
from .config import CACHE_CLEAR_SECONDS, INDEX_SECONDS, bug, on
from .payments import Payments
from .sessions import Sessions
from .store import Store

log = logging.getLogger("shop.jobs")


async def repeat(
    seconds: float,
    job: Callable[[], Awaitable[None]],
    *,
    wait_first: bool = False,
    fragile: bool = False,
) -> None:
    if wait_first:
        await asyncio.sleep(seconds)
    while True:
        try:
            await job()
        except Exception:
            log.exception("background job failed")
            if fragile:
                return
        await asyncio.sleep(seconds)


async def index(store: Store, http: httpx.AsyncClient) -> None:
    """Complete stored payments with their block; a match counts for the reputation of the service paid."""
    for payment in store.unindexed():
        block = await block_of(http, payment.tx_hash)
        if block is not None:
            store.matched(payment, block)


def start(
    store: Store, http: httpx.AsyncClient, payments: Payments, sessions: Sessions
) -> list[asyncio.Task[None]]:
    async def clear() -> None:
        payments.clear_entitlements()
        store.drop_old_offers(time.time() - 86400)

    interval = INDEX_SECONDS * (12 if bug("indexer_hourly") else 1)
    if on("one_loop"):
        due = 0.0

        async def turn() -> None:
            nonlocal due
            await sessions.expire()
            await payments.reconcile_open()
            if time.time() >= due:
                due = time.time() + interval
                await index(store, http)

        return [asyncio.create_task(repeat(0.5, turn, fragile=bug("indexer_dies")))]

    indexing = repeat(
        interval,
        lambda: index(store, http),
        wait_first=on("first_index_late"),
        fragile=bug("indexer_dies"),
    )
    clearing = repeat(CACHE_CLEAR_SECONDS, clear, wait_first=True)
    rest = (repeat(0.5, sessions.expire), repeat(2, payments.reconcile_open))
    return [asyncio.create_task(each) for each in (indexing, clearing, *rest)]
