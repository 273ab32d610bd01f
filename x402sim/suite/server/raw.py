"""Requests byte for byte: a path is sent as written, and no client library corrects the path.

Each connection carries one request: no library repeats a request by itself.

Through `behind_cache`, a request reaches a server through a shared cache of a world.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httptools
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.clock import stopwatch
from x402sim.protocol import mcp
from x402sim.protocol.messages import decoded, encode
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS, json_in
from x402sim.suite.redact import cut, redacted
from x402sim.suite.report.exchange import Message
from x402sim.suite.started import CLOCK, free_port, served
from x402sim.text.words import counted, printable
from x402sim.world.cache import SharedCache, cached

MOST_BYTES = 1 << 24
"""The most bytes read of an answer; a longer answer is no broken answer."""
SHOWN, WHOLE = 120, 1500
"""The characters of a body in the short form of an answer, and in the full form."""
REQUIRED = REQUIRED_HEADER.lower()
RECEIPTS = tuple(name.lower() for name in RESPONSE_HEADERS.values())
RESULT = ("success", "errorReason", "transaction")
"""The fields of a receipt in the short form."""
EXPLAINS = (
    "cache-control",
    "vary",
    "access-control-allow-origin",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "location",
)
"""The other headers in the full form; in the short form, a case that tests a header adds it."""


MOST_DIGITS = 8
MOST_COUNT = 10**MOST_DIGITS
"""Greater numbers are times or ids."""
_NO_COUNT = ("header content-length", "header age")


class Headers(dict[str, str]):
    """Headers with names in lower case, found by a name in any case.

    The values of a repeated header are joined by commas.
    """

    def __init__(self, named: Mapping[str, str] = {}) -> None:
        super().__init__({name.lower(): value for name, value in named.items()})

    def add(self, name: str, value: str) -> None:
        """Add a header, or a further value of it."""
        self[name.lower()] = f"{self[name]}, {value}" if name in self else value

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a header, or the default."""
        return super().get(name.lower(), default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer; without one, `status` is 0, and `failure` says why."""

    sent: str
    status: int = 0
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    seconds: float = 0
    failure: str = ""
    is_cut: bool = False
    """Whether the body broke off."""
    rpc: Mapping[str, Any] = field(default_factory=dict)
    """The JSON-RPC response of a tool; empty for a path."""

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is no JSON, or nested too deep."""
        return decoded(self.body)

    @property
    def sold(self) -> Any:
        """The goods as JSON: the body; of a tool, the structured content or the first text."""
        result = self.rpc.get("result")
        if not isinstance(result, dict):
            return self.json
        structured = result.get("structuredContent")
        return structured if isinstance(structured, dict) else mcp.text_in(result)

    @property
    def is_2xx(self) -> bool:
        """Whether the status is a success."""
        return self.status // 100 == 2

    @property
    def is_sale(self) -> bool:
        """Whether the answer has goods: a success, of 202 only one with the receipt."""
        return self.is_2xx and (self.status != 202 or self._is_receipted)

    @property
    def goods(self) -> bytes:
        """The goods without booleans: a stored answer may carry `"cached": true`."""
        sold = self.sold
        if not isinstance(sold, dict):
            return self.body
        return encode({name: each for name, each in sold.items() if not isinstance(each, bool)})

    @property
    def undated(self) -> bytes:
        """The body without digits, since answers to the same request differ in them."""
        return re.sub(rb"\d+", b"", self.body)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Every whole number of goods and headers that may be a counter, by place."""
        found = dict(_numbers(self.sold if self.rpc or self.json is not None else self._text))
        for name, text in self.headers.items():
            if text.isdecimal() and len(text) <= MOST_DIGITS:
                found[f"header {name}"] = int(text)
        return {n: v for n, v in found.items() if n not in _NO_COUNT and v < MOST_COUNT}

    @property
    def is_server_error(self) -> bool:
        """Whether the status is a 5xx."""
        return self.status // 100 == 5

    @property
    def how(self) -> str:
        """The answer in short: the error and the number of the offers, the result of a receipt, and
        the beginning of a body."""
        if not self.status:
            return f"no answer ({self.failure})"
        offers = [
            f"error: {_short(json.dumps(each.get('error')))}, "
            f"{counted(len(each['accepts']), 'offer')}"
            for each in self._offers
        ]
        shown = [*dict.fromkeys(offers)]
        if not self._offers and REQUIRED in self.headers:
            shown.append(f"{REQUIRED}: {_short(_header(self.headers[REQUIRED]))}")
        for name in RECEIPTS:
            if name in self.headers:
                shown.append(f"{name}: {_result(self.headers[name])}")
        if self.json not in [*self._offers, {}]:
            shown.append(_short(self._text))
        late = f" after {self.seconds:.1f} s" if self.seconds > 1 else ""
        failed = f" ({self.failure})" if self.failure else ""
        return printable("; ".join([f"{self.status}{late}{failed}", *filter(None, shown)]))

    def showing(self, *names: str) -> str:
        """Return the answer in short, with the values of these headers."""
        shown = [f"{each}: {self.headers.get(each.lower(), 'none')}" for each in names]
        return printable("; ".join([self.how, *shown]))

    def message(self, *, with_offer: bool) -> Message:
        """Return the answer for a report: beside the short form, what the short form cuts."""
        headers = tuple(
            f"{name}: {as_sent(self.headers[name])}"
            for name in (REQUIRED, *RECEIPTS, *EXPLAINS)
            if name in self.headers and (with_offer or name != REQUIRED)
        )
        is_offer = self.json in self._offers
        is_shown = with_offer if is_offer else len(self._text) > SHOWN
        body = printable(cut(self._text, WHOLE)) if is_shown else ""
        return Message(str(self.status or self.failure), headers, body, short=self.how)

    @property
    def has_offer(self) -> bool:
        """Whether the answer makes an offer, whatever the status."""
        return bool(self._offers)

    @property
    def _is_receipted(self) -> bool:
        told = [json_in(self.headers.get(name)) for name in RECEIPTS]
        return any(isinstance(each, dict) and each.get("success") is True for each in told)

    @property
    def _offers(self) -> list[dict[str, Any]]:
        """The contents of the header and, of a 402, of the body, where each is an offer."""
        bodies = [json_in(self.headers.get(REQUIRED)), self.json if self.status == 402 else None]
        return [
            each for each in bodies if isinstance(each, dict) and type(each.get("accepts")) is list
        ]

    @property
    def _text(self) -> str:
        return redacted(self.body[: 4 * WHOLE].decode("utf-8", "replace"))

    @property
    def summary(self) -> str:
        """The request and its answer, in a line."""
        return f"{self.sent}: {self.how}"


def _numbers(value: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of a JSON value and of its texts, each with its place."""
    if type(value) is int:
        yield place, value
    elif isinstance(value, str):
        for at, digits in enumerate(re.findall(r"\d{1,9}", value[:WHOLE], re.ASCII)):
            yield f"{place} {at}", int(digits)
    elif isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in pairs:
            yield from _numbers(each, f"{place}.{name}")


def as_sent(text: str) -> str:
    """Return a header for a report, without secrets; base64 of JSON as JSON."""
    return printable(cut(_header(text), 2 * WHOLE))


def _header(text: str) -> str:
    known = json_in(text) if len(text) > 20 else None
    return redacted(json.dumps(known) if known is not None else text)


def _result(text: str) -> str:
    fields = json_in(text)
    known = [name for name in RESULT if name in fields] if isinstance(fields, dict) else []
    listed = ", ".join(f"{name}: {json.dumps(fields[name])}" for name in known)
    return listed or _short(_header(text))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class _Reader:
    """The callbacks of the parser. An interim answer, such as 103, is passed over, but a 101."""

    def __init__(self, *, is_head: bool, begun: asyncio.Event | None) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.headers = Headers()
        self.begun, self.is_head = begun, is_head
        self.body, self.has_head, self.is_complete = bytearray(), False, False

    @property
    def status(self) -> int:
        status: int = self.parser.get_status_code()
        return status

    def on_message_begin(self) -> None:
        self.headers = Headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.add(name.decode("latin-1"), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        self.has_head = self.status >= 200 or self.status == HTTPStatus.SWITCHING_PROTOCOLS
        self.is_complete = self.is_head and self.has_head

    def on_body(self, body: bytes) -> None:
        self.body += body
        if self.begun is not None:
            self.begun.set()

    def on_message_complete(self) -> None:
        self.is_complete = self.has_head


async def send(
    port: int,
    method: str,
    target: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    patience_s: float = 15.0,
    begun: asyncio.Event | None = None,
    is_enough: Callable[[Mapping[str, str], bytes], bool] | None = None,
) -> Answer:
    """Send a request to 127.0.0.1; return the answer, and raise for nothing that comes back.

    `target` is sent as written. A header named Host replaces ours. `begun` is set when the first
    piece of a body arrives. Cancelling the call hangs up. Reading stops once `is_enough` is true of
    headers and body.
    """
    elapsed = stopwatch()
    names = {name.lower() for name, _ in headers}
    own = [
        ("Host", f"127.0.0.1:{port}"),
        ("Connection", "close"),
        ("Accept", "*/*"),
        ("User-Agent", "x402sim"),  # some servers refuse a request without one
    ]
    if body is not None:
        own.append(("Content-Length", str(len(body))))
    lines = [(name, text) for name, text in own if name.lower() not in names]
    head = "".join(f"{name}: {text}\r\n" for name, text in (*lines, *headers))
    sent = f"{method} {target[:120]}"
    reader = _Reader(is_head=method == "HEAD", begun=begun)
    failure = ""
    out: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(patience_s):
            stream, out = await asyncio.open_connection("127.0.0.1", port)
            out.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b""))
            await out.drain()
            while not reader.is_complete and len(reader.body) < MOST_BYTES:
                piece = await stream.read(65536)
                if not piece:
                    break
                reader.parser.feed_data(piece)
                if is_enough and reader.has_head and is_enough(reader.headers, bytes(reader.body)):
                    reader.is_complete = True
    except httptools.HttpParserUpgrade:  # a 101: other bytes than HTTP follow
        reader.is_complete = True
    except TimeoutError:
        failure = f"none within {patience_s:g} s"
    except (OSError, httptools.HttpParserError) as error:
        failure = repr(error)[:200]
    finally:
        if out is not None:
            out.close()
            with suppress(OSError):
                await out.wait_closed()
    if not reader.has_head:
        failure = failure or "the connection ended"
        return Answer(sent=sent, failure=failure, seconds=elapsed())
    has_end = {"content-length", "transfer-encoding"} & reader.headers.keys()
    is_long = len(reader.body) >= MOST_BYTES
    is_cut = not (reader.is_complete or is_long) and (bool(failure) or bool(has_end))
    return Answer(
        sent=sent,
        status=reader.status,
        headers=reader.headers,
        body=bytes(reader.body),
        failure=failure or ("cut off" if is_cut else ""),
        seconds=elapsed(),
        is_cut=is_cut,
    )


# --- a shared cache --------------------------------------------------------------------------


_OF_THE_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "content-length")


def _passing(port: int, patience_s: float) -> ASGIApp:
    """Return an application that forwards each request to a port of 127.0.0.1."""

    async def serve(scope: Scope, receive: Receive, answer: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        query = scope["query_string"].decode("latin-1")
        got = await send(
            port,
            scope["method"],
            scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            [each for each in request.headers.items() if each[0] not in _OF_THE_CONNECTION],
            await request.body() or None,
            patience_s,
        )
        headers = {n: v for n, v in got.headers.items() if n not in _OF_THE_CONNECTION}
        await Response(got.body, got.status or 502, headers)(scope, receive, answer)

    return serve


@asynccontextmanager
async def behind_cache(cache: SharedCache, port: int, patience_s: float) -> AsyncIterator[int]:
    """Yield the port of a cache in front of a server at `port`."""
    app = cached(_passing(port, patience_s), cache, CLOCK)
    at = free_port()
    async with served(app, at, "the cache"):
        yield at
