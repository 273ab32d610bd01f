"""Calls of MCP tools, over streamable HTTP or over standard input and output.

A result is read as an HTTP answer (`protocol.mcp`), so that plays and demands for paths serve for
tools, too.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from x402sim.clock import stopwatch
from x402sim.protocol import mcp
from x402sim.protocol.messages import decoded, encode
from x402sim.suite.kept import MOST_BYTES, Kept
from x402sim.suite.server.raw import Answer, Headers, send
from x402sim.suite.started import START_S
from x402sim.version import VERSION

STDIO = "stdio"
"""Stands for the path of a server on standard input and output."""
_HELLO = mcp.hello("x402sim", VERSION)


@dataclass(slots=True, kw_only=True, eq=False)
class Wire(ABC):
    """A connection to an MCP server, which is greeted before the first call."""

    is_greeted: bool = False
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _greeting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def call(
        self,
        params: Mapping[str, Any],
        patience_s: float,
        headers: Sequence[tuple[str, str]] = (),
        begun: asyncio.Event | None = None,
    ) -> Answer:
        """Call a tool; return the result as an answer, and raise for nothing that comes back.

        Cancelling the call hangs up.
        """
        async with self._greeting:
            if not self.is_greeted and (failed := await self._greet(patience_s)) is not None:
                return failed
        answer = await self.ask("tools/call", params, patience_s, headers, begun)
        return replace(answer, sent=f"tools/call {str(params.get('name'))[:60]}")

    async def _greet(self, patience_s: float) -> Answer | None:
        """Begin; return the answer of a refusal."""
        answer = await self.ask("initialize", _HELLO, max(patience_s, START_S))
        result = answer.rpc.get("result")
        if not isinstance(result, dict):
            return replace(answer, status=0, failure=f"initialize is answered {answer.how}")
        await self.began(answer, result)
        self.is_greeted = True
        return None

    async def began(self, answer: Answer, result: Mapping[str, Any]) -> None:
        """Keep the answer to the greeting, and confirm the greeting."""
        await self.tell("notifications/initialized", {}, START_S)

    @abstractmethod
    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        patience_s: float,
        headers: Sequence[tuple[str, str]] = (),
        begun: asyncio.Event | None = None,
    ) -> Answer:
        """Send a request, and return the answer."""

    @abstractmethod
    async def tell(self, method: str, params: Mapping[str, Any], patience_s: float) -> None:
        """Send a notification."""


def read(method: str, response: Mapping[str, Any], seconds: float) -> Answer:
    """Return a response of JSON-RPC as an answer; the body has the goods, without the receipt."""
    found, result = mcp.answered(response), response.get("result")
    body = found.body
    if found.status == 200 and isinstance(result, dict):
        body = encode({name: each for name, each in result.items() if name != "_meta"})
    return Answer(
        sent=method,
        status=found.status,
        headers=Headers(found.headers),
        body=body,
        seconds=seconds,
        rpc=response,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class OverHttp(Wire):
    """Streamable HTTP, at a port and path of 127.0.0.1; a connection for each message."""

    port: int
    target: str
    session: dict[str, str] = field(default_factory=dict)
    """The headers of each message after the greeting."""

    async def began(self, answer: Answer, result: Mapping[str, Any]) -> None:
        """Keep the session and the revision."""
        revision = result.get("protocolVersion")
        self.session = {mcp.PROTOCOL: str(revision or mcp.REVISIONS[0])}
        if (session := answer.headers.get(mcp.SESSION.lower())) is not None:
            self.session[mcp.SESSION] = session
        await Wire.began(self, answer, result)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        patience_s: float,
        headers: Sequence[tuple[str, str]] = (),
        begun: asyncio.Event | None = None,
    ) -> Answer:
        """Send a request; a stream of events is read up to the response."""
        number = next(self._numbers)

        def incoming(headers: Mapping[str, str], body: bytes) -> mcp.Incoming:
            found = mcp.Incoming(headers.get("content-type", ""), number)
            found.feed(body)
            return found

        def is_enough(headers: Mapping[str, str], body: bytes) -> bool:
            it = incoming(headers, body)
            return it.is_events and it.response is not None

        body = mcp.message(number, method, params)
        raw = await self._post(body, patience_s, headers, begun, is_enough)
        if raw.status // 100 != 2:
            return raw
        found = incoming(raw.headers, raw.body)
        found.end()
        if found.response is None:
            return replace(raw, status=0, failure=raw.failure or f"no result in {raw.body[:80]!r}")
        answer = read(method, found.response, raw.seconds)
        return replace(answer, headers=Headers(raw.headers | answer.headers))

    async def tell(self, method: str, params: Mapping[str, Any], patience_s: float) -> None:
        """Send a notification, whatever the answer."""
        await self._post(mcp.message(None, method, params), patience_s)

    async def _post(self, body: bytes, patience_s: float, headers: Any = (), *more: Any) -> Answer:
        own = {"Content-Type": "application/json", "Accept": mcp.ACCEPTED, **self.session}
        sent = [*own.items(), *headers]
        return await send(self.port, "POST", self.target, sent, body, patience_s, *more)


@dataclass(slots=True, kw_only=True, eq=False)
class OverPipes(Wire):
    """Standard input and output of a process, a message a line."""

    process: Kept
    _waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = field(default_factory=dict)
    _reader: asyncio.Task[None] | None = None
    _end: str = "it ended"
    """Why nothing is read any more."""

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        patience_s: float,
        headers: Sequence[tuple[str, str]] = (),
        begun: asyncio.Event | None = None,
    ) -> Answer:
        """Send a request; cancelling the call notifies the server."""
        number, elapsed = next(self._numbers), stopwatch()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience_s):
                await self._write(mcp.message(number, method, params))
                return read(method, await waiting, elapsed())
        except TimeoutError:
            failure = f"none within {patience_s:g} s"
        except OSError as error:
            failure = f"it does not read: {error!r}"[:200]
        except asyncio.CancelledError:
            if not waiting.cancelled() and not self._reader.done():
                with suppress(OSError):
                    gone = {"requestId": number, "reason": "the client hangs up"}
                    await self._write(mcp.message(None, "notifications/cancelled", gone))
                raise
            failure = self._end
        finally:
            self._waiting.pop(number, None)
        return Answer(sent=method, failure=failure, seconds=elapsed())

    async def tell(self, method: str, params: Mapping[str, Any], patience_s: float) -> None:
        """Send a notification."""
        with suppress(OSError):
            await self._write(mcp.message(None, method, params))

    async def _write(self, message: bytes) -> None:
        self.process.stdin.write(message + b"\n")
        await self.process.stdin.drain()

    async def _read(self) -> None:
        """Give each response to the waiting caller; at the end, end all waits."""
        try:
            while line := await self.process.stdout.readline():
                value = decoded(line)
                number = value.get("id") if isinstance(value, dict) else None
                waiting = self._waiting.get(number) if isinstance(number, int) else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(value)
        except ValueError:
            self._end = f"a line of its standard output is longer than {MOST_BYTES} bytes"
        finally:
            for each in self._waiting.values():
                each.cancel()
