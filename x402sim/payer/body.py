"""Tells whether the body of an answer was read to its end: only then has a payment bought it.

A head is no goods. A body that breaks off or never ends, and one that is closed before its end,
have bought nothing yet.
"""

from collections.abc import AsyncIterator, Callable, Iterator

import httpx

_WITHOUT_BODY = (204, 205, 304)
Ended = Callable[[bool], None]
"""Gets whether a body was read to its end."""


def watch(response: httpx.Response, ended: Ended) -> None:
    """Call `ended` once: when the body was read to its end, breaks off, or is closed before.

    At once if it is read already, or if there is none: of a HEAD, a 204 or a length of 0, a caller
    has nothing to read. A body whose end is the end of its connection cannot be seen to break off.
    """
    has_body = (
        response.request.method != "HEAD"
        and response.status_code not in _WITHOUT_BODY
        and response.headers.get("content-length") != "0"
    )
    if response.is_stream_consumed or not has_body:
        ended(True)
    else:
        response.stream = _Watched(response.stream, ended)


class _Watched(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that tells how it ended."""

    def __init__(self, inner: httpx.SyncByteStream | httpx.AsyncByteStream, ended: Ended) -> None:
        self._inner, self._ended, self._is_told = inner, ended, False

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._inner, httpx.SyncByteStream)
        is_whole = False
        try:
            yield from self._inner
            is_whole = True
        finally:
            self._tell(is_whole)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx.AsyncByteStream)
        is_whole = False
        try:
            async for chunk in self._inner:
                yield chunk
            is_whole = True
        finally:
            self._tell(is_whole)

    def close(self) -> None:
        self._tell(False)
        assert isinstance(self._inner, httpx.SyncByteStream)
        self._inner.close()

    async def aclose(self) -> None:
        self._tell(False)
        assert isinstance(self._inner, httpx.AsyncByteStream)
        await self._inner.aclose()

    def _tell(self, is_whole: bool) -> None:
        if not self._is_told:
            self._is_told = True
            self._ended(is_whole)
