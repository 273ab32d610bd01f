"""Flows: the steps of paying, and httpx authentication that carries them out.

A flow is a generator of steps that knows neither threads nor tasks. `FlowAuth` carries a flow out
for sync and async clients, and reads answers within the limits. If httpx gives up, httpx closes the
flow, and the flow can keep the signed payment. One deadline holds for all steps of a flow.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from x402sim.http.bounded import Limits, bound, read, too_slow
from x402sim.payer.core import PaymentFailed
from x402sim.payer.deadline import Deadline
from x402sim.protocol.messages import encode
from x402sim.protocol.x402 import PROOF_HEADERS

MAX_REDIRECTS = 3
Trace = Callable[[str, dict[str, Any]], Any]


class Guard:
    """Checks one request as it is sent, redirects included.

    With an `origin`, the guard refuses any other server, and more than three redirects. With a
    `deadline`, for a sync client, every timeout ends at the deadline, until `release`. `inner` is
    the caller's own trace.
    """

    def __init__(
        self,
        inner: Trace | None,
        origin: str | None,
        deadline: Deadline | None,
        *,
        is_async: bool,
    ) -> None:
        self._inner, self._origin, self._deadline = inner, origin, deadline
        self._is_async = is_async
        self._sent = 0
        self._sending: Any = None

    def __call__(self, event: str, info: dict[str, Any]) -> Coroutine[Any, Any, Any] | None:
        """Check a request that is about to be sent, and its timeouts; raises `PaymentFailed`."""
        if event.endswith("send_request_headers.started"):
            if self._origin is not None:
                self._check(self._origin, info["request"])
            if self._deadline is not None:  # from here on httpcore reads the request's timeouts
                request = self._sending = info["request"]
                timeouts = request.extensions.get("timeout", {})
                limited = {
                    each: self._deadline.timeout(timeouts.get(each)) for each in ("read", "write")
                }
                request.extensions = request.extensions | {"timeout": limited}
        elif self._deadline is not None and "timeout" in info:  # of a new connection
            info["timeout"] = self._deadline.timeout(info["timeout"])
        if self._inner is not None:
            found: Coroutine[Any, Any, Any] | None = self._inner(event, info)
            return found
        return _nothing() if self._is_async else None

    def release(self, extensions: dict[str, Any]) -> None:
        """Leave the body of the answer to the timeouts of the caller's client."""
        if self._sending is not None:
            self._sending.extensions = extensions

    def without_deadline(self) -> "Guard":
        """Return a guard of the same origin, for a redirect that the caller may follow later."""
        return Guard(self._inner, self._origin, None, is_async=self._is_async)

    def _check(self, origin: str, request: Any) -> None:
        names = {name.decode("ascii", "replace").lower() for name, _ in request.headers}
        if request.method == b"CONNECT" and not names & {name.lower() for name in PROOF_HEADERS}:
            return  # to a proxy, without any of the request's headers
        url, target = request.url, request.url.target.decode("ascii", "replace")
        host = url.host.decode("ascii")
        to = httpx.URL(scheme=url.scheme.decode("ascii"), host=host, port=url.port)
        require_origin(origin, httpx.URL(target) if target.startswith("http://") else to)
        self._sent += 1
        if self._sent > 1 + MAX_REDIRECTS:
            raise PaymentFailed(
                f"{origin} redirected a request with a proof of payment {self._sent - 1} "
                f"times; at most {MAX_REDIRECTS} redirects are followed. What was signed or paid "
                "is kept: the next request sends it again"
            )


def require_origin(origin: str, url: httpx.URL) -> None:
    """Raise `PaymentFailed` if a request with a proof goes, or went, to another origin."""
    if origin_of(url) != origin:
        raise PaymentFailed(
            f"{origin} redirected a request with a proof of payment to {origin_of(url)}, which "
            "must not get it: proofs are sent to the server that they pay. What was signed or "
            "paid is kept: the next request sends it again"
        )


def origin_of(url: httpx.URL) -> str:
    """Return the only server that a proof of payment for this URL may go to."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def _nothing() -> None:
    pass


class Send(msgspec.Struct, frozen=True):
    """Send a request and get its answer, whose body is read if the status is 402.

    `is_own`: the payer itself made the request, not its caller; then every body is read.
    """

    request: httpx.Request
    is_own: bool = False

    @property
    def has_proof(self) -> bool:
        """Whether the request pays, or proves a payment, and may go to no other origin."""
        return self.is_own or bool(shown_in(self.request))


def shown_in(request: httpx.Request) -> str:
    """Return the header with which a request pays or proves a payment; else ""."""
    return next((name for name in PROOF_HEADERS if name in request.headers), "")


def shown_in_vain(url: httpx.URL, name: str) -> PaymentFailed:
    """Return the error for a request that came with its own proof of payment, and got a 402."""
    return PaymentFailed(
        f"the request to {origin_of(url)}{url.path} itself shows a payment, in {name}, and is "
        "answered 402; nothing more was signed",
        "That payment may still be made: once it cannot be, send the request without the header",
    )


class FairLock:
    """A lock for threads and tasks alike: first come, first served.

    A flow acquires the lock by yielding it as a step, and calls `release` at the end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[Future[None]] = deque()

    def acquire(self, most_s: float) -> None:
        """Block until the lock is free, and acquire it; raises `TimeoutError`."""
        with self._place() as place:
            place.result(most_s)

    async def acquire_async(self) -> None:
        """Wait until the lock is free, and acquire it."""
        with self._place() as place:
            if not place.done():
                await asyncio.wrap_future(place)

    def release(self) -> None:
        """Give the lock to the next waiter."""
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():  # False if the waiter has given up
                    place.set_result(None)
                    return
            self._is_taken = False

    @contextmanager
    def _place(self) -> Iterator[Future[None]]:
        """Yield a place in the queue: a future that is done once its owner holds the lock.

        If an error ends the wait, the place is given up.
        """
        place: Future[None] = Future()
        with self._lock:
            if self._is_taken:
                self._waiting.append(place)
            else:
                self._is_taken = True
                place.set_result(None)
        try:
            yield place
        except BaseException:
            if not place.cancel():  # its owner held the lock already
                self.release()
            raise


Step = Send | FairLock
Flow = Generator[Step, httpx.Response | None, httpx.Response]
"""Yields requests to send, and locks to acquire; gets each answer, and returns the last one.

If an answer cannot be read, the error is raised where the flow yielded the request.
"""


def send(step: Send) -> Flow:
    """Yield one request, and return its answer."""
    answer = yield step
    assert answer is not None
    return answer


def post(request: httpx.Request, path: str, message: Any) -> httpx.Request:
    """Return our own request with a JSON body, to the server of the caller's request."""
    return httpx.Request(
        "POST",
        request.url.copy_with(path=path, query=None, fragment=None),
        content=encode(message),
        headers={"Content-Type": "application/json"},
        extensions=request.extensions,
    )


class FlowAuth(httpx.Auth, ABC):
    """httpx authentication by a flow."""

    limits: Limits

    @abstractmethod
    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the steps of one exchange, and return its last answer."""

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield the requests of one exchange to a sync client."""
        return _drive(self.exchange(request), request, self.limits)

    def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Yield the requests of one exchange to an async client."""
        return _drive_async(self.exchange(request), request, self.limits)


def _drive(
    flow: Flow, request: httpx.Request, limits: Limits
) -> Generator[httpx.Request, httpx.Response, None]:
    """Carry out a flow for a request of a sync client; raises what the flow raises."""
    deadline, extensions = Deadline(limits), request.extensions
    try:
        request.read()
        step = next(flow)
        while True:
            if isinstance(step, FairLock):
                try:
                    step.acquire(deadline.left_s)
                except TimeoutError:
                    step = flow.throw(_lock_timeout(limits))
                else:
                    step = flow.send(None)
                continue
            if not deadline.left_s:
                step = flow.throw(too_slow(limits))
                continue
            step.request.read()
            guard = _guard(step, extensions, deadline)
            try:
                response = yield step.request
                if _must_read(step, response):
                    bound(response, limits, deadline.elapsed_s)
                    response.read()
            except (httpx.HTTPError, PaymentFailed) as error:
                step = flow.throw(error)
            except GeneratorExit as closed:  # httpx closes us while raising closed.__context__
                if isinstance(closed.__context__, httpx.TimeoutException) and not deadline.left_s:
                    flow.throw(too_slow(limits))
                raise
            else:
                step = flow.send(response)
    except StopIteration as end:
        guard.release(extensions)
        if (following := end.value.next_request) is not None:  # a redirect, for the caller to send
            following.extensions = extensions | {"trace": guard.without_deadline()}
    finally:
        request.extensions = extensions
        flow.close()


async def _drive_async(
    flow: Flow, request: httpx.Request, limits: Limits
) -> AsyncGenerator[httpx.Request, httpx.Response]:
    """Carry out a flow for a request of an async client, on asyncio.

    Raises what the flow raises.
    """
    ends_s, extensions = asyncio.get_running_loop().time() + limits.deadline_s, request.extensions
    try:
        await request.aread()
        step = next(flow)
        while True:
            timer = asyncio.timeout_at(ends_s)
            cancellations = _cancellations()
            try:
                async with timer:
                    response = None
                    if isinstance(step, FairLock):
                        await step.acquire_async()
                    else:
                        await step.request.aread()
                        _guard(step, extensions, None)
                        response = yield step.request
                        if _must_read(step, response):
                            await read(response, limits)
            except (httpx.HTTPError, PaymentFailed) as error:
                step = flow.throw(error)
            except (TimeoutError, GeneratorExit):
                # At the deadline asyncio cancels the task, here or inside httpx; httpx
                # then closes this generator. Another cancellation has priority.
                if not timer.expired() or _cancellations() > cancellations:
                    raise
                flow.throw(
                    _lock_timeout(limits) if isinstance(step, FairLock) else too_slow(limits)
                )
                raise
            else:
                step = flow.send(response)
    except StopIteration:
        return
    finally:
        request.extensions = extensions
        flow.close()


def _lock_timeout(limits: Limits) -> PaymentFailed:
    return PaymentFailed(
        "other requests for the same had their turn for all of deadline_s = "
        f"{limits.deadline_s:g}; nothing was signed for this one. Repeat it, or raise deadline_s"
    )


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _guard(step: Send, extensions: dict[str, Any], deadline: Deadline | None) -> Guard:
    """Add a `Guard` to a request, and for a sync client timeouts that end at the deadline."""
    request, timeouts = step.request, extensions.get("timeout", {})
    origin = origin_of(request.url) if step.has_proof else None
    guard = Guard(extensions.get("trace"), origin, deadline, is_async=deadline is None)
    request.extensions = extensions | {"trace": guard}
    if deadline is not None:
        request.extensions["timeout"] = {
            each: deadline.within(timeouts.get(each))
            for each in ("connect", "read", "write", "pool")
        }
    return guard


def _must_read(step: Send, response: httpx.Response) -> bool:
    """Return whether the body of an answer is read here, and not by the caller.

    Raises `PaymentFailed` if an answer that pays, or requires a payment, came from another origin.
    """
    requested, there = origin_of(step.request.url), response.request.url
    if step.has_proof:
        require_origin(requested, there)
    elif response.status_code == 402 and origin_of(there) != requested:
        raise PaymentFailed(
            f"{requested} redirected to {origin_of(there)}, which asks for a payment; nothing was "
            "signed. To pay there, request that URL"
        )
    return step.is_own or response.status_code == 402
