"""Fails a story that waits forever: one without a request in a month of simulated time.

Blocks, sweeps and the indexer keep virtual time moving, so the loop itself never deadlocks.
"""

import asyncio
from types import TracebackType
from typing import get_args

from x402sim.events import Part, TimeAdvanced
from x402sim.journal import Entry

IDLE_TIMEOUT_S = 31 * 86400
"""A month of simulated time."""
_WITHOUT_THE_STORY = frozenset((*get_args(Part), "chain"))


class IdleTimeout:
    """A context manager around a story, and a listener of its journal.

    Raises `TimeoutError` after a month without a request; time that the story advances itself
    (`LiveWorld.advance`) does not count.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._until = self._loop.time() + IDLE_TIMEOUT_S
        self._timer = self._loop.call_at(self._until, self._check_idle)

    def __call__(self, entry: Entry) -> None:
        """Restart the timeout if the event is the story's own."""
        if entry.event.actor not in _WITHOUT_THE_STORY:
            event = entry.event
            asked_s = event.seconds if isinstance(event, TimeAdvanced) else 0
            self._until = max(self._until, self._loop.time() + asked_s + IDLE_TIMEOUT_S)

    def _check_idle(self) -> None:
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._check_idle)
        else:
            self._limit.reschedule(self._loop.time())

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise TimeoutError(
                f"the scenario made no request for {IDLE_TIMEOUT_S // 3600} hours of simulated time"
            ) from error
