"""How long does a story wait for what never happens? Not for ever, though its world goes on.

Blocks, sweeps and the indexer keep virtual time moving; it stands for patience that
nobody in the story does anything meanwhile.
"""

import asyncio
from types import TracebackType

from x402sim.events import TimeAdvanced
from x402sim.journal import Entry

PATIENCE_S = 31 * 86400
"""A month of the story's own time."""
_WITHOUT_THE_STORY = frozenset(("service", "facilitator", "explorer", "rpc", "chain"))


class Patience:
    """A context in which a story is played; shown every event of its journal.

    Raises `TimeoutError` in it once a month has gone by in which only the world was active;
    time that the story itself lets go by (`World.advance`) does not count.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._until = self._loop.time() + PATIENCE_S
        self._timer = self._loop.call_at(self._until, self._look)

    def __call__(self, entry: Entry) -> None:
        """Begin to wait anew, if it was the story that did something."""
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
                f"for {PATIENCE_S // 3600} hours only the world was active: "
                "what does the story wait for?"
            ) from error
