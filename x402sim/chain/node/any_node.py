"""The interface of a JSON-RPC node, over any transport; its results and errors."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from x402sim.chain import reverts
from x402sim.chain.base import ChainError, ChainUnavailable, Reverted
from x402sim.protocol.rpc_values import Json, read_bytes, shown

T = TypeVar("T")
RpcCall = tuple[Any, ...]
"""A JSON-RPC method and its parameters."""


class NodeGone(ChainUnavailable):
    """The node does not answer, or not in JSON-RPC; it may have received the request."""


class AnyNode(ABC):
    """A JSON-RPC node; its answers are plain JSON.

    Every request has a timeout. A slow, unreachable or malformed answer is a `ChainError`.
    """

    name: str
    """The node's name in errors."""

    @abstractmethod
    async def ask(self, method: str, *parameters: Any) -> Any:
        """Return a method's result; raises `NodeGone`, `Reverted` and `ChainError`."""

    @abstractmethod
    async def ask_all(self, *calls: RpcCall) -> list[Any]:
        """Return the results of several methods, all of the same node; raises as `ask`."""

    @abstractmethod
    async def forward(self, body: bytes) -> bytes:
        """Return the node's answer to a JSON-RPC request unchanged; raises `NodeGone`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections, once all requests are answered."""

    async def read(self, into: Callable[[Any], T], method: str, *parameters: Any) -> T:
        """Return a method's result, parsed by `into`; raises `ChainError` if that fails."""
        return self.parse(into, method, await self.ask(method, *parameters))

    def parse(self, into: Callable[[Any], T], method: str, answer: Any) -> T:
        """Return a result, parsed by `into`; raises `ChainError` if that fails."""
        try:
            return into(answer)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ChainError(f"{self.name} answered {method} with {shown(answer)}") from error


def result_of(answer: Any) -> Any:
    """Return the result in a JSON-RPC answer; raises the answer's error, and `NodeGone` for
    anything else.
    """
    if not isinstance(answer, dict):
        raise NodeGone(f"the node answered {shown(answer)}, which is not JSON-RPC")
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
