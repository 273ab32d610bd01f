"""A ledger behind JSON-RPC, asked in this process."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.asgi import Http
from tests.chain import helpers
from tests.chain.helpers import LedgerDriver, nonce, payment
from x402sim.chain.base import Call
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.rpc.app import rpc_app
from x402sim.protocol.crypto import Hash, PrivateKey, to_hex
from x402sim.protocol.networks import TESTNET

OWNER_KEY = PrivateKey(b"\x01" * 32)
OWNER, ALICE, SHOP = (each.address_bytes for each in (helpers.OWNER, helpers.ALICE, helpers.SHOP))
NONCE = nonce("first")
PAYMENT = Call(OWNER, TESTNET.asset, payment())
UNKNOWN = to_hex(b"\xee" * 32)


class JsonRpc:
    """What is asked over JSON-RPC; `post` sends a body and returns the answer's JSON."""

    post: Callable[[Any], Any]

    def ask(self, method: str, *params: Any) -> Any:
        reply = self.post({"jsonrpc": "2.0", "id": 7, "method": method, "params": list(params)})
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", 7)
        return reply

    def results(self, *questions: tuple[Any, ...]) -> list[Any]:
        """Return the results of several methods, each with its parameters, asked in one batch."""
        asked = [
            {"jsonrpc": "2.0", "id": n, "method": q[0], "params": q[1:]}
            for n, q in enumerate(questions)
        ]
        return [reply["result"] for reply in self.post(asked)]

    def result(self, method: str, *params: Any) -> Any:
        reply = self.ask(method, *params)
        assert "error" not in reply, reply
        return reply["result"]

    def error(self, method: str, *params: Any) -> Any:
        reply = self.ask(method, *params)
        assert "result" not in reply, reply
        return reply["error"]


class Node(JsonRpc):
    """A node at a URL."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.post = lambda body: httpx.post(url, json=body, headers=headers).json()


class Rpc(JsonRpc):
    """A ledger and a way to ask it; an exception in the application fails the test."""

    def __init__(self, *keys: bytes, ledger: LedgerChain | None = None) -> None:
        self.ledger = ledger or LedgerDriver().ledger
        self.http = Http(rpc_app(self.ledger, keys=keys, unlocked=bool(keys)))

    def post(self, body: Any) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self.http.post("/", content=content)
        assert response.status_code == 200
        return response.json()

    def send(self, call: Call = PAYMENT) -> Hash:
        return asyncio.run(self.ledger.send(call))

    def run(self, operation: Any) -> Any:
        return asyncio.run(operation)
