"""The node of a room: JSON-RPC of the chain, with the hangs, lies and failures of a case."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import ASGIApp

from x402sim.http.exchange import Request as Sent, Url
from x402sim.protocol.crypto import keccak256, to_hex
from x402sim.protocol.messages import decoded, encode
from x402sim.suite.wire import Reply, Request, Twisted
from x402sim.world.link import Asgi

_URL = Url.of(httpx.URL("http://node.local/"))
JSON = {"Content-Type": "application/json"}
OF_ACCOUNT = ("eth_getBalance", "eth_getTransactionCount")
SENDING = ("eth_sendRawTransaction", "eth_sendRawTransactionSync")


@dataclass(frozen=True, slots=True)
class Call:
    """One JSON-RPC request to the node."""

    method: str
    params: list[Any]
    id: Any = 1

    def result(self, value: Any) -> dict[str, Any]:
        """Return an answer with this result."""
        return {"jsonrpc": "2.0", "id": self.id, "result": value}

    def error(self, message: str) -> dict[str, Any]:
        """Return an error as the answer."""
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": -32000, "message": message}}


Go = Callable[[], Awaitable[dict[str, Any]]]
"""Asks the chain, and returns the chain's answer."""
Twist = Callable[[Call, Go], Awaitable[dict[str, Any] | Reply | None]]
"""Changes the answer to a call: returns an answer, or a whole HTTP `Reply`, such as a late or lost
one (of a batch, too), or None for the chain's answer. `go` asks the chain.
"""


@dataclass(slots=True, eq=False)
class Node(Twisted[Call]):
    """A node with twisted answers, and the record of transactions."""

    app: ASGIApp
    sent: list[str] = field(default_factory=list)
    """The hashes of accepted transactions, in order."""
    raw: list[str] = field(default_factory=list)
    """Every signed transaction at the node, accepted or not."""
    on_account: Callable[[str], Awaitable[None]] | None = None
    """Gets each account whose coins or nonce a caller requests."""
    _chain: Asgi = field(init=False)

    def __post_init__(self) -> None:
        self._chain = Asgi(self.app)

    def count(self, method: str) -> int:
        """Return how often a method was called."""
        return sum(each.method == method for each in self.calls)

    @property
    def offered(self) -> set[str]:
        """The hashes of every signed transaction at the node, also while the chain takes it."""
        found = set()
        for raw in self.raw:
            with suppress(ValueError):
                found.add(to_hex(keccak256(bytes.fromhex(raw.removeprefix("0x")))))
        return found

    async def answer(self, request: Request) -> Reply:
        """Answer a request over HTTP: one call, or a batch of calls."""
        body = request.json
        if isinstance(body, dict):
            answered = await self._one(body)
            return answered if isinstance(answered, Reply) else _reply(answered)
        if isinstance(body, list) and body and all(isinstance(each, dict) for each in body):
            all_of_it = [await self._one(each) for each in body]
            broken = next((each for each in all_of_it if isinstance(each, Reply)), None)
            return broken or _reply(all_of_it)
        return _reply(await self._forward(request.body))

    async def _one(self, body: dict[str, Any]) -> dict[str, Any] | Reply:
        params = body.get("params")
        call = Call(
            str(body.get("method")), params if isinstance(params, list) else [], body.get("id")
        )
        if self.on_account and call.method in OF_ACCOUNT and call.params:
            await self.on_account(str(call.params[0]))
        if call.method in SENDING and call.params:
            self.raw.append(str(call.params[0]))

        async def work() -> Any:
            answer = await self._forward(encode(body))
            result = answer.get("result") if call.method in SENDING else None
            if isinstance(result, dict):
                result = result.get("transactionHash")
            if isinstance(result, str):
                self.sent.append(result.lower())
            return answer

        found: dict[str, Any] | Reply = await self.called(call, work)
        return found

    async def _forward(self, body: bytes) -> Any:
        headers = [(b"host", b"node.local"), (b"content-type", b"application/json")]
        answer = await self._chain.send(Sent("POST", _URL, headers, body, {}))
        return decoded(answer.content)


def _reply(value: Any) -> Reply:
    return Reply(headers=JSON, body=encode(value))


# --- twists ------------------------------------------------------------------------------


def on(*methods: str, do: Twist) -> Twist:
    """Return a twist of these methods only."""

    async def twist(call: Call, go: Go) -> dict[str, Any] | Reply | None:
        return await do(call, go) if call.method in methods else None

    return twist


def fails(message: str) -> Twist:
    """Return a twist that answers with a JSON-RPC error."""

    async def twist(call: Call, _: Go) -> dict[str, Any]:
        return call.error(message)

    return twist


def hangs() -> Twist:
    """Return a twist that never answers."""

    async def twist(_: Call, __: Go) -> None:
        await asyncio.Event().wait()

    return twist
