"""The writing side of a connection: what was closed, what is full, and whether the client is there.

On Linux the system tells of a client's FIN also while bytes that it has sent before are not read
yet (POLLRDHUP). Elsewhere the socket is peeked at, which shows the FIN only once all of them are.
"""

import asyncio
import select
import socket
from typing import Any


class Wire:
    """The transport of one connection, as the answers on it use it."""

    __slots__ = ("_poll", "_waiters", "is_lost", "is_paused", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.is_lost = self.is_paused = False
        self._poll: Any = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_closing(self) -> bool:
        """Whether nothing that is written from now on can leave."""
        return self.is_lost or self.transport.is_closing()

    def has_ended(self) -> bool:
        """Tell whether the client has closed its side, by asking the system.

        The event loop may not have looked since, and does not look while reading is paused.
        """
        if self.is_closing:
            return True
        if self._poll is None:
            # what is written next shall leave at once: uvloop would keep it until its turn ends
            self.transport.set_write_buffer_limits(high=0)
            self._poll = _poller(self.transport.get_extra_info("socket").fileno())
        return bool(self._poll())

    def write(self, data: bytes) -> None:
        """Write; a transport that finds its client gone while writing `is_closing` after it."""
        self.transport.write(data)

    def pause(self) -> None:
        """Note that the client does not read what was written."""
        self.is_paused = True

    def resume(self) -> None:
        """Let the answers go on: the client has read, or nobody will."""
        self.is_paused = False
        self._wake()

    def lose(self) -> None:
        """Note that the connection has ended."""
        self.is_lost, self.is_paused = True, False
        self._wake()

    async def drained(self) -> None:
        """Return when the client has read enough to write more, or is gone."""
        while self.is_paused:
            await self._turn()

    async def lost(self) -> None:
        """Return when the connection has ended."""
        while not self.is_lost:
            await self._turn()

    async def _turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            if not each.done():
                each.set_result(None)


def _poller(number: int) -> Any:
    """Return the function that tells whether the peer of a socket has closed its side."""
    if hasattr(select, "POLLRDHUP"):
        stream = select.poll()
        stream.register(number, select.POLLRDHUP)  # an error and a reset are always told
        return lambda: stream.poll(0)
    return lambda: _is_at_its_end(number)


def _is_at_its_end(number: int) -> bool:
    """Peek at the next byte of a socket: there is none at the end of the stream."""
    with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as copy:
        try:
            return copy.recv(1, socket.MSG_PEEK) == b""
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # it was reset
            return True
