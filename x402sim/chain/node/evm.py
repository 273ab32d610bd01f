"""A JSON-RPC node over HTTP, for any event loop and for none."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from x402sim.chain.base import ChainError
from x402sim.chain.node.any_node import (
    AnyNode,
    NodeGone,
    RpcCall,
    answers_in,
    batch_of,
    outcome_of,
    request_of,
    result_of,
)
from x402sim.protocol.messages import DEEPEST, BadMessage, decode, encode
from x402sim.protocol.rpc_values import shown

T = TypeVar("T")
_JSON = {"content-type": "application/json"}


class JsonRpcNode(AnyNode):
    """A JSON-RPC node at a URL.

    Requests are made in threads, at most `parallel` at a time; with 1, in order. With 0 there are
    no threads: each request blocks the process: simulations are deterministic.
    """

    def __init__(self, url: str, *, timeout_s: float = 20, parallel: int = 8) -> None:
        parts = urlsplit(url)
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """The URL without path and password, which are often secret."""
        is_remote = parts.hostname not in ("127.0.0.1", "localhost")  # else no proxy
        self._url = url
        self._http = httpx.Client(timeout=timeout_s, trust_env=is_remote, headers=_JSON)
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
        try:
            told = await self._in_thread(self._answer, "a batch", batch_of(calls))
        except NodeGone as gone:
            return [gone] * len(calls)
        answers = answers_in(told, len(calls))
        if answers is None:
            return [ChainError(f"{self.name} answered a batch with {shown(told)}")] * len(calls)
        return [outcome_of(answer) for answer in answers]

    async def forward(self, body: bytes) -> bytes:
        """Return the node's answer to a JSON-RPC request unchanged; raises `NodeGone`."""
        return (await self._in_thread(self._post, "a request", body)).content

    def ask_now(self, method: str, *parameters: Any) -> Any:
        """Call a method as `ask` does, and block until the answer arrives."""
        return result_of(self._answer(method, request_of((method, *parameters))))

    def _answer(self, what: str, asked: Any) -> Any:
        response = self._post(what, encode(asked))
        if response.status_code != 200:
            raise NodeGone(f"no answer from {self.name} to {what}: {response.status_code}")
        try:
            return decode(response.content, Any, most=DEEPEST, is_wide=True)
        except BadMessage as wrong:
            cause = "it answered no JSON; the URL of a JSON-RPC node is wanted"
            raise NodeGone(f"no answer from {self.name} to {what}: {cause}") from wrong

    def _post(self, what: str, body: bytes) -> httpx.Response:
        try:
            return self._http.post(self._url, content=body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            cause = type(error).__name__
            raise NodeGone(f"no answer from {self.name} to {what}: {cause}") from error

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._threads is None:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """Close the connections, once all requests are answered."""
        if self._threads is not None:
            self._threads.shutdown()
        self._http.close()
