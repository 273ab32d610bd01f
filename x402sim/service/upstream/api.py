"""The API behind a paywall: passes requests on over HTTP/1.1, and answers with its answers.

Headers of one connection (RFC 9110, 7.6.1) and of payments stay on their side. A paid answer is
read whole, within limits, before anybody is charged; a free one streams. Each request has a
connection of its own: none is sent twice, as it could act twice.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote, unquote, urlsplit

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from x402sim.http import web
from x402sim.http.exchange import Headers
from x402sim.protocol.x402 import OF_PAYMENTS
from x402sim.text.words import as_given

MAX_ANSWER_BYTES = 8 << 20
"""The most bytes of a paid answer, which is held until the payment is settled."""
DEADLINE_S = 60.0
"""The seconds for a whole paid answer, and for each part of a free one."""
_CONNECTION = {
    *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
    *("upgrade", "proxy-authenticate", "proxy-authorization", "date"),
}
_PAYMENT = {name.decode() for name in OF_PAYMENTS}
_OVERRIDES = {
    *("x-http-method-override", "x-http-method", "x-method-override"),
    *("x-original-url", "x-rewrite-url"),
}
"""Headers that make some servers answer another request than the paid request."""
_CONDITIONS = {"if-none-match", "if-modified-since", "if-range", "range"}
"""Headers that ask for less than the whole: whoever pays gets all."""
_CACHES = {
    *("age", "cache-control", "cdn-cache-control", "expires", "pragma", "surrogate-control"),
}
_TWICE = re.compile("%[0-9A-Fa-f]{2}")


class Passed(StreamingResponse):
    """An answer that streams from an API; it is sent, or dropped."""

    def __init__(self, answer: httpx.Response, transport: httpx.AsyncHTTPTransport) -> None:
        self._transport = transport

        async def parts() -> AsyncIterator[bytes]:
            async with transport:
                async for part in _parts(answer):
                    yield part

        super().__init__(parts(), answer.status_code)
        of_chunks = {"content-length"} if "transfer-encoding" in answer.headers else set[str]()
        self.raw_headers = _kept(answer.headers.raw, _PAYMENT | of_chunks)

    async def drop(self) -> None:
        """Close the connection without reading the body."""
        await self._transport.aclose()


@dataclass(frozen=True, slots=True)
class Api:
    """An API at a base URL; raises `ValueError` for a URL that is not http or https."""

    url: str

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or parts.query or parts.fragment or parts.username is not None:
            raise ValueError(
                "an upstream is a URL without user and query, such as http://127.0.0.1:3000, not "
                f"{as_given(self.url)}"
            )

    async def sold(self, request: Request) -> Response:
        """Return the whole answer to a paid request, which no cache stores.

        Raises `Refused` 502 and 504 if there is none within the limits: nothing is charged.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer, transport = await self._send(request, _CONDITIONS)
                async with transport:
                    async for part in _parts(answer):
                        body += part
                        if len(body) > MAX_ANSWER_BYTES:
                            raise _failed(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
        except (TimeoutError, httpx.TimeoutException) as late:
            why = f"no whole answer within {DEADLINE_S:g} seconds"
            raise web.Refused(504, "Upstream timed out", why) from late
        except httpx.HTTPError as failure:
            raise _failed(str(failure) or type(failure).__name__) from failure
        response = Response(bytes(body), answer.status_code)
        headers = _kept(answer.headers.raw, {*_PAYMENT, *_CACHES, "content-length"})
        if answer.status_code not in (204, 304):
            headers.append((b"content-length", b"%d" % len(body)))
        response.raw_headers = [*headers, (b"cache-control", b"no-store")]
        return response

    async def free(self, request: Request) -> Response:
        """Return an answer that streams, to a request that costs nothing; raises `Refused` 502."""
        try:
            answer, transport = await self._send(request)
        except httpx.HTTPError as failure:
            raise _failed(str(failure) or type(failure).__name__) from failure
        return Passed(answer, transport)

    async def _send(
        self, request: Request, also_left_out: Iterable[str] = ()
    ) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        """Return the head of the answer, and the transport to close behind the body."""
        scope, body = request.scope, await web.read_body(request)
        path = plain_path(request)
        url = httpx.URL(self.url.rstrip("/") + path)
        if query := scope["query_string"]:
            url = url.copy_with(query=query)
        left_out = {*_PAYMENT, *_OVERRIDES, *also_left_out, "host", "content-length", "expect"}
        headers = _kept(scope["headers"], left_out)
        client = scope.get("client")
        forwarded = [web.header(request, b"x-forwarded-for"), client[0] if client else None]
        headers = [pair for pair in headers if not _plain(pair[0]).startswith("x-forwarded-")]
        headers += [
            (b"host", url.netloc),
            (b"x-forwarded-for", ", ".join(filter(None, forwarded)).encode("latin-1")),
            (b"x-forwarded-host", (web.header(request, b"host") or "").encode("latin-1")),
            (b"x-forwarded-proto", scope["scheme"].encode()),
        ]
        if body or request.method in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", b"%d" % len(body)))
        extensions = {"timeout": httpx.Timeout(DEADLINE_S).as_dict()}
        stream, method = httpx.ByteStream(body), request.method
        sent = httpx.Request(method, url, headers=headers, stream=stream, extensions=extensions)
        transport = httpx.AsyncHTTPTransport(
            verify=_certificates() if url.scheme == "https" else False, trust_env=False
        )
        try:
            return await transport.handle_async_request(sent), transport
        except BaseException:
            await transport.aclose()
            raise


def _parts(answer: httpx.Response) -> httpx.AsyncByteStream:
    """Return the body as it comes, still encoded."""
    assert isinstance(answer.stream, httpx.AsyncByteStream)
    return answer.stream


def plain_path(request: Request) -> str:
    """Return the path of a request as it is sent; raises `Refused` 400 if servers could read it in
    two ways: such a path could be free here, and sold behind.
    """
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    path = unquote(text := raw.decode("latin-1"))
    segments = path.split("/")[1:]
    if (
        any(each in (".", "..") for each in segments)
        or "" in segments[:-1]
        or any(letter in path for letter in "\\;\ufffd")  # any byte that is no UTF-8 becomes \ufffd
        or not path.isprintable()
        or _TWICE.search(path)
    ):
        reason = "write the path plainly: without . and .., //, \\, ; and an encoded %, in UTF-8"
        raise web.Refused(400, "Invalid path", reason)
    return text


def _kept(headers: Iterable[tuple[bytes, bytes]], left_out: Iterable[str]) -> Headers:
    """Return headers without those of one connection, and without some more."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        each.strip().lower()
        for name, value in pairs
        if name == b"connection"
        for each in value.decode("latin-1").split(",")
    }
    out = {*_CONNECTION, *left_out, *named}
    return [pair for pair in pairs if _plain(pair[0]) not in out]


def _plain(name: bytes) -> str:
    """Return a header's name as servers compare names: some, as those of WSGI, read _ as -."""
    return name.decode("latin-1").replace("_", "-").lower()


def _failed(reason: str) -> web.Refused:
    return web.Refused(502, "Upstream failed", reason)


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
