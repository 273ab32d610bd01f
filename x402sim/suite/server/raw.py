"""Requests as they are written: a path is sent as it is, and no client library mends it.

One connection carries one request, so that nothing is repeated by itself.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httptools

from x402sim.clock import stopwatch
from x402sim.protocol import mcp
from x402sim.protocol.messages import decoded
from x402sim.suite.redact import redacted
from x402sim.text.printable import printable

MOST_BYTES = 1 << 22
"""How much of an answer is read."""
SHOWN = 300
"""How many characters of an answer a report shows."""
EXPLAINS = (
    "payment-required",
    "payment-response",
    "x-payment-response",
    "cache-control",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "location",
)
"""The headers that a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, or why there is none: then `status` is 0 and `failure` says it.

    Names of headers are in small letters; those that are there twice are joined by commas.
    """

    sent: str
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0
    failure: str = ""
    is_cut: bool = False
    """Whether its body ended before it was whole."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """The response of JSON-RPC that it was, of a tool; empty of a path."""

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is none, or too deep."""
        return decoded(self.body)

    @property
    def sold(self) -> Any:
        """What it sold, as JSON: its body; of a tool, the structured content or the first text."""
        result = self.said.get("result")
        if not isinstance(result, dict):
            return self.json
        structured = result.get("structuredContent")
        return structured if isinstance(structured, dict) else mcp.text_in(result)

    @property
    def is_2xx(self) -> bool:
        """Whether it is a success."""
        return self.status // 100 == 2

    @property
    def is_server_error(self) -> bool:
        """Whether it is a 5xx."""
        return self.status // 100 == 5

    @property
    def how(self) -> str:
        """What was answered, in short."""
        if not self.status:
            return f"no answer ({self.failure})"
        shown = [
            f"{name}: {_header(self.headers[name])}" for name in EXPLAINS if name in self.headers
        ]
        text = _cut(redacted(self.body[: 4 * SHOWN].decode("utf-8", "replace")))
        late = f" after {self.seconds:.1f} s" if self.seconds > 1 else ""
        cut = f" ({self.failure})" if self.failure else ""
        return printable("; ".join([f"{self.status}{late}{cut}", *shown, text]).strip("; "))

    @property
    def told(self) -> str:
        """What was asked and answered, in a line."""
        return f"{self.sent}: {self.how}"


def _header(text: str) -> str:
    from x402sim.protocol.x402 import json_in

    known = json_in(text) if len(text) > 20 else None
    return _cut(redacted(json.dumps(known)) if known is not None else text)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class _Reader:
    """What the parser calls."""

    def __init__(self, *, is_head: bool, begun: asyncio.Event | None) -> None:
        self.headers: dict[str, str] = {}
        self.begun = begun
        self.body, self.is_complete, self.is_head = bytearray(), False, is_head

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.is_complete = self.is_head

    def on_body(self, body: bytes) -> None:
        self.body += body
        if self.begun is not None:
            self.begun.set()

    def on_message_complete(self) -> None:
        self.is_complete = True


async def send(
    port: int,
    method: str,
    target: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    patience_s: float = 15.0,
    begun: asyncio.Event | None = None,
    is_enough: Callable[[Mapping[str, str], bytes], bool] = lambda *_: False,
) -> Answer:
    """Send a request to 127.0.0.1, and return the answer; never raises for what comes back.

    `target` is written as it is. A header named Host replaces ours. `begun` is set when the first
    piece of a body arrives. Whoever cancels this hangs up. Nothing more is read once headers and
    body are `is_enough`.
    """
    elapsed = stopwatch()
    names = {name.lower() for name, _ in headers}
    own = [("Host", f"127.0.0.1:{port}"), ("Connection", "close"), ("Accept", "*/*")]
    if body is not None:
        own.append(("Content-Length", str(len(body))))
    lines = [(name, text) for name, text in own if name.lower() not in names]
    head = "".join(f"{name}: {text}\r\n" for name, text in (*lines, *headers))
    sent = f"{method} {target[:120]}"
    reader = _Reader(is_head=method == "HEAD", begun=begun)
    parser = httptools.HttpResponseParser(reader)
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
                parser.feed_data(piece)
                if is_enough(reader.headers, bytes(reader.body)):
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
    has_status = bool(reader.headers) or reader.is_complete
    if not has_status:
        failure = failure or "the connection ended"
        return Answer(sent=sent, failure=failure, seconds=elapsed())
    has_end = {"content-length", "transfer-encoding"} & reader.headers.keys()
    is_cut = not reader.is_complete and (bool(failure) or bool(has_end))
    return Answer(
        sent=sent,
        status=parser.get_status_code(),
        headers=reader.headers,
        body=bytes(reader.body),
        failure=failure or ("cut off" if is_cut else ""),
        seconds=elapsed(),
        is_cut=is_cut,
    )
