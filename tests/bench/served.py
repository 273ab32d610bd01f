"""The server against a bare uvicorn: how many 402s a second.

`python -m tests.bench.served` is the bare one, which answers "hello": the speed limit of a Python
server of this kind. Two processes serve, each on a loopback port; this one sends requests to each in
turn, over several connections that each wait for their answer. It sends and counts bytes, so that the
client costs little compared with the server; an httpx client would not.
"""

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from tests.serve.driver import Running
from x402sim.world.server.listen import Listen, listening_socket
from x402sim.world.server.serve import run
from x402sim.world.story.payer_client import ORDER, QUOTE

BARE, OURS = "bare uvicorn", "x402sim serve"
_CONNECTIONS = 16
_BODY = json.dumps(ORDER).encode()
_REQUEST = (
    f"POST {QUOTE} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_BODY)}\r\n\r\n"
).encode() + _BODY


class Asker:
    """Sends a server the same request repeatedly.

    Every answer must have the size of the first, and the wanted status.
    """

    def __init__(self, port: int, wanted: bytes) -> None:
        self.port = port
        self._wanted = b"HTTP/1.1 " + wanted
        with _connections(port, 1) as (sock,):
            sock.sendall(_REQUEST)
            self._size = _size_of_answer(sock)

    def work(self, times: int) -> None:
        """Send this many requests; raises `ConnectionError` for an unexpected answer."""
        with _connections(self.port, min(times, _CONNECTIONS)) as socks:
            for sock in socks:
                sock.sendall(_REQUEST)
            for number in range(times):
                sock = socks[number % len(socks)]
                if not _exactly(sock, self._size).startswith(self._wanted):
                    raise ConnectionError(
                        f"an answer does not start with {self._wanted.decode()!r}"
                    )
                if number + len(socks) < times:
                    sock.sendall(_REQUEST)


@contextmanager
def _connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open new connections, because a server closes idle ones."""
    with ExitStack() as stack:
        yield [stack.enter_context(_connection(port)) for _ in range(count)]


def _connection(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _exactly(sock: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes; raises `ConnectionError` if the connection ends first."""
    received = sock.recv(size)
    while len(received) < size:
        more = sock.recv(size - len(received))
        if not more:
            raise ConnectionError("the server has closed the connection")
        received += more
    return received


def _size_of_answer(sock: socket.socket) -> int:
    """Read one answer; return its size, head and body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _exactly(sock, 1)
    (length,) = re.findall(rb"content-length: (\d+)", head.lower())
    return len(head) + len(_exactly(sock, int(length)))


@contextmanager
def askers() -> Iterator[dict[str, Asker]]:
    """Start both servers, and yield a client for each; stop them at the end."""
    with ExitStack() as stack:
        module = [sys.executable, "-m", "tests.bench.served"]
        bare = stack.enter_context(closing(Running(program=module)))
        ours = stack.enter_context(closing(Running("serve", "--port", "0", "--json")))
        ports = {
            BARE: (int(bare.line()), b"200"),
            OURS: (int(json.loads(ours.line())["service"].rsplit(":", 1)[1]), b"402"),
        }
        yield {name: Asker(*where) for name, where in ports.items()}


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer "hello" to everything."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def main() -> None:
    """Serve on a free port, with the parser and the event loop that the product uses."""
    sock = listening_socket(Listen(port=0))
    config = uvicorn.Config(
        hello, http="httptools", log_level="critical", access_log=False, lifespan="off", ws="none"
    )
    print(sock.getsockname()[1], flush=True)
    run(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
