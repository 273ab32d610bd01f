"""A reverse proxy that changes nothing: HTTP/1.1 from clients to one upstream.

The proxy passes on bodies, trailers, 1xx answers, duplicate fields, the case of names, and all
bytes after an upgrade, at once and unchanged, and sets only `Host` and the fields of a connection
(RFC 9110, 7.6.1). If one side ends or breaks its connection, the proxy ends or breaks the other, so
the service sees a client hang up as without the proxy.

For a head, a body, and reading an answer, a client has the time limits of `serve`.

A client's connection has one upstream connection. The proxy reconnects after the service has
closed, but never sends a request twice: the request could pay twice.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes, urlsplit

import h11
import msgspec
from starlette.types import Message

from x402sim.clock import Clock, real_now, stopwatch
from x402sim.events import Part
from x402sim.http.limits import BODY_S, HEAD_S, IDLE_S, MAX_HEADERS, UNREAD_S
from x402sim.tasks import Turns
from x402sim.text.words import as_given
from x402sim.world.faults import Fault
from x402sim.world.strike import strike

MAX_BODY = 64 * 1024
"""Bytes of a body that are recorded; the rest is only counted."""
MAX_HEAD = 64 * 1024
"""Most bytes of a head; a payment in a header has a few thousand."""
BACKLOG = 512
_READ = 64 * 1024
_LINGER_S = 2.0  # seconds in which an answered client may go on sending
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_OF_ONE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"}
)
RawHeaders = list[tuple[bytes, bytes]]
Event = Any
"""An event of h11: a head, a part of a body, or the end of a message."""


@dataclass(slots=True)
class Kept:
    """A body: its size in bytes, and its beginning."""

    size: int = 0
    begin: bytes = b""

    def add(self, data: bytes) -> None:
        """Count a part, and keep as much as `MAX_BODY` allows."""
        self.size += len(data)
        if len(self.begin) < MAX_BODY:
            self.begin += data[: MAX_BODY - len(self.begin)]

    @property
    def is_cut(self) -> bool:
        """Whether the body was longer than its kept beginning."""
        return self.size > len(self.begin)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its answer as they passed; times are real, in Unix seconds."""

    number: int
    client: str
    method: str
    target: str
    url: str
    """The whole URL at the upstream."""
    headers: RawHeaders
    began: float
    sent: Kept = field(default_factory=Kept)
    ended: float = 0.0
    interim: list[int] = field(default_factory=list)
    """The statuses of 1xx answers."""
    status: int | None = None
    """None if the client got no answer."""
    answer_headers: RawHeaders = field(default_factory=list)
    answered: Kept = field(default_factory=Kept)
    broke: str = ""
    """Why the answer is not whole: which side ended the connection, and where."""
    struck: Fault | None = None
    to: Part = "service"
    """The upstream: the service, or the facilitator."""

    @property
    def path(self) -> str:
        """The path, undecoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The query, undecoded."""
        return self.target.partition("?")[2]


class Observer(Protocol):
    """Receives a proxy's reports, and chooses its faults."""

    @property
    def can_strike(self) -> bool:
        """Whether there are faults: then the proxy reads a request whole before passing it on."""

    def requested(self, exchange: Exchange) -> None:
        """A request was sent: whole, unless the answer came before its end."""

    def fault(self, exchange: Exchange) -> Fault | None:
        """Return the fault that strikes a request, or None."""

    def ended(self, exchange: Exchange) -> None:
        """A request was answered, or its connection broke."""


class _Ended(OSError):
    """End the client's connection after the bytes written so far: the upstream ended too early, or
    cannot be reached."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The target of all requests; `at` raises `ValueError` for a URL that is not http or https."""

    url: str
    host: str
    port: int
    netloc: bytes
    prefix: bytes
    """The path of the URL, which precedes the path of each request."""
    tls: ssl.SSLContext | None

    @classmethod
    def at(cls, url: str) -> "Upstream":
        """Return the upstream at a URL such as https://shop.example/base."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as wrong:
            raise ValueError(f"{as_given(url)} is no URL: {wrong}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a URL is wanted, such as http://127.0.0.1:8000, not {as_given(url)}")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"{as_given(url)}: a URL without user, query and fragment is wanted")
        is_tls = parts.scheme == "https"
        netloc = parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii")
        return cls(
            url=url,
            host=parts.hostname,
            port=port or (443 if is_tls else 80),
            netloc=netloc,
            prefix=parts.path.rstrip("/").encode(),
            tls=ssl.create_default_context() if is_tls else None,
        )

    def target(self, target: bytes) -> bytes:
        """Return the target of a request at the upstream; raises `h11.RemoteProtocolError` if the
        path leaves the prefix.
        """
        if self.prefix and (absolute := _ABSOLUTE.match(target)):
            target = b"/" + target[absolute.end() :].removeprefix(b"/")
        if not target.startswith(b"/"):
            return target
        depth, path = 0, unquote_to_bytes(target.partition(b"?")[0]).replace(b"\\", b"/")
        for segment in path.split(b"/") if self.prefix else ():
            name = segment.partition(b";")[0]
            depth += -1 if name == b".." else name not in (b"", b".")
            if depth < 0:
                raise h11.RemoteProtocolError("its path leaves that of the upstream's URL")
        return self.prefix + target


class _Peer:
    """One side of a connection, and the state of its HTTP."""

    def __init__(
        self,
        role: type[h11.CLIENT] | type[h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.reader, self.writer = reader, writer

    async def next(self) -> Event:
        """Return the next event; raises `OSError`, and `h11.RemoteProtocolError`."""
        while True:
            await self._turns.mine()  # else a full buffer of small parts would be one long turn
            event = self._event()
            if event is not h11.NEED_DATA:
                return event
            self.http.receive_data(await self.reader.read(_READ))

    def _event(self) -> Event:
        """Return h11's next event; too many headers raise first, as h11 would parse for long."""
        if self.http.their_state in (h11.IDLE, h11.SEND_RESPONSE):
            data = self.http.trailing_data[0]
            end = _END_OF_HEAD.search(data)
            if data.count(b"\n", 0, end.start() if end else None) > MAX_HEADERS:
                raise h11.RemoteProtocolError(f"more than {MAX_HEADERS} headers", 431)
        event: Event = self.http.next_event()
        if type(event) is h11.EndOfMessage and len(event.headers) > MAX_HEADERS:
            raise h11.RemoteProtocolError(f"more than {MAX_HEADERS} trailers", 431)
        return event

    async def head(self, within_s: float) -> Event:
        """Return the next head; raises as `next`, and `TimeoutError` if the head does not begin in
        time, or does not end within `HEAD_S` seconds.
        """
        async with asyncio.timeout(within_s) as limit:
            event = self._event()
            if event is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(_READ))
                soon_s = asyncio.get_running_loop().time() + HEAD_S
                limit.reschedule(min(limit.when() or soon_s, soon_s))
                event = await self.next()
            return event

    async def send(self, event: Event) -> None:
        """Send an event; raises `OSError`, or `TimeoutError` if the client does not read."""
        data: bytes | None = self.http.send(event)
        if data:
            self.writer.write(data)
            async with asyncio.timeout(UNREAD_S if self.http.our_role is h11.SERVER else None):
                await self.writer.drain()

    @property
    def is_reusable(self) -> bool:
        is_open = not self.reader.at_eof() and not self.writer.is_closing()
        return is_open and self.http.our_state is h11.DONE and self.http.their_state is h11.DONE

    def abort(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()

    def end(self) -> None:
        """Pass on that the other side sends no more; TLS has no half-close, so it closes."""
        if self.writer.is_closing():
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        else:
            self.writer.close()


class Proxy:
    """Passes requests on to an upstream, and reports them to an observer."""

    def __init__(
        self,
        upstream: Upstream,
        observer: Observer,
        *,
        number: Callable[[], int],
        to: Part = "service",
        keep_host: bool = False,
    ) -> None:
        """`number` counts exchanges, `to` is the upstream's part; `keep_host` passes `Host` on."""
        self._upstream, self._observer = upstream, observer
        self._number, self._to, self._keep_host = number, to, keep_host
        self._clock, self._turns = Clock(), Turns()
        self._peers, self._tasks = set[_Peer](), set[asyncio.Task[None]]()
        self._server: asyncio.Server | None = None

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a socket that listens."""
        self._server = await asyncio.start_server(
            self._serve, sock=sock, limit=_READ, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Stop accepting, break open connections, and wait until their exchanges are reported."""
        if self._server:
            self._server.close()
        for peer in list(self._peers):
            peer.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LINGER_S)
            for task in self._tasks:  # such as an exchange that a fault delays
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client, upstream = _Peer(h11.SERVER, reader, writer, self._turns), None
        self._peers.add(client)
        within_s = HEAD_S
        try:
            while type(request := await self._head(client, within_s)) is h11.Request:
                within_s = IDLE_S
                upstream = await _Passing(self, client, upstream, request).run()
                if not client.is_reusable:
                    break
                client.http.start_next_cycle()
        except _Ended:
            pass
        except OSError:
            client.abort()  # nobody reads an answer any more
        finally:
            self._tasks.discard(task)
            for peer in filter(None, (client, upstream)):
                self.leave(peer)

    def leave(self, peer: _Peer) -> None:
        """Close a connection after pending writes, if the client reads in time."""
        peer.writer.close()
        self._peers.discard(peer)
        if peer.writer.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(UNREAD_S, peer.abort)

    async def _head(self, client: _Peer, within_s: float) -> Event:
        try:
            event = await client.head(within_s)
            if type(event) is h11.Request:
                self._upstream.target(event.target)  # raises for a target that leaves the prefix
            return event
        except TimeoutError:
            if client.http.trailing_data[0]:
                await self.answer(client, 408, f"the head of a request has {HEAD_S} s to arrive")
            return None
        except h11.RemoteProtocolError as wrong:
            with suppress(h11.LocalProtocolError):
                await self.answer(client, wrong.error_status_hint, f"no request of HTTP: {wrong}")
            return None

    async def answer(self, client: _Peer, status: int, why: str) -> None:
        """Send an answer of the proxy itself, and end the connection."""
        body = msgspec.json.encode({"error": "x402sim watch", "reason": why})
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        await client.send(h11.Response(status_code=status, headers=headers))
        await client.send(h11.Data(data=body))
        await client.send(h11.EndOfMessage())

    async def connected(self, before: _Peer | None) -> _Peer:
        """Return a connection to the upstream: the earlier one if it is still open."""
        if before is not None:
            await self._clock.sleep(0)  # lets the loop notice that the upstream has closed it
            if before.is_reusable:
                before.http.start_next_cycle()
                return before
            self.leave(before)
        to = self._upstream
        reader, writer = await asyncio.open_connection(
            to.host, to.port, ssl=to.tls, server_hostname=to.host if to.tls else None, limit=_READ
        )
        peer = _Peer(h11.CLIENT, reader, writer, self._turns)
        self._peers.add(peer)
        return peer


class _Passing:
    """One request and its answer, in transit."""

    def __init__(
        self, proxy: Proxy, client: _Peer, upstream: _Peer | None, request: h11.Request
    ) -> None:
        self._proxy, self._client, self._request = proxy, client, request
        self._peer = upstream
        """The connection to the upstream; at first the connection of the earlier request."""
        self._observer, self._upstream = proxy._observer, proxy._upstream
        self.method = request.method.decode("ascii")
        peer = client.writer.get_extra_info("peername")
        host = next((value for name, value in request.headers if name == b"host"), b"")
        netloc = host if proxy._keep_host and host else proxy._upstream.netloc
        scheme = b"https" if proxy._upstream.tls else b"http"
        target = proxy._upstream.target(request.target)
        self.exchange = Exchange(
            number=proxy._number(),
            client=str(peer[0]) if isinstance(peer, tuple) else "?",
            method=self.method,
            target=request.target.decode("latin-1"),
            url=(b"%b://%b%b" % (scheme, netloc, target)).decode("latin-1"),
            headers=list(request.headers.raw_items()),
            began=real_now(),
            to=proxy._to,
        )
        self._whole: list[Event] = []
        """The parts of the body and its end, read in advance if a fault may strike."""
        self._is_reported = False
        self._sending: asyncio.Future[None] | None = None

    async def run(self) -> _Peer | None:
        """Pass the request; return the upstream connection. `OSError`: drop the client."""
        try:
            if self._observer.can_strike:
                await self._pass_or_strike()
            else:
                await self._pass(self._parts())
        except BaseException as error:
            if self._peer is not None:
                self._proxy.leave(self._peer)
                self._peer.abort()
            if isinstance(error, h11.ProtocolError):
                raise ConnectionAbortedError(str(error)) from error
            raise
        finally:
            self._report()
            self.exchange.ended = real_now()
            self._observer.ended(self.exchange)
        return self._peer

    async def _pass_or_strike(self) -> None:
        """Read the whole request first, as a fault may look at its body."""
        parts = self._parts()
        async for part in parts:
            self._whole.append(part)
            if self.exchange.sent.is_cut:  # too long for a fault: the request passes
                return await self._pass(_each(self._whole, parts))
        self._report()
        self.exchange.struck = fault = self._observer.fault(self.exchange)
        if fault is None:
            return await self._pass(_each(self._whole))
        return await strike(fault, self._proxy._clock, self)

    async def _pass(self, parts: AsyncIterator[Event]) -> None:
        upstream = await self._connect()
        self._sending = asyncio.ensure_future(self._pass_on(upstream, parts))
        try:
            await self._answer(upstream)
            if self._client.http.their_state is h11.SEND_BODY:
                await asyncio.wait([self._sending], timeout=_LINGER_S)
        finally:
            await self._stop_sending()

    async def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    def _report(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._observer.requested(self.exchange)

    async def _connect(self) -> _Peer:
        try:
            self._peer = await self._proxy.connected(self._peer)
            return self._peer
        except OSError as error:
            why = f"cannot connect to {self._upstream.url}: {_in_words(error)}"
            self.exchange.broke, self.exchange.status = why, 502
            await self._proxy.answer(self._client, 502, why)
            raise _Ended(why) from error

    # --- the request ---------------------------------------------------------------------

    async def _parts(self) -> AsyncIterator[Event]:
        left_s = float(BODY_S)
        while True:
            waited = stopwatch()
            try:
                async with asyncio.timeout(left_s):
                    part = await self._client.next()
            except TimeoutError:
                self.exchange.broke = f"the client did not send its body within {BODY_S} s"
                raise
            left_s -= waited()  # the upstream's time does not count
            if type(part) is h11.Data:
                self.exchange.sent.add(bytes(part.data))
            elif type(part) is not h11.EndOfMessage:
                return
            yield part
            if type(part) is h11.EndOfMessage:
                return

    async def _pass_on(self, upstream: _Peer, parts: AsyncIterator[Event]) -> None:
        """Pass the request on; then watch for the end of the client's stream until the answer."""
        try:
            await upstream.send(self._head())
            async for part in parts:
                await upstream.send(part)
        except h11.RemoteProtocolError as left:  # by the client
            self.exchange.broke = f"the client ended in the middle of its request: {left}"
            upstream.end()
            return
        except TimeoutError:  # by the client: nobody must answer half a request as a whole
            upstream.abort()
            return
        except (ConnectionError, h11.LocalProtocolError) as error:
            # The client is gone; or the service stopped reading, and may have answered.
            if self._client.writer.is_closing():
                self.exchange.broke = f"the client hung up: {_in_words(error)}"
                upstream.abort()
            return
        self._report()
        if self._client.http.trailing_data[0]:
            return  # the next request waits: later bytes stay in the socket
        with suppress(ConnectionError):
            data = await self._client.reader.read(_READ)
            self._client.http.receive_data(data)  # pipelined: the next request
            if data:
                return
            self.exchange.broke = "the client ended its connection before the answer was whole"
            upstream.end()
            return
        self.exchange.broke = "the client broke the connection before the answer was whole"
        upstream.abort()

    def _head(self) -> h11.Request:
        request, to = self._request, self._upstream
        named, own = _of_connection(request.headers), RawHeaders()
        if any(name == b"transfer-encoding" for name, _ in request.headers):
            named.add(b"content-length")  # with both, servers may disagree where the body ends
        headers, has_host = RawHeaders(), False
        for raw, value in request.headers.raw_items():
            name = raw.lower()
            if name == b"host":
                has_host = True
                headers.append((raw, value if self._proxy._keep_host else to.netloc))
            elif name == b"transfer-encoding":
                own.append((raw, value))  # h11 reads and writes "chunked", and nothing else
            elif name == b"upgrade" and b"upgrade" in named:
                own += [(b"Connection", b"Upgrade"), (raw, value)]
            elif name == b"te" and value.strip().lower() == b"trailers":
                own += [(b"Connection", b"TE"), (raw, value)]
            elif name not in _OF_ONE_CONNECTION and name not in named:
                headers.append((raw, value))
        if not has_host:  # HTTP/1.0 may lack it
            headers.append((b"Host", to.netloc))
        target = to.target(request.target)
        return h11.Request(method=request.method, target=target, headers=headers + own)

    # --- the answer ----------------------------------------------------------------------

    async def _answer(self, upstream: _Peer) -> None:
        """Pass the answer on at once; raises `OSError` if the client cannot get all of it."""
        while True:
            match event := await self._next(upstream):
                case h11.InformationalResponse(status_code=status):
                    self.exchange.interim.append(status)
                    if status != 101:
                        await self._client.send(_passed(event))
                        continue
                    self._report()  # a change of protocol: all bytes pass from now on
                    self._note_head(event)
                    await self._client.send(event)
                    await self._pipe(upstream)
                    return
                case h11.Response():
                    self._report()
                    self._note_head(event)
                    await self._client.send(_passed(event))
                    if upstream.http.their_state is h11.SWITCHED_PROTOCOL:  # of CONNECT
                        await self._pipe(upstream)
                        return
                case h11.Data():
                    data = bytes(event.data)
                    self.exchange.answered.add(data)
                    await self._client.send(h11.Data(data=data))
                case _:
                    # a half-closed client has got its whole answer
                    self.exchange.broke = ""
                    await self._client.send(event)
                    return

    async def _next(self, upstream: _Peer) -> Event:
        """Return the next part of the answer; raises `OSError` if the upstream broke off."""
        try:
            event = await upstream.next()
        except (OSError, h11.RemoteProtocolError) as error:
            raise self._broken(error, upstream) from error
        parts = h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage
        if not isinstance(event, parts):
            raise self._broken(_Ended("it ended the connection"), upstream)
        return event

    def _note_head(self, event: h11.Response | h11.InformationalResponse) -> None:
        self.exchange.status = event.status_code
        self.exchange.answer_headers = list(event.headers.raw_items())

    def _broken(self, error: Exception, upstream: _Peer) -> OSError:
        """Record that the upstream broke off; return the error that drops the client."""
        exchange = self.exchange
        if upstream.reader.at_eof() and not isinstance(error, OSError):
            error = _Ended("it ended the connection")
        if not exchange.broke:
            where = "in the middle of its answer" if exchange.status else "without an answer"
            exchange.broke = f"{self._upstream.url} broke off {where}: {_in_words(error)}"
        has_reset = isinstance(error, OSError) and not isinstance(error, _Ended)
        kind = ConnectionResetError if has_reset else _Ended
        return kind(exchange.broke)

    async def _pipe(self, upstream: _Peer) -> None:
        await self._stop_sending()
        one, other = self._client, upstream
        await asyncio.gather(_copy(one, other), _copy(other, one))
        self.exchange.broke = ""

    # --- called by `strike` ---------------------------------------------------------------

    async def work(self, *, is_received: bool = True) -> list[Message]:
        """Pass the request on; return the whole answer, recorded if the client does not get it."""
        upstream = await self._connect()
        for part in (self._head(), *self._whole):
            await upstream.send(part)
        answer: list[Message] = []
        while not answer or answer[-1]["type"] != "http.response.trailers":
            event = await self._next(upstream)
            if not isinstance(event, h11.InformationalResponse):
                answer.append(_as_message(event))
        if not is_received:
            for each in answer:
                self._note(each)
            self._proxy.leave(upstream)  # a client that retries would not reuse this connection
            self._peer = None
        return answer

    async def send(self, message: Message) -> None:
        """Send a part of an answer, and record it."""
        self._note(message)
        match message["type"]:
            case "http.response.start":
                status, reason = message["status"], message.get("reason", b"")
                head = h11.Response(status_code=status, headers=message["headers"], reason=reason)
                await self._client.send(_passed(head))
            case "http.response.body":
                body = b"" if self.method == "HEAD" else message["body"]
                await self._client.send(h11.Data(data=body))
                if not message.get("more_body"):
                    await self._client.send(h11.EndOfMessage())
            case _:
                await self._client.send(h11.EndOfMessage(headers=message["headers"]))

    def _note(self, message: Message) -> None:
        """Record a part of an answer; a head starts a new answer."""
        if message["type"] == "http.response.start":
            self.exchange.status = message["status"]
            self.exchange.answer_headers = list(message["headers"])
            self.exchange.answered = Kept()
        self.exchange.answered.add(message.get("body", b""))

    async def abort(self, how: str) -> None:
        """Break the client's connection; "cut" ends the connection after the bytes sent so far."""
        assert self.exchange.struck is not None
        self.exchange.broke = f'fault: "{self.exchange.struck.does}"'
        if how == "cut":
            raise _Ended(self.exchange.broke)
        self.exchange.status = None
        raise ConnectionAbortedError(self.exchange.broke)


def _as_message(event: Event) -> Message:
    match event:
        case h11.Response(status_code=status, reason=reason):
            raw = list(event.headers.raw_items())
            kind = "http.response.start"
            return {"type": kind, "status": status, "headers": raw, "reason": reason}
        case h11.Data(data=data):
            return {"type": "http.response.body", "body": bytes(data), "more_body": True}
        case _:
            return {"type": "http.response.trailers", "headers": list(event.headers.raw_items())}


async def _each(
    parts: list[Event], more: AsyncIterator[Event] | None = None
) -> AsyncIterator[Event]:
    for part in parts:
        yield part
    if more is not None:
        async for part in more:
            yield part


async def _copy(source: _Peer, to: _Peer) -> None:
    """Copy bytes until the source ends, starting with bytes that h11 has read ahead."""
    data, _ = source.http.trailing_data
    with suppress(ConnectionError):
        while data or (data := await source.reader.read(_READ)):
            to.writer.write(data)
            await to.writer.drain()
            data = b""
    to.end()


def _of_connection(headers: Any) -> set[bytes]:
    """Return the field names listed in `Connection`, which belong to this connection, too.

    Never the body's length: without a length, the other side would misread where the body ends.
    """
    listed = b",".join(value for name, value in headers if name == b"connection")
    return {name.strip().lower() for name in listed.split(b",")} - {b"", b"content-length"}


def _passed(event: h11.Response | h11.InformationalResponse) -> Event:
    """Return the head of an answer to pass on; h11 adds the framing of the body."""
    named = _of_connection(event.headers) | _OF_ONE_CONNECTION
    if any(name == b"transfer-encoding" for name, _ in event.headers):
        named |= {b"content-length"}  # the length of chunks is theirs, whatever this says
    headers = [each for each in event.headers.raw_items() if each[0].lower() not in named]
    return type(event)(status_code=event.status_code, headers=headers, reason=event.reason)


def _in_words(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason}"
        case socket.gaierror():
            return f"its name is not known: {error.strerror}"
        case ConnectionRefusedError():
            return "it refuses the connection: nothing listens there"
        case h11.RemoteProtocolError():
            return f"it is no HTTP: {error}"
        case _:
            return str(getattr(error, "strerror", None) or error or type(error).__name__)
