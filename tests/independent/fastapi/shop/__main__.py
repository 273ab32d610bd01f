"""python -m shop: serve until SIGTERM."""

import signal
import socket
import sys

import uvicorn

from .config import settings


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            print(f"listening on http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)


def main() -> None:
    limit = sys.getrecursionlimit()
    from .app import create_app

    # A library raises the limit beyond what the stack holds: JSON nested deeply enough would end the process.
    sys.setrecursionlimit(limit)
    # The server repeats the signal after its own shutdown; the exit code shall be 0 nevertheless.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    listener = socket.create_server(("127.0.0.1", settings().port), backlog=512)
    options = uvicorn.Config(
        create_app(), log_level="warning", access_log=False, timeout_graceful_shutdown=3
    )
    Server(options).run(sockets=[listener])


main()
