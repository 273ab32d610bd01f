"""One request on a connection of the server: what uvicorn does for it, in fewer steps.

Whatever is not ordinary takes uvicorn's way.
"""

import asyncio
import select
import socket
from functools import lru_cache
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from x402sim.http import web


class Cycle(RequestResponseCycle, web.Connection):
    """A request whose answer leaves in one write, head and first part of the body.

    The head is checked as a whole: uvicorn searches each header on its own, and one with an offer
    of payments is long.
    """

    _head = b""
    """What is to be written before the body."""
    _is_read = False
    disconnected = response_started = response_complete = False
    more_body = True
    access_log = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, protocol: HttpToolsProtocol, *, keep_alive: bool) -> None:
        """Take what it needs of its protocol; the rest is as the class says."""
        self.transport, self.flow, self.scope = protocol.transport, protocol.flow, protocol.scope
        cast(Any, self.scope)[web.CONNECTION] = self
        self.logger, self.on_response = protocol.logger, protocol.on_response_complete
        self.default_headers = protocol.server_state.default_headers
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.message_event, self.body, self.keep_alive = asyncio.Event(), bytearray(), keep_alive

    def is_closed(self) -> bool:
        """Look for the end of the client's stream in the socket."""
        if self.disconnected or self.transport.is_closing():
            return True
        self.transport.set_write_buffer_limits(high=0)  # uvloop writes at the end of its turn
        return _has_ended(self.transport.get_extra_info("socket").fileno())

    def is_answered(self) -> bool:
        """Tell whether the last byte was passed on before the connection was lost."""
        return self.response_complete

    async def receive(self) -> Any:
        """Return the body: at once if it is here as a whole."""
        is_ready = not (self.more_body or self._is_read or self.disconnected)
        if not is_ready or self.flow.read_paused or self.waiting_for_100_continue:
            return await super().receive()
        self._is_read = True
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Any) -> None:
        """Write a part of the answer."""
        if message["type"] == "http.response.start":
            if self._starts(message):
                return
        elif self._head:
            body, self._head = self._head + message.get("body", b""), b""
            is_open = not (self.disconnected or self.flow.write_paused) and self.keep_alive
            is_whole = len(body) == self.expected_content_length and not message.get("more_body")
            if is_open and is_whole:
                self.transport.write(body)
                self.response_complete = True
                self.message_event.set()
                self.on_response()
                return
            message = {**message, "body": body}
        await super().send(message)

    def _starts(self, message: Any) -> bool:
        """Keep the head of an ordinary answer, and return True; for any other do nothing."""
        is_open = not (self.response_started or self.disconnected or self.flow.write_paused)
        is_ordinary = self.keep_alive and message["headers"] and self.scope["method"] != "HEAD"
        if not (is_open and is_ordinary):
            return False
        names, values = zip(*self.default_headers, *message["headers"], strict=False)
        form, at = _form(message["status"], names)
        head = form % values
        if at is None or len(head) - len(head.translate(None, _CONTROLS)) != 2 * len(names) + 4:
            return False
        self.response_started, self.waiting_for_100_continue = True, False
        self._head = head
        self.expected_content_length = len(head) + int(values[at])
        self.chunked_encoding = False
        return True


def _has_ended(number: int) -> bool:
    """Tell whether a client has ended its stream; what it has sent before stays to be read."""
    if hasattr(select, "poll"):  # not on Windows; a quarter of the time of looking into a copy
        stream = select.poll()
        stream.register(number, select.POLLIN)
        if not stream.poll(0):
            return False
    with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as copy:
        try:
            return copy.recv(1, socket.MSG_PEEK) == b""
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # it was reset
            return True


_CONTROLS = bytes({*range(32), 127} - {9})
"""The bytes that no header may hold; each line of a head ends with two."""


@lru_cache(maxsize=64)
def _form(status: int, names: tuple[bytes, ...]) -> tuple[bytes, int | None]:
    """Return the form of a head with these headers, and which of them is the Content-Length.

    None unless each has a valid name in lower case, or if one says something of the connection.
    """
    lines = [b"%b: %%b\r\n" % name.replace(b"%", b"%%") for name in names]
    form = b"".join([STATUS_LINE[status], *lines, b"\r\n"])
    is_known = all(name == name.lower() and not HEADER_RE.search(name) for name in names)
    if not is_known or {b"connection", b"transfer-encoding"} & {*names}:
        return form, None
    return form, names.index(b"content-length") if b"content-length" in names else None
