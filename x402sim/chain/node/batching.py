"""A node on HTTP that gets JSON-RPC batches: calls during a request wait for the next batch."""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from x402sim.chain.node.any_node import AnyNode, BadStatus, NodeGone, RpcCall, outcome_of
from x402sim.chain.node.evm_chain import MOST_CALLS, LinkedNode, request_of
from x402sim.http.exchange import Transport
from x402sim.protocol.messages import BadMessage, decode, encode

LANES = 2
"""The most requests at a time: a slow call does not keep all others waiting."""
_Asked = tuple[Sequence[RpcCall], asyncio.Future[list[Any]]]


class BatchingNode(LinkedNode):
    """A node that gets concurrent calls in batches; the calls of one `ask_each` or `ask_all` are
    never in two batches, so a single node behind a load balancer answers all of them.

    A node that answers single calls, but no batch, gets only single calls from then on.
    """

    ask_all = AnyNode.ask_all

    def __init__(self, to: Transport, url: str) -> None:
        super().__init__(to, url)
        self._waiting: list[_Asked] = []
        self._lanes: set[asyncio.Task[None] | None] = set()
        self._takes_batches = True

    async def ask_each(self, *calls: RpcCall) -> list[Any]:
        """Return the result of each of several methods, or what `ask` would raise."""
        if not calls:
            return []
        answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((calls, answered))
        if len(self._lanes) < LANES:
            self._lanes.add(asyncio.create_task(self._lane()))  # begins after what is asked now
        return await answered

    async def _lane(self) -> None:
        try:
            while self._waiting:
                waiting = self._waiting
                sizes = accumulate(len(calls) for calls, _ in waiting)
                count = max(1, sum(size <= MOST_CALLS for size in sizes))  # what fits, at least one
                asked, self._waiting = waiting[:count], waiting[count:]
                try:
                    await self._ask(asked)
                finally:
                    for _, answered in asked:
                        answered.cancel()  # answered already, unless this task ends
        finally:
            # here, and not in a callback of the task: what is asked next needs a lane
            self._lanes.remove(asyncio.current_task())

    async def _ask(self, asked: list[_Asked]) -> None:
        answers = iter(await self._answers([call for calls, _ in asked for call in calls]))
        for calls, answered in asked:
            each = [next(answers) for _ in calls]
            if not answered.done():  # else given up
                answered.set_result(each)

    async def _answers(self, calls: list[RpcCall]) -> list[Any]:
        if len(calls) > 1 and self._takes_batches:
            try:
                batch = [request_of(call, number) for number, call in enumerate(calls)]
                body = await self.forward(encode(batch))
                if answers := _by_id(decode(body, Any), len(calls)):
                    return [outcome_of(answer) for answer in answers]
            except (BadStatus, BadMessage):
                pass  # as some nodes answer any batch: each call is asked alone
            except NodeGone as gone:
                return [gone] * len(calls)
        alone = await asyncio.gather(*map(self.answer, calls))
        if len(calls) > 1 and not any(isinstance(each, NodeGone) for each in alone):
            self._takes_batches = False
        return alone


def _by_id(answers: Any, count: int) -> list[Any] | None:
    """Return the answers of a batch in the order of its calls; None if they are not all there."""
    if not isinstance(answers, list):
        return None
    found = {each.get("id"): each for each in answers if isinstance(each, dict)}
    return [found[number] for number in range(count)] if {*range(count)} <= found.keys() else None
