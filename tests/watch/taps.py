"""Relays that keep every byte: what passed before a proxy, and what passed behind it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import h11

from tests.watch.wire import HOP

Message = tuple[Any, ...]


class Tap:
    """A relay to an address; `url` is where it listens, with the path of the address."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}{parts.path}"
        self._kept: list[tuple[bytearray, bytearray]] = []
        self._sockets, self._path = [self._listening], parts.path.encode()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listening.accept()
                theirs = socket.create_connection(self._to)
                self._sockets += ours, theirs
                kept = bytearray(), bytearray()
                self._kept.append(kept)
                for source, to, bytes_ in ((ours, theirs, kept[0]), (theirs, ours, kept[1])):
                    threading.Thread(
                        target=self._relay, args=(source, to, bytes_), daemon=True
                    ).start()

    def _relay(self, source: socket.socket, to: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                kept += data
                to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def exchanges(self) -> list[tuple[Message, Message]]:
        """Return each request with its answer, without what belongs to one connection, sorted."""
        found = []
        for sent, answered in self._kept:
            rest = bytes(answered)
            for method, (_, target, *more) in _requests(bytes(sent)):
                request = method, target.removeprefix(self._path), *more
                answer, rest = _answer(method, rest)
                found.append((request, answer))
        return sorted(found, key=repr)


def _end_to_end(headers: Any) -> tuple[Any, ...]:
    return tuple(each for each in headers.raw_items() if each[0].lower() not in HOP)


def _requests(data: bytes) -> Iterator[tuple[bytes, Message]]:
    while data:
        http, head, body = h11.Connection(h11.SERVER, 1 << 20), None, b""
        http.receive_data(data)
        while type(event := http.next_event()) is not h11.EndOfMessage:
            if type(event) is h11.Request:
                head = event
            elif type(event) is h11.Data:
                body += event.data
            else:
                return  # a client that left
        yield (
            head.method,
            (
                head.method,
                head.target,
                _end_to_end(head.headers),
                body,
                tuple(event.headers.raw_items()),
            ),
        )
        data = http.trailing_data[0]


def _answer(method: bytes, data: bytes) -> tuple[Message, bytes]:
    http, head, body = h11.Connection(h11.CLIENT, 1 << 20), None, b""
    http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    while type(event := http.next_event()) is not h11.EndOfMessage:
        if type(event) is h11.Response:
            head = event
        elif type(event) is h11.Data:
            body += event.data
        elif event is h11.NEED_DATA:
            http.receive_data(b"")  # its end was the connection's
    trailers = tuple(event.headers.raw_items())
    said = head.status_code, head.reason, _end_to_end(head.headers), body, trailers
    return said, http.trailing_data[0]
