"""Reports whether the body of an answer was read to its end.

A payment buys the body, not the status line. If the body breaks off, or the caller closes it early,
the payment has bought nothing yet and is sent again.
"""

from collections.abc import AsyncIterator, Callable, Iterator

import httpx

_WITHOUT_BODY = (204, 205, 304)
Ended = Callable[[bool], None]
"""Called with whether a body was read to its end."""


def on_body_end(response: httpx.Response, ended: Ended) -> None:
    """Call `ended` once: when the body was read to its end, breaks off, or is closed before.

    It is called at once if the body is read already, or if there is none to read (HEAD, 204, a
    length of 0). A body without length or chunks ends with its connection: there a break cannot be
    noticed.
    """
    has_body = (
        response.request.method != "HEAD"
        and response.status_code not in _WITHOUT_BODY
        and response.headers.get("content-length") != "0"
    )
    if response.is_stream_consumed or not has_body:
        ended(True)
    else:
        response.stream = _TrackedBody(response.stream, ended)


class _TrackedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that reports once how it ended."""

    def __init__(self, inner: httpx.SyncByteStream | httpx.AsyncByteStream, ended: Ended) -> None:
        self._inner, self._ended, self._is_reported = inner, ended, False

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._inner, httpx.SyncByteStream)
        is_whole = False
        try:
            yield from self._inner
            is_whole = True
        finally:
            self._report(is_whole)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx.AsyncByteStream)
        is_whole = False
        try:
            async for chunk in self._inner:
                yield chunk
            is_whole = True
        finally:
            self._report(is_whole)

    def close(self) -> None:
        self._report(False)
        assert isinstance(self._inner, httpx.SyncByteStream)
        self._inner.close()

    async def aclose(self) -> None:
        self._report(False)
        assert isinstance(self._inner, httpx.AsyncByteStream)
        await self._inner.aclose()

    def _report(self, is_whole: bool) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._ended(is_whole)
