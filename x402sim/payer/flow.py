"""How does httpx carry out the steps of paying, in threads and in tasks?

A flow is a generator of steps that knows neither. `drive` and `drive_async` carry it out for a
sync and an async client, read what must be read within the limits, and close it if httpx gives
up, so that it keeps what it has signed.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import httpx

from x402sim.bounded import Limits, bound, read, too_slow
from x402sim.clock import Clock, stopwatch
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.redirects import guard, origin_of, require_origin
from x402sim.protocol.x402 import PAYMENT_HEADERS

POLL_S = 0.05
PROOFS = ("X-Payment-Id", "X-Session-Id", *PAYMENT_HEADERS.values())


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and get its answer; the body is there to be read if the status is 402.

    A request of `ours`, not the caller's, has a deadline, and its whole answer is read.
    """

    request: httpx.Request
    ours: bool = False

    @property
    def has_proof(self) -> bool:
        """Whether the request pays, or proves a payment: it goes to no other origin."""
        return self.ours or any(name in self.request.headers for name in PROOFS)


class Turn:
    """A lock for threads and tasks alike; a flow takes it with a step, and releases it itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self._queue: asyncio.Lock | None = None

    def take(self) -> None:
        """Block until the turn is free, and take it."""
        self._lock.acquire()

    async def take_async(self, clock: Clock) -> None:
        """Wait until the turn is free, and take it; the tasks of one loop get it in order."""
        queue = self._queues.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        await queue.acquire()
        try:
            while not self._lock.acquire(blocking=False):  # a thread has it, or another loop
                await clock.sleep(POLL_S)
        except BaseException:
            queue.release()
            raise
        self._queue = queue

    def release(self) -> None:
        """Let the next one take the turn."""
        queue, self._queue = self._queue, None
        self._lock.release()
        if queue is not None:
            queue.release()


Step = Send | Turn
Flow = Generator[Step, httpx.Response | None, httpx.Response]
"""Yields what to send, and the turns to take; gets each answer, and returns the last one.

What makes an answer unreadable is raised where its request was yielded.
"""
Maybe = Generator[Step, httpx.Response | None, httpx.Response | None]
"""A part of a flow that may have its last answer to return."""
Steps = Generator[Step, httpx.Response | None, None]
"""A part of a flow that has no answer to return."""


def send(step: Send) -> Flow:
    """Yield one request, and return its answer."""
    answer = yield step
    assert answer is not None
    return answer


def drive(
    flow: Flow, request: httpx.Request, limits: Limits
) -> Generator[httpx.Request, httpx.Response, None]:
    """Carry out a flow for a request of a sync client; raises what the flow raises.

    A thread cannot be interrupted: the deadline is looked at whenever a part of a body arrives.
    Until its head has arrived, the timeouts of the client hold.
    """
    try:
        request.read()
        step = next(flow)
        while True:
            if isinstance(step, Turn):
                step.take()
                step = flow.send(None)
                continue
            asked_s = stopwatch()
            step.request.read()
            response = yield _guarded(step, is_async=False)
            try:
                _require_origin(step, response)
                if _must_read(step, response):
                    bound(response, limits, asked_s if step.ours else stopwatch())
                    response.read()
            except (httpx.HTTPError, PaymentFailed) as error:
                step = flow.throw(error)
            else:
                step = flow.send(response)
    except StopIteration:
        return
    finally:
        flow.close()


async def drive_async(
    flow: Flow, request: httpx.Request, limits: Limits, clock: Clock
) -> AsyncGenerator[httpx.Request, httpx.Response]:
    """Carry out a flow for a request of an async client, on asyncio.

    Raises what the flow raises.
    """
    try:
        await request.aread()
        step = next(flow)
        while True:
            if isinstance(step, Turn):
                await step.take_async(clock)
                step = flow.send(None)
                continue
            timer = asyncio.timeout(limits.deadline_s if step.ours else None)
            cancellations = _cancellations()
            try:
                async with timer:
                    await step.request.aread()
                    response = yield _guarded(step, is_async=True)
                    _require_origin(step, response)
                    if _must_read(step, response):
                        if not step.ours:
                            timer.reschedule(asyncio.get_running_loop().time() + limits.deadline_s)
                        await read(response, limits)
            except (httpx.HTTPError, PaymentFailed) as error:
                step = flow.throw(error)
            except (TimeoutError, GeneratorExit):
                # At the deadline asyncio cancels the task, wherever it waits: here, or in httpx,
                # which then closes this generator. Another cancellation has priority.
                if not timer.expired() or _cancellations() > cancellations:
                    raise
                flow.throw(too_slow(limits))
                raise
            else:
                step = flow.send(response)
    except StopIteration:
        return
    finally:
        flow.close()


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _guarded(step: Send, *, is_async: bool) -> httpx.Request:
    if step.has_proof:
        guard(step.request, is_async=is_async)
    return step.request


def _require_origin(step: Send, response: httpx.Response) -> None:
    """Raise `PaymentFailed` if an answer that matters came from another origin."""
    if step.has_proof:
        require_origin(origin_of(step.request.url), response.request.url)
    elif response.status_code == 402 and origin_of(response.request.url) != origin_of(
        step.request.url
    ):
        raise PaymentFailed(
            f"{origin_of(step.request.url)} redirected to {origin_of(response.request.url)}, which "
            "asks for a payment; nothing was signed. Request it there, if you mean to pay it"
        )


def _must_read(step: Send, response: httpx.Response) -> bool:
    return step.ours or response.status_code == 402
