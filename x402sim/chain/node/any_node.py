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


class BadStatus(NodeGone):
    """The node answers an HTTP status other than 200."""


class AnyNode(ABC):
    """A JSON-RPC node; its answers are plain JSON.

    Every request has a timeout. A slow, unreachable or malformed answer is a `ChainError`.
    """

    name: str
    """The node's name in errors."""

    async def ask(self, method: str, *parameters: Any) -> Any:
        """Return a method's result; raises `NodeGone`, `Reverted` and `ChainError`."""
        [answer] = await self.ask_each((method, *parameters))
        if isinstance(answer, Exception):
            raise answer
        return answer

    @abstractmethod
    async def ask_each(self, *calls: RpcCall) -> list[Any]:
        """Return the result of each of several methods, all of the same node, or what `ask` would
        raise.
        """

    async def ask_all(self, *calls: RpcCall) -> list[Any]:
        """Return the results of several methods, all of the same node; raises as `ask`."""
        answers = await self.ask_each(*calls)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

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


def outcome_of(answer: Any) -> Any:
    """Return the result in a JSON-RPC answer, or what `result_of` raises."""
    try:
        return result_of(answer)
    except (ChainError, Reverted) as refused:
        return refused


def _refusal(error: Json) -> Exception:
    message, data = str(error.get("message", error)), error.get("data")
    if error.get("code") != 3 and not message.startswith("execution reverted"):
        return ChainError(message)
    if isinstance(data, str):
        return Reverted(reverts.text_of(read_bytes(data)))
    return Reverted(message.removeprefix("execution reverted").removeprefix(": "))
