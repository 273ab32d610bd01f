"""Schedules checks: they run one at a time, and waiting ones yield.

So a check that waits for minutes runs beside the others, and meets neither the faults that
they inject nor the blocks that they hold back. Checks that need a restart share one: it comes
when all others are over, and each of them is ready for it. Its owner's command ends the target and
starts it again, and returns while the target runs on.
"""

import asyncio
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.clock import Clock


@dataclass(slots=True)
class Pace:
    """How fast a run may send: what was sent, and when the next request may be."""

    rate: float | None = None
    requests: int = 0
    free_at_s: float = 0.0

    async def turn(self, clock: Clock) -> None:
        """Return when the next request may be sent."""
        while (wait_s := self.free_at_s - clock.now()) > 0:
            await clock.sleep(wait_s)
        if self.rate is not None:
            self.free_at_s = clock.now() + 1 / self.rate
        self.requests += 1

    def hold(self, clock: Clock, seconds: float) -> None:
        """Send nothing for some seconds."""
        self.free_at_s = max(self.free_at_s, clock.now() + seconds)


class RestartFailed(Exception):
    """The target was not restarted, or does not answer since."""


class Scheduler:
    """Lets one check of a run act at a time; they run one by one unless `share` is called."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by the check that acts."""
        events = [asyncio.Event() for _ in range(4)]
        self.rest_is_over, self._may_restart, self._first_is_over, self._waits_are_over = events
        for event in events:
            event.set()
        self.ready = asyncio.Semaphore(0)
        """Released by each check that is ready for the restart, or over."""
        self._restarted: asyncio.Future[None] | None = None
        """The shared restart, once it has begun."""

    async def waiting(self, event: Coroutine[Any, Any, object]) -> None:
        """Pass the turn on until something has happened, and take it again."""
        self.turn.release()
        try:
            await event
        finally:
            await self.turn.acquire()

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        """Act before all checks that `wait_for_the_first`; for the first act of a check only."""
        self._first_is_over.clear()
        try:
            yield
        finally:
            self._first_is_over.set()

    async def wait_for_the_first(self) -> None:
        """Pass the turn on, so that every check begins, and wait for one that acts `first`."""
        await self.waiting(asyncio.sleep(0))  # noqa: TID251 - no time passes; the others begin
        await self.waiting(self._first_is_over.wait())

    async def wait_for_the_rest(self) -> None:
        """Pass the turn on until all checks are over that do not wait."""
        await self.waiting(self.rest_is_over.wait())

    async def wait_for_the_restart(self) -> None:
        """Pass the turn on until only checks are left that restart the target.

        What is done then until `restart` is done shortly before it.
        """
        await self.waiting(self._waits_are_over.wait())

    async def restart(self, restart: Callable[[], Awaitable[None]]) -> None:
        """Restart the target, or take part in the shared restart; raises `RestartFailed`."""
        self.ready.release()
        await self.waiting(self._may_restart.wait())
        self._restarted = self._restarted or asyncio.ensure_future(restart())
        await self._restarted

    def share(self) -> None:
        """Begin a run: the rest is not over, and one restart serves all."""
        self.rest_is_over.clear()
        self._may_restart.clear()
        self._waits_are_over.clear()

    async def when_ready(self, checks: int) -> None:
        """Wait until this many checks are ready for the restart, or over; then let it begin.

        All others are over.
        """
        self._waits_are_over.set()
        for _ in range(checks):
            await self.ready.acquire()
        self._may_restart.set()


POLL_S = 0.2


def restarting(
    command: str, http: httpx.AsyncClient, deadline_s: float
) -> Callable[[], Awaitable[None]]:
    """Return a function that runs a shell command, and waits until the target answers again.

    Both may take `deadline_s` seconds in real time. It raises `RestartFailed`.
    """

    async def restart() -> None:
        await _run(command, deadline_s)
        clock = Clock()
        end_s = clock.now() + deadline_s
        while (problem := await _no_answer(http)) is not None:
            if clock.now() > end_s:
                raise RestartFailed(
                    f"the target did not answer within {deadline_s:.0f} s after `{command}`: "
                    f"{problem}"
                )
            await clock.sleep(POLL_S)

    return restart


async def _run(command: str, deadline_s: float) -> None:
    """Run the command; what it writes is not kept, because the target may inherit its pipes."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        code = await asyncio.wait_for(process.wait(), deadline_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise RestartFailed(
            f"`{command}` did not end within {deadline_s:.0f} s; let it start the target in the "
            "background"
        ) from None
    if code != 0:
        raise RestartFailed(f"`{command}` ended with exit code {code}")


async def _no_answer(http: httpx.AsyncClient) -> str | None:
    """Return why the target does not answer; None if it does, whatever it says."""
    try:
        await http.get("/")
    except httpx.TransportError as error:
        return f"{type(error).__name__} {error}".strip()
    return None
