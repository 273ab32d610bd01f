"""A WebSocket connection (RFC 6455) of the server, on the protocol of the library `websockets`.

There is backpressure: nothing is read while a message waits for the application, or while the
client does not read. Bytes from all WebSockets are parsed a piece in each turn of the loop, as a
frame costs much more than its six bytes. A message is at most as long as the body of a request, and
not compressed. A silent client gets a ping, and is cut off without a pong.
"""

import asyncio
import logging
from typing import Any, cast

from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from x402sim.http import web
from x402sim.serving.connection import Shared, Wire

PIECE_BYTES = 4096
"""Bytes parsed in a turn: bounds the time, and the messages waiting for the application."""
ALIVE_S = 20
"""Seconds of silence before a ping, and then until the end of a silent connection."""
log = logging.getLogger("x402sim")


class WebSocketConnection(asyncio.Protocol, web.Connection):
    """One WebSocket: parses its frames, and has an ASGI application answer.

    `head` is the bytes of the upgrade request, and `scope` its ASGI scope.
    """

    is_started = True
    """A stopping server ends the connection with a frame, and never with an answer."""

    def __init__(
        self, wire: Wire, scope: Scope, head: bytes, state: ServerState, shared: Shared
    ) -> None:
        self.scope: Scope = {**scope, "type": "websocket", "subprotocols": [], web.CONNECTION: self}
        self.scope["scheme"] = "wss" if scope["scheme"] == "https" else "ws"
        self.scope["extensions"] = {"websocket.http.response": {}}
        self._wire, self._state, self._shared = wire, state, shared
        self._frames = ServerProtocol(max_size=web.MAX_BODY_BYTES, logger=log)
        self._rest, self._has_turn = bytearray(), False
        self._held_bytes = self._in_frame_bytes = self._in_work_bytes = 0
        self._message = bytearray()  # the bytes received of an incomplete message
        self._waiting = asyncio.Queue[Message]()
        self._waiting.put_nowait({"type": "websocket.connect"})
        self.code = int(CloseCode.ABNORMAL_CLOSURE)
        """The reason of the end, as a number of RFC 6455 (7.4.1)."""
        self._status = 0
        self._is_alive = self._is_ended = False
        self._frames.receive_data(head)
        handshake = cast(Request, self._frames.events_received()[0])
        self._answer: Response = self._frames.accept(handshake)
        state.connections.add(cast(Any, self))
        self._timer = asyncio.get_running_loop().call_later(ALIVE_S, self._ping)

    async def run(self, app: ASGIApp) -> None:
        """Have an application answer, then close."""
        try:
            if self._answer.status_code != 101:  # the library refuses the handshake
                self._respond(self._answer)
                return
            await app(self.scope, self.receive, self.send)
            self._close(CloseCode.NORMAL_CLOSURE)
        except Exception:
            log.exception("an application raised, with a WebSocket")
            self._close(CloseCode.INTERNAL_ERROR)
        finally:
            self._wire.close()
            del self.scope

    # --- calls of the transport ---------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """Send the application `websocket.disconnect`."""
        self._timer.cancel()
        self._state.connections.discard(cast(Any, self))
        self._wire.lose()
        self._end()
        self._in_work_bytes = 0
        self._held_bytes = self._shared.count_held(0, self._held_bytes) or 0

    def pause_writing(self) -> None:
        """Read nothing of a client that does not read."""
        self._wire.pause()
        self._wire.transport.pause_reading()

    def resume_writing(self) -> None:
        """Let answers go on, and read."""
        self._wire.resume()
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Parse as much as the application takes."""
        self._is_alive = True
        if not self._is_ended:
            self._rest += data
            self._count_held()
            self._go_on()

    def shutdown(self) -> None:
        """Close because the server stops; uvicorn calls this."""
        self._close(CloseCode.SERVICE_RESTART)
        self._end()

    # --- frames ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Parse in a later turn, unless a message waits or the client does not read; read nothing
        before all bytes are parsed.
        """
        transport = self._wire.transport
        is_stuck = not self._waiting.empty() or self._wire.is_paused
        if self._rest and not (is_stuck or self._has_turn):
            self._has_turn = True
            self._shared.turns.later(self._parse)
        if not transport.is_closing():
            is_full = bool(self._rest) or self._wire.is_paused
            (transport.pause_reading if is_full else transport.resume_reading)()

    def _parse(self) -> None:
        self._has_turn = False
        frames, piece = self._frames, bytes(self._rest[:PIECE_BYTES])
        if self._is_ended:
            return
        del self._rest[:PIECE_BYTES]
        frames.receive_data(piece)
        self._in_frame_bytes += len(piece)
        for event in frames.events_received():
            self._in_frame_bytes = 0
            self._take(cast(Frame, event))
        self._count_held()
        self._write()  # the library's answers: pongs and closes
        if frames.close_rcvd or frames.parser_exc:
            self.code = (frames.close_rcvd or frames.close_sent or self).code
            self._end()
        self._go_on()

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        self._message += frame.data
        if frame.fin:
            whole, self._message = bytes(self._message), bytearray()
            self._in_work_bytes += len(whole)
            self._waiting.put_nowait({"type": "websocket.receive", "bytes": whole})

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended, self._rest, self._message = True, bytearray(), bytearray()
            self._waiting.put_nowait({"type": "websocket.disconnect", "code": self.code})

    def _ping(self) -> None:
        """Ping a silent client, and cut a client off that has not answered the last ping."""
        if not self._is_alive and self._status == 101 and not self._wire.is_paused:
            self._wire.transport.abort()
            return
        self._is_alive = self._wire.is_paused  # one that does not read gets no ping
        if self._status == 101 and not self._is_ended:
            self._frames.send_ping(b"")
            self._write()
        self._timer = asyncio.get_running_loop().call_later(ALIVE_S, self._ping)

    def _write(self) -> None:
        if not self._wire.is_closing:
            self._wire.write(b"".join(self._frames.data_to_send()))

    def _respond(self, response: Response) -> None:
        self._status = response.status_code
        self._frames.send_response(response)
        self._write()

    def _close(self, code: int) -> None:
        if self._status == 101:
            try:
                self._frames.send_close(code)
            except InvalidState:  # it is closed already
                return
            self._write()

    def _count_held(self) -> None:
        size = len(self._rest) + self._in_frame_bytes + len(self._message) + self._in_work_bytes
        counted = self._shared.count_held(size, self._held_bytes)
        if counted is None:
            self._close(CloseCode.TRY_AGAIN_LATER)
            self._end()
        else:
            self._held_bytes = counted

    def forget(self, size: int) -> None:
        """Note that a message of so many bytes is done."""
        if self._in_work_bytes:
            self._in_work_bytes -= size
            self._count_held()

    def is_closed(self) -> bool:
        """Return whether the client has left, or is leaving: nothing sent arrives."""
        return self._is_ended

    # --- ASGI -----------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Return the next message, and resume reading."""
        message = await self._waiting.get()
        self._go_on()
        return message

    async def send(self, message: Message) -> None:
        """Accept or refuse the handshake, send a message, or close."""
        await self._wire.drained()
        match message["type"]:
            case "websocket.accept":
                self._respond(self._answer)
            case "websocket.http.response.start":
                self._refusal = message
            case "websocket.http.response.body":
                refusal = self._frames.reject(self._refusal["status"], message["body"].decode())
                del refusal.headers["Content-Type"], refusal.headers["Content-Length"]
                for name, value in self._refusal["headers"]:
                    refusal.headers[name.decode()] = value.decode("latin-1")
                self._respond(refusal)
            case "websocket.send" if not self._is_ended:
                self._frames.send_text(message["text"].encode())
                self._write()
            case "websocket.close" if self._status:
                self._close(message["code"])
            case "websocket.close":
                self._respond(self._frames.reject(403, ""))
            case _:  # a message to a client that has left
                pass
