"""Ends a scenario that nothing can wake any more, or that makes no request for a month."""

import asyncio
from types import TracebackType

from x402sim.clock import Clock, periodic_context
from x402sim.events import AnswerReceived, NoAnswer, Part, RequestSent, TimeAdvanced
from x402sim.journal import Entry
from x402sim.world.loop import Deadlock, VirtualLoop

IDLE_TIMEOUT_S = 31 * 86400
"""A month of simulated time."""
CHECK_S, RECHECK_S = 600, 1
"""Simulated seconds between two checks for a deadlock, and until one is confirmed."""


class IdleTimeout:
    """A context manager around a scenario, and a listener of its journal.

    Raises `Deadlock` if nothing but periodic work is left, and `TimeoutError` after a month without
    a request; time that the scenario advances itself (`LiveWorld.advance`) does not count. What
    `stop` is given is raised in the scenario, so that the journal is kept: the loop's
    `TimeStandsStill`, and what the user's own code raised in a part of the world.
    """

    def __init__(self, clock: Clock, parts: frozenset[Part]) -> None:
        """Listen; `parts` are the actors that go on without the scenario."""
        self._clock, self._parts = clock, parts
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._until = self._loop.time() + IDLE_TIMEOUT_S
        first_s, unawaited = self._loop.time() + CHECK_S, periodic_context()
        self._timer = self._loop.call_at(first_s, self._check, context=unawaited)
        self._in_flight: set[int] = set()
        """The exchanges of the scenario that are in flight."""
        self._is_suspect = False
        self._newest_s = self._loop.time()
        self._stopped_by: Exception | None = None

    def __call__(self, entry: Entry) -> None:
        """Restart the timeout if the event is the scenario's own."""
        event = entry.event
        if event.actor in self._parts:
            return
        asked_s = event.seconds if isinstance(event, TimeAdvanced) else 0
        self._newest_s = self._loop.time()
        self._until = max(self._until, self._newest_s + asked_s + IDLE_TIMEOUT_S)
        if isinstance(event, RequestSent):
            self._in_flight.add(event.exchange)
        elif isinstance(event, AnswerReceived | NoAnswer):
            self._in_flight.discard(event.exchange)

    def _check(self) -> None:
        """Stop the scenario if two checks find it stuck; all that was ready runs in between."""
        now_s = self._loop.time()
        is_stuck = self._is_stuck()
        if is_stuck and self._is_suspect:
            self.stop(Deadlock(
                f"nothing can wake the story, which did nothing since {self._newest_s:.3f} s: only "
                "blocks, sweeps and the indexer are left"
            ))  # fmt: skip
        elif now_s >= self._until:
            self._limit.reschedule(now_s)
        else:
            self._is_suspect = is_stuck
            next_s = min(self._until, now_s + (RECHECK_S if is_stuck else CHECK_S))
            self._timer = self._loop.call_at(next_s, self._check)

    def _is_stuck(self) -> bool:
        """Tell whether no request is in flight, and no timer but those of periodic work is set."""
        if not isinstance(self._loop, VirtualLoop) or self._in_flight or self._loop.must_wait:
            return False
        return not self._clock.is_awaited and not self._loop.is_awaited

    def stop(self, error: Exception) -> None:
        """Raise an error in the scenario, now; of several, the first one counts."""
        if self._stopped_by is None:
            self._stopped_by = error
            self._limit.reschedule(self._loop.time())

    async def __aenter__(self) -> None:
        if isinstance(self._loop, VirtualLoop):
            self._loop.on_standstill = self.stop
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
            if self._stopped_by is None:
                raise TimeoutError(
                    f"the scenario made no request for {IDLE_TIMEOUT_S // 3600} hours of simulated "
                    "time"
                ) from error
        if self._stopped_by is not None:
            raise self._stopped_by from self._stopped_by.__cause__ or error
