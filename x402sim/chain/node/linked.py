"""A JSON-RPC node at the other end of a link, and its chain, as a facilitator asks it."""

from typing import Any

import httpx

from x402sim.chain.node.any_node import AnyNode, NodeGone, Question, result_of
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.chain.node.sender import Sender
from x402sim.clock import Clock
from x402sim.http.exchange import Headers, Request, Transport, Url, within
from x402sim.protocol.crypto import Hash
from x402sim.protocol.messages import BadMessage, decode, encode
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import shown

TIMEOUT_S = 10.0
"""Seconds that it waits for an answer, as viem does."""
POLL_S = 2.0
"""Seconds between two looks for a receipt: in the usual time of a block there is one."""
_HEADERS: Headers = [(b"content-type", b"application/json")]


class LinkedNode(AnyNode):
    """A node that is asked over a transport."""

    def __init__(self, to: Transport, url: str) -> None:
        self.name, self._to, self._url = url, to, Url.of(httpx.URL(url))

    async def ask(self, method: str, *parameters: Any) -> Any:
        """Return a method's result; raises `NodeGone`, `Reverted` and `ChainError`."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        body = await self.forward(encode(call))
        try:
            answer = decode(body, Any)
        except BadMessage:
            text = shown(body.decode("utf-8", "replace"))
            raise NodeGone(f"{self.name} answered {method} with {text}") from None
        return result_of(answer)

    async def ask_all(self, *questions: Question) -> list[Any]:
        """Return the results of several methods, one request each: there is one node only."""
        return [await self.ask(*question) for question in questions]

    async def forward(self, body: bytes) -> bytes:
        """Return the node's answer to a JSON-RPC request unchanged; raises `NodeGone`."""
        length = b"%d" % len(body)
        headers = [(b"host", self._url.netloc), *_HEADERS, (b"content-length", length)]
        request = Request("POST", self._url, headers, body, {})
        try:
            response = await within(TIMEOUT_S, self._to.send(request))
        except TimeoutError:
            raise NodeGone(f"{self.name} did not answer within {TIMEOUT_S:g} s") from None
        except httpx.TransportError as error:
            raise NodeGone(f"no answer from {self.name}: {error!r}") from None
        if response.status != 200:
            raise NodeGone(f"no answer from {self.name}: it answered {response.status}")
        return response.content

    def close(self) -> None:
        """Do nothing: the link is not its own."""


class LinkedChain(EvmChain):
    """The part of a `Chain` that a facilitator needs, with its key, over a link."""

    def __init__(self, node: LinkedNode, network: Network, clock: Clock, key: bytes) -> None:
        super().__init__(node, network, clock)
        self._sender = Sender(node, network.chain_id, [key], may_lag=False)

    def has_sent(self, tx_hash: Hash) -> bool:
        """Tell whether a transaction is one of ours that is not known to be mined."""
        return tx_hash in self._sender.sent

    async def _pause(self) -> None:
        await self._clock.sleep(POLL_S)
