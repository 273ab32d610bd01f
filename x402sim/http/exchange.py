"""HTTP requests and answers as plain values, and the transports that send them.

Within one process a request passes from part to part as a value: building httpx's objects for each
part would take longer than most answers. The exceptions are httpx's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Generator
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import coroutine
from typing import Any, TypeVar
from urllib.parse import unquote

import httpx
import msgspec

from x402sim.http.bounded import Limits, read

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]
UNLIMITED = 1 << 40
"""The limit in bytes of an answer whose request sets no limit."""


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Return the seconds in the header Retry-After (RFC 9110, 10.2.3): a number, or the time until
    a date, 0 for a past date. None for any other value, and for no header.
    """
    if value is None:
        return None
    if (digits := value.strip()).isdecimal():
        return float(digits[:12])  # 30,000 years; more digits could overflow
    try:
        return max(0.0, date_s(value) - now_s)
    except (ValueError, OverflowError):
        return None


def date_s(value: str) -> float:
    """Return the Unix seconds of an HTTP date (RFC 9110, 5.6.7); raises `ValueError` for no date.

    Of the three forms of dates, asctime's names no zone, and means UTC; Python would assume local
    time.
    """
    date = parsedate_to_datetime(value)
    if date.tzinfo is None and value.rstrip().endswith("-0000"):
        raise ValueError(f"{value[:40]!r} is a date of mail, of an unknown zone")
    return (date.replace(tzinfo=UTC) if date.tzinfo is None else date).timestamp()


class Url(msgspec.Struct, frozen=True):
    """A URL, parsed once for all requests to it; `path` is decoded, and `raw_path` is not."""

    text: str | httpx.URL
    scheme: str
    host: str
    port: int | None
    netloc: bytes
    path: str
    raw_path: bytes
    query: bytes

    @classmethod
    def of(cls, url: httpx.URL) -> "Url":
        """Return a URL of httpx."""
        raw_path = url.raw_path.partition(b"?")[0]
        path, parts = unquote(raw_path.decode("ascii")), (url.scheme, url.host, url.port)
        return cls(url, *parts, url.netloc, path, raw_path, url.query)

    def __str__(self) -> str:
        return str(self.text)


class Request(msgspec.Struct):
    """A request, with all its headers, whose names are in lower case.

    `extensions` are httpx's `timeout`, `target` and `max_answer_bytes`, and the number of the
    `exchange`, which a link sets.
    """

    method: str
    url: Url
    headers: Headers
    body: bytes = b""
    extensions: dict[str, Any] = {}


class Response(msgspec.Struct, frozen=True):
    """A whole answer; the content is decoded, without a header Content-Encoding.

    The names of headers are in lower case.
    """

    status: int
    headers: Headers
    content: bytes

    @property
    def text(self) -> str:
        """The content as UTF-8, whatever charset the headers name."""
        return self.content.decode("utf-8", "replace")


class Transport(httpx.AsyncBaseTransport, ABC):
    """Carries requests; an httpx client can use a `Transport`, too."""

    is_local = False
    """Whether the answering part is in this process."""

    @abstractmethod
    def send(self, request: Request) -> Awaitable[Response]:
        """Return the answer to a request; raises `httpx.TransportError`."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request of an httpx client."""
        url, body = Url.of(request.url), await request.aread()
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        answer = await self.send(Request(request.method, url, headers, body, request.extensions))
        return httpx.Response(answer.status, headers=answer.headers, content=answer.content)


class OverTransport(Transport):
    """Carries requests over a transport of httpx, such as one of sockets."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Response:
        """Return the answer to a request; raises `httpx.TransportError`."""
        response = await self._inner.handle_async_request(
            httpx.Request(
                request.method,
                request.url.text,
                headers=request.headers,
                stream=httpx.ByteStream(request.body),
                extensions=request.extensions,
            )
        )
        await response.aread()
        await response.aclose()
        return plain(response)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


class OverClient(Transport):
    """Carries requests over an httpx client, with its headers, proxies and authentication.

    A redirect is not followed.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(self, request: Request) -> Response:
        """Return the answer to a request; raises `httpx.HTTPError`, also for a large answer."""
        most = request.extensions.get("max_answer_bytes", UNLIMITED)
        built = self._http.build_request(
            request.method,
            request.url.text,
            content=request.body,
            headers=request.headers,
            extensions=request.extensions,
        )
        request.extensions = built.extensions
        response = await self._http.send(built, stream=True, follow_redirects=False)
        await read(response, Limits(max_answer_bytes=most))
        return plain(response)


def plain(response: httpx.Response) -> Response:
    """Return an answer that httpx has read and decoded."""
    raw = [(name.lower(), value) for name, value in response.headers.raw]
    headers = [pair for pair in raw if pair[0] != b"content-encoding"]
    return Response(response.status_code, headers, response.content)


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return the result of some work; raises `TimeoutError` after so many seconds.

    A timer costs as much as a small answer. So the work first runs until it waits, and work that
    never waits sets no timer. Otherwise the same as `asyncio.timeout`, in a third of the calls.
    """
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    task, is_over = asyncio.current_task(), False
    assert task is not None
    cancellations = task.cancelling()

    def end() -> None:
        nonlocal is_over
        is_over = True
        task.cancel()

    timer = task.get_loop().call_later(seconds, end)
    try:
        return await _rest(steps, waits_for)
    except asyncio.CancelledError as cancelled:
        if is_over and task.cancelling() <= cancellations + 1:  # nobody else has cancelled it
            raise TimeoutError from cancelled
        raise
    finally:
        timer.cancel()
        if is_over:
            task.uncancel()


@coroutine
def _rest(steps: Generator[Any, None, T], waits_for: Any) -> Generator[Any, None, T]:
    """Do the rest of some work, which already waits for `waits_for`."""
    try:
        yield waits_for
    except BaseException as raised:  # noqa: BLE001 - thrown into the work
        try:
            waits_for = steps.throw(raised)
        except StopIteration as done:
            result: T = done.value
            return result
        return (yield from _rest(steps, waits_for))
    return (yield from steps)
