"""A bare uvicorn that answers "hello": the speed limit of a Python server of this kind.

`python -m x402sim.bench.hello` prints its port and serves until SIGTERM.
"""

import sys

import uvicorn
from starlette.types import Receive, Scope, Send

from x402sim.world.server.listen import Listen, listening_socket
from x402sim.world.server.serve import run


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer "hello" to everything."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def main() -> None:
    """Serve on a free port, with the parser and the event loop that the product uses."""
    sock = listening_socket(Listen(port=0))
    config = uvicorn.Config(
        app, http="httptools", log_level="critical", access_log=False, lifespan="off", ws="none"
    )
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    run(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
