"""A JSON-RPC node, reached through web3; the only file that imports web3."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from web3 import HTTPProvider
from web3.types import RPCEndpoint

from x402sim.chain.base import ChainError
from x402sim.chain.node.any_node import AnyNode, NodeGone, RpcCall, outcome_of, result_of
from x402sim.protocol.rpc_values import shown

T = TypeVar("T")


class JsonRpcNode(AnyNode):
    """A JSON-RPC node behind web3's HTTP provider.

    Requests are made in threads, at most `parallel` at a time; with 1, in order. With 0 there are
    no threads: each request blocks the process: simulations are deterministic.
    """

    def __init__(self, url: str, *, timeout_s: float = 20, parallel: int = 8) -> None:
        parts = urlsplit(url)
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """The URL without path and password, which are often secret."""
        self._url, self._session = url, requests.Session()
        self._session.trust_env = parts.hostname not in ("127.0.0.1", "localhost")  # no proxy
        self._provider = HTTPProvider(
            url, {"timeout": timeout_s}, self._session, exception_retry_configuration=None
        )
        self._threads = (
            ThreadPoolExecutor(parallel, thread_name_prefix="x402sim-node") if parallel else None
        )

    async def ask(self, method: str, *parameters: Any) -> Any:
        """Return a method's result; raises `NodeGone`, `Reverted` and `ChainError`."""
        return await self._in_thread(self.ask_now, method, *parameters)

    async def ask_each(self, *calls: RpcCall) -> list[Any]:
        """Return the result of each of several methods, sent in one batch, or what `ask` would
        raise.

        Behind a load balancer, a single node answers the whole batch.
        """
        batch = [(RPCEndpoint(method), parameters) for method, *parameters in calls]
        send = partial(self._provider.make_batch_request, batch)
        try:
            answers = await self._in_thread(self._send, "a batch", send)
        except NodeGone as gone:
            return [gone] * len(calls)
        if not isinstance(answers, list):
            return [ChainError(f"{self.name} answered a batch with {shown(answers)}")] * len(calls)
        return [outcome_of(answer) for answer in answers]

    async def forward(self, body: bytes) -> bytes:
        """Return the node's answer to a JSON-RPC request unchanged; raises `NodeGone`."""

        def post() -> bytes:
            how = self._provider.get_request_kwargs()
            return self._session.post(self._url, body, **how).content

        return await self._in_thread(self._send, "a request", post)

    def ask_now(self, method: str, *parameters: Any) -> Any:
        """Call a method as `ask` does, and block until the answer arrives."""
        send = partial(self._provider.make_request, RPCEndpoint(method), parameters)
        return result_of(self._send(method, send))

    def _send(self, what: str, send: Callable[[], T]) -> T:
        try:
            return send()
        except (OSError, ValueError) as error:
            cause = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
            if cause == "JSONDecodeError":
                cause = "it answered no JSON; the URL of a JSON-RPC node is wanted"
            raise NodeGone(f"no answer from {self.name} to {what}: {cause}") from error

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._threads is None:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """Close the connections, once all requests are answered."""
        if self._threads is not None:
            self._threads.shutdown()
        self._session.close()
