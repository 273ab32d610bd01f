"""When is a story given up that waits for something that never happens?

Blocks, sweeps and the indexer keep virtual time moving for ever, so a story times out when
only they have been active for a month.
"""

import asyncio
from types import TracebackType

from x402sim.events import TimeAdvanced
from x402sim.journal import Entry

PATIENCE_S = 31 * 86400
"""A month of the story's own time."""
_WITHOUT_THE_STORY = frozenset(("service", "facilitator", "explorer", "rpc", "chain"))


class Patience:
    """A context in which a story is played; it listens to the story's journal.

    Raises `TimeoutError` inside the context after a month in which only the world was active;
    time that the story itself advances (`LiveWorld.advance`) does not count.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._until = self._loop.time() + PATIENCE_S
        self._timer = self._loop.call_at(self._until, self._look)

    def __call__(self, entry: Entry) -> None:
        """Start the month again if the story did something."""
        if entry.event.actor not in _WITHOUT_THE_STORY:
            event = entry.event
            asked_s = event.seconds if isinstance(event, TimeAdvanced) else 0
            self._until = max(self._until, self._loop.time() + asked_s + PATIENCE_S)

    def _look(self) -> None:
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
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
                f"the scenario made no request for {PATIENCE_S // 3600} hours of virtual time"
            ) from error
