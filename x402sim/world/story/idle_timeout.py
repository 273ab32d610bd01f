"""Fails a story that waits forever: one without a request in a month of simulated time.

Blocks, sweeps and the indexer keep virtual time moving, so the loop itself never deadlocks. It also
ends a story in which time stands still.
"""

import asyncio
from collections.abc import Collection
from types import TracebackType

from x402sim.events import Part, TimeAdvanced
from x402sim.journal import Entry
from x402sim.world.loop import TimeStandsStill, VirtualLoop

IDLE_TIMEOUT_S = 31 * 86400
"""A month of simulated time."""


class IdleTimeout:
    """A context manager around a story, and a listener of its journal.

    Raises `TimeoutError` after a month without a request; time that the story advances itself
    (`LiveWorld.advance`) does not count. Raises the loop's `TimeStandsStill` into the story, so
    that the journal is kept.
    """

    def __init__(self, parts: Collection[Part]) -> None:
        """Listen; `parts` are the actors that go on without the story."""
        self._parts = frozenset(parts)
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._until = self._loop.time() + IDLE_TIMEOUT_S
        self._timer = self._loop.call_at(self._until, self._check_idle)
        self._standstill: TimeStandsStill | None = None

    def __call__(self, entry: Entry) -> None:
        """Restart the timeout if the event is the story's own."""
        if entry.event.actor not in self._parts:
            event = entry.event
            asked_s = event.seconds if isinstance(event, TimeAdvanced) else 0
            self._until = max(self._until, self._loop.time() + asked_s + IDLE_TIMEOUT_S)

    def _check_idle(self) -> None:
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._check_idle)
        else:
            self._limit.reschedule(self._loop.time())

    def _stop(self, standstill: TimeStandsStill) -> None:
        self._standstill = standstill
        self._limit.reschedule(self._loop.time())

    async def __aenter__(self) -> None:
        if isinstance(self._loop, VirtualLoop):
            self._loop.on_standstill = self._stop
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if isinstance(self._loop, VirtualLoop):
            self._loop.on_standstill = None
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            if self._standstill is not None:
                raise self._standstill from error
            raise TimeoutError(
                f"the scenario made no request for {IDLE_TIMEOUT_S // 3600} hours of simulated time"
            ) from error
