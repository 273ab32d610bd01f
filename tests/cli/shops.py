"""A shop on a socket that answers what a test says, for commands that take any URL; what it wants."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from msgspec import UNSET

from tests.strategies import requirements
from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import PaymentRequired, PaymentRequirements
from x402sim.protocol.networks import TESTNET, Network

SHOP = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
MOON = f"""[[network]]
name = "moon"
chain_id = 7
token_name = "Cheese"
token_symbol = "CHZ"
asset = "{checksum(TESTNET.asset)}"
token_version = "3"
decimals = 2
"""
"""A file of networks."""


def wanted(network: Network = TESTNET, resource: str = "/page") -> PaymentRequirements:
    asset = checksum(network.asset)
    return requirements(
        network=network.name, pay_to=SHOP, asset=asset, resource=resource, description=UNSET
    )


def required(of: PaymentRequirements) -> PaymentRequired:
    """Return the body of its 402."""
    return PaymentRequired(
        error="Payment Required",
        payment_id="pay_abc",
        payment_requirements=of,
        message="Pay 10000",
        network=of.network,
    )


@dataclass(frozen=True)
class Asked:
    """A request that a shop got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer: any JSON, or bytes as they are. No status breaks the connection.

    `pause_s`: seconds after each byte of the body; 0 for a body in one write.
    """

    status: int | None
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0


@contextmanager
def serving(answers: Callable[[Asked], Reply]) -> Iterator[str]:
    """Serve until the end of the block; gives the shop's URL."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = answers(Asked(self.command, self.path, headers, body))
            if reply.status is None:
                self.close_connection = True
                return
            is_raw = isinstance(reply.body, bytes)
            content = reply.body if is_raw else msgspec.json.encode(reply.body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if not reply.pause_s:
                self.wfile.write(content)
                return
            self.close_connection = True
            with suppress(ConnectionError):  # the payer has gone
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    time.sleep(reply.pause_s)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        setattr(Handler, f"do_{method}", Handler._answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
