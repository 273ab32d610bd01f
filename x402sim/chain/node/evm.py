"""A JSON-RPC node over HTTP.

Every request has a timeout. A slow, unreachable or malformed answer is a `ChainError`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from x402sim.chain import reverts
from x402sim.chain.base import ChainError, Reverted
from x402sim.protocol.rpc_values import Json, read_bytes, shown

T = TypeVar("T")


class NodeGone(ChainError):
    """The node does not answer; it may have received the request."""


class JsonRpcNode:
    """A JSON-RPC node; its answers are plain JSON.

    Requests are made in threads, at most `parallel` at a time; with 1, in order. With 0 there are
    no threads: each request blocks the process, so that simulations are deterministic.
    """

    def __init__(self, url: str, *, timeout_s: float = 20, parallel: int = 8) -> None:
        parts = urlsplit(url)
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """The node without path and password, which are often secret."""
        self._url = url
        self._http = httpx.Client(
            timeout=timeout_s,
            headers={"content-type": "application/json"},
            trust_env=parts.hostname not in ("127.0.0.1", "localhost"),  # no proxy
        )
        self._threads = (
            ThreadPoolExecutor(parallel, thread_name_prefix="x402sim-node") if parallel else None
        )

    async def ask(self, method: str, *parameters: Any) -> Any:
        """Return a method's result; raises `NodeGone`, `Reverted` and `ChainError`."""
        return await self._in_thread(self.ask_now, method, *parameters)

    async def read(self, into: Callable[[Any], T], method: str, *parameters: Any) -> T:
        """Return a method's result, parsed by `into`; raises `ChainError` if that fails."""
        answer = await self.ask(method, *parameters)
        try:
            return into(answer)
        except (LookupError, TypeError, ValueError) as error:
            raise ChainError(f"{self.name} answered {method} with {shown(answer)}") from error

    async def forward(self, body: bytes) -> bytes:
        """Return the node's answer to a JSON-RPC request unchanged; raises `NodeGone`."""
        return (await self._in_thread(self._post, "a request", body)).content

    def ask_now(self, method: str, *parameters: Any) -> Any:
        """Call a method as `ask` does, and block until the answer arrives."""
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self._post(method, msgspec.json.encode(asked))
        try:
            return _result(answer.raise_for_status().json())
        except httpx.HTTPStatusError:
            seen = str(answer.status_code)
        except ValueError:
            seen = "it answered no JSON; the URL of a JSON-RPC node is wanted"
        raise NodeGone(f"no answer from {self.name} to {method}: {seen}")

    def _post(self, what: str, body: bytes) -> httpx.Response:
        try:
            return self._http.post(self._url, content=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            seen = type(error).__name__
            raise NodeGone(f"no answer from {self.name} to {what}: {seen}") from error

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._threads is None:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """Close the connections, once all requests are answered."""
        if self._threads is not None:
            self._threads.shutdown()
        self._http.close()


def _result(answer: Any) -> Any:
    """Return the result in a JSON-RPC answer; raises its error."""
    if not isinstance(answer, dict):
        raise ChainError(f"the node answered {shown(answer)}, which is not JSON-RPC")
    error = answer.get("error")
    if error is not None:
        raise _refusal(error if isinstance(error, dict) else {"message": str(error)})
    return answer.get("result")


def _refusal(error: Json) -> Exception:
    """Return the exception for a JSON-RPC error: `Reverted` with its reason, or `ChainError`."""
    message, data = str(error.get("message", error)), error.get("data")
    if error.get("code") != 3 and not message.startswith("execution reverted"):
        return ChainError(message)
    if isinstance(data, str):
        return Reverted(reverts.text_of(read_bytes(data)))
    return Reverted(message.removeprefix("execution reverted").removeprefix(": "))
