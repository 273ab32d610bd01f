"""Reports whether the body of an answer was read to its end.

A payment buys the body, not the status line. If the body breaks off, or the caller closes the
answer early, the payment has bought nothing yet and is sent again.
"""

from collections.abc import AsyncIterator, Callable, Iterator

import httpx

from x402sim.http.bounded import EncodedEnd

_WITHOUT_BODY = (204, 304)
Ended = Callable[[bool], None]
"""Called with True if a body was read to its end, else with False."""


def on_body_end(response: httpx.Response, ended: Ended) -> None:
    """Call `ended` once: when the body was read to its end and closed, or when it breaks off.

    `ended` is called at once if the client's response hook has read the body, to its end or not,
    or has closed the answer, or if the answer has no body (HEAD, 204, a length of 0 without
    chunks). A body in gzip or deflate that ends before its encoding does has broken off, even at
    the right length. A body in several encodings counts as broken off: `EncodedEnd` decodes one. A
    body without length or chunks ends with its connection: a break cannot be noticed there. Nor can
    a cut gzip body at the right length be noticed after the hook: httpx keeps only the decoded
    text.
    """
    is_empty = (
        response.headers.get("content-length") == "0"
        and "transfer-encoding" not in response.headers  # httpx reads the body by this header
    )
    has_no_body = response.request.method == "HEAD" or response.status_code in _WITHOUT_BODY
    if has_no_body or is_empty:
        ended(True)
    elif response.is_stream_consumed or response.is_closed:
        ended(_is_read(response))
    else:
        encoded = EncodedEnd(response.headers.get("content-encoding", ""))
        response.stream = _TrackedBody(response.stream, encoded, ended)


def _is_read(response: httpx.Response) -> bool:
    """Return whether the client's response hook has read the whole body, not a part of it."""
    try:
        return response.content is not None
    except httpx.ResponseNotRead:
        return False


class _TrackedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that reports its end once: when it is closed, as httpx does after the last byte.

    A caller cancelled during the close gets no answer, so the body counts as not read.
    """

    def __init__(
        self,
        inner: httpx.SyncByteStream | httpx.AsyncByteStream,
        encoded: EncodedEnd,
        ended: Ended,
    ) -> None:
        self._inner, self._encoded, self._ended = inner, encoded, ended
        self._is_whole = self._is_reported = False

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._inner, httpx.SyncByteStream)
        try:
            for chunk in self._inner:
                self._encoded.feed(chunk)
                yield chunk
            self._is_whole = self._encoded.is_whole
        finally:
            self._report_broken()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx.AsyncByteStream)
        try:
            async for chunk in self._inner:
                self._encoded.feed(chunk)
                yield chunk
            self._is_whole = self._encoded.is_whole
        finally:
            self._report_broken()

    def close(self) -> None:
        assert isinstance(self._inner, httpx.SyncByteStream)
        try:
            self._inner.close()
        except BaseException:
            self._report(False)
            raise
        self._report(self._is_whole)

    async def aclose(self) -> None:
        assert isinstance(self._inner, httpx.AsyncByteStream)
        try:
            await self._inner.aclose()
        except BaseException:
            self._report(False)
            raise
        self._report(self._is_whole)

    def _report_broken(self) -> None:
        if not self._is_whole:
            self._report(False)

    def _report(self, is_whole: bool) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._ended(is_whole)
