"""Reads responses of other parties within limits of size and time.

`bound` limits the body of one answer: at most `max_answer_bytes`, as received and after decoding,
are ever held. Only gzip and deflate are decoded, because only zlib can stop in the middle of a
chunk; in any other encoding, or in two, a few bytes may become gigabytes. `receive`
adds a deadline over the whole exchange: a byte a second resets every timeout of httpx.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one answer: bytes of its body, and seconds of the exchange."""

    max_answer_bytes: int = MIB
    deadline_s: float = 90.0

    def __post_init__(self) -> None:
        for name in ("max_answer_bytes", "deadline_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")


class AnswerTooLarge(httpx.RemoteProtocolError):
    """The body is larger than `max_answer_bytes`."""


class AnswerTooSlow(httpx.ReadTimeout):
    """The answer was not complete within `deadline_s`."""


class AnswerUnreadable(httpx.RemoteProtocolError):
    """The body has an encoding that cannot be read, or breaks the rules of the encoding."""


def bound(
    response: httpx.Response, limits: Limits, elapsed_s: Callable[[], float] | None = None
) -> None:
    """Limit the body of an answer, before it is read.

    Reading the body then raises `AnswerTooLarge` and `AnswerUnreadable`; with `elapsed_s`, also
    `AnswerTooSlow` as soon as a chunk arrives after the deadline. The header Content-Encoding is
    removed, because httpx reads the body already decoded. A large 402 page for browsers
    is cut: the offer is in a header.
    """
    if response.is_stream_consumed:  # read already, such as an answer of this process
        require_size(len(response.content), limits)
        return
    response.stream = _Limited(response, limits, elapsed_s)
    if "content-encoding" in response.headers:
        del response.headers["content-encoding"]


async def receive(sending: Awaitable[httpx.Response], limits: Limits) -> httpx.Response:
    """Return a whole answer within the limits, given the awaitable that sends its request.

    Raises `AnswerTooLarge`, `AnswerTooSlow`, `AnswerUnreadable` and the errors of `sending`. A
    server's charset is ignored, because Python has charsets that decompress or always fail: the
    text is UTF-8.
    """
    try:
        async with asyncio.timeout(limits.deadline_s):
            response = await sending
            await read(response, limits)
    except TimeoutError as error:
        raise too_slow(limits) from error
    response.encoding = "utf-8"
    return response


async def read(response: httpx.Response, limits: Limits) -> None:
    """Read the body of an answer within the size limit; on failure, close the connection."""
    try:
        bound(response, limits)
        await response.aread()
    except BaseException:
        await response.aclose()
        raise


def to_no_url(wrong: Exception) -> httpx.RemoteProtocolError:
    """Return the error of a redirect to an invalid URL: httpx parses the URL of every redirect.

    httpx raises `httpx.InvalidURL` or a `UnicodeError`, neither of them an `httpx.HTTPError`.
    """
    return httpx.RemoteProtocolError(f"the answer redirects to no URL: {wrong}")


def too_slow(limits: Limits) -> AnswerTooSlow:
    """Return the error of an answer that is not complete at the deadline."""
    return AnswerTooSlow(
        f"no complete answer within deadline_s = {limits.deadline_s:g}; raise deadline_s if the "
        "server needs longer"
    )


class BoundedTransport(httpx.AsyncBaseTransport):
    """A transport whose answers are whole and within the limits (see `receive`).

    A request may raise its limit with the extension `max_answer_bytes`.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, limits: Limits) -> None:
        self._inner, self._limits = inner, limits

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its whole answer; raises `httpx.TransportError`."""
        most = request.extensions.get("max_answer_bytes", self._limits.max_answer_bytes)
        limits = replace(self._limits, max_answer_bytes=most)
        return await receive(self._inner.handle_async_request(request), limits)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


class _Limited(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer, decoded and measured while it arrives."""

    def __init__(
        self, response: httpx.Response, limits: Limits, elapsed_s: Callable[[], float] | None
    ) -> None:
        headers, self._inner = response.headers, response.stream
        is_page = headers.get("content-type", "").lower().startswith("text/html")
        self._leaves_rest = is_page and response.status_code == 402
        self._encoding = headers.get("content-encoding", "").strip().lower()
        self._limits, self._elapsed_s = limits, elapsed_s
        self._received = self._decoded = 0
        self._head = b""
        self._zlib: Any = None

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._inner, httpx.SyncByteStream)
        for chunk in self._inner:
            if (part := self._part(chunk)) is None:
                return
            yield part
        self._finish()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx.AsyncByteStream)
        async for chunk in self._inner:
            if (part := self._part(chunk)) is None:
                return
            yield part
        self._finish()

    def close(self) -> None:
        assert isinstance(self._inner, httpx.SyncByteStream)
        self._inner.close()

    async def aclose(self) -> None:
        assert isinstance(self._inner, httpx.AsyncByteStream)
        await self._inner.aclose()

    def _part(self, chunk: bytes) -> bytes | None:
        """Return a chunk decoded; None once a body that may be cut is too large."""
        if self._elapsed_s is not None and self._elapsed_s() > self._limits.deadline_s:
            raise too_slow(self._limits)
        try:
            self._received += len(chunk)
            require_size(self._received, self._limits)
            if chunk and self._encoding not in ("", "identity"):
                chunk = self._inflate(chunk)
                self._decoded += len(chunk)
                require_size(self._decoded, self._limits)
        except AnswerTooLarge:
            if self._leaves_rest:
                return None
            raise
        return chunk

    def _finish(self) -> None:
        if self._head or (self._zlib is not None and not self._zlib.eof):
            raise AnswerUnreadable(f"the answer's body ends in the middle of its {self._encoding}")

    def _inflate(self, chunk: bytes) -> bytes:
        """Return at most one byte more than the limit allows."""
        if self._zlib is None:
            if self._encoding not in _INFLATED:
                raise AnswerUnreadable(
                    f"the answer has Content-Encoding {self._encoding[:80]!r}; gzip, deflate and "
                    "none are read, because others cannot be decoded within a limit. Ask the "
                    "server for one of them"
                )
            self._head += chunk
            if len(self._head) < 2:
                return b""
            chunk, self._head = self._head, b""
            self._zlib = zlib.decompressobj(_window(self._encoding, chunk))
        try:
            most = self._limits.max_answer_bytes - self._decoded + 1
            inflated: bytes = self._zlib.decompress(chunk, most)
        except zlib.error as error:
            raise AnswerUnreadable(f"the answer's body is not {self._encoding}: {error}") from error
        return inflated


class EncodedEnd:
    """Tells whether a body in gzip or deflate was whole, by its bytes, without keeping any.

    A body in another encoding counts as whole, because nothing here can decode it; so does an empty
    body. A body in several encodings counts as cut: a few bytes in gzip twice may become gigabytes,
    and no client asks for two. Of gzip in several members, only the first counts: httpx, too, reads
    no other.
    """

    def __init__(self, encoding: str) -> None:
        named = [each.strip().lower() for each in encoding.split(",")]
        encodings = [each for each in named if each not in ("", "identity")]
        self._encoding = "".join(encodings[:1])
        self._head, self._is_broken = b"", len(encodings) > 1
        self._zlib: Any = None

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the body."""
        if self._encoding not in _INFLATED or self._is_broken:
            return
        if self._zlib is None:
            self._head += chunk
            if len(self._head) < 2:
                return
            chunk, self._head = self._head, b""
            self._zlib = zlib.decompressobj(_window(self._encoding, chunk))
        try:
            while chunk and not self._zlib.eof:
                self._zlib.decompress(chunk, _PIECE_BYTES)  # a small chunk may hold a large text
                chunk = self._zlib.unconsumed_tail
        except zlib.error:
            self._is_broken = True

    @property
    def is_whole(self) -> bool:
        """Whether the bytes so far are a whole body; an empty body is whole."""
        ends = self._zlib is None or self._zlib.eof
        return ends and not self._head and not self._is_broken


_INFLATED = ("gzip", "x-gzip", "deflate")
_PIECE_BYTES = 1 << 16


def _window(encoding: str, head: bytes) -> int:
    """Return zlib's name for an encoding; `deflate` comes with a zlib header or without."""
    if encoding == "deflate":
        has_header = head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    return zlib.MAX_WBITS | 16


def require_size(count: int, limits: Limits) -> None:
    """Raise `AnswerTooLarge` for a body of more bytes than the limits allow."""
    if count > limits.max_answer_bytes:
        raise AnswerTooLarge(
            f"the answer's body is larger than max_answer_bytes = {limits.max_answer_bytes}, and "
            "was not read on; raise max_answer_bytes if the server needs that much"
        )
