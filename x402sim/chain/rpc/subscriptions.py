"""JSON-RPC over WebSocket: any method, and `eth_subscribe` for blocks, logs and transactions.

Nothing is queued for a client that reads slowly: each subscription is a place in the chain, from
which it goes on as soon as the client has taken what was sent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketDisconnect

from x402sim.chain.base import ChainError
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.rpc.filters import KEPT_BLOCKS, FilterType, changes, made_now
from x402sim.chain.rpc.jsonrpc import read_log_filter
from x402sim.chain.rpc.objects import transaction_object, whole_block
from x402sim.protocol.messages import encode
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    read_bool,
    read_hash,
    read_object,
    read_text,
    shown,
)

MAX_SUBSCRIPTIONS = 100
"""The most on one connection."""
MAX_AT_ONCE = 8
"""How many requests of a connection are answered at once; the others wait in its socket."""
KINDS: dict[Any, FilterType] = {
    "newHeads": "blocks",
    "logs": "logs",
    "newPendingTransactions": "transactions",
}
NO_HEADER = ("transactions", "uncles", "withdrawals", "size", "totalDifficulty")
"""What is of a block and not of its header."""
News = Callable[[], Awaitable[list[Any]]]
"""Returns what is new since it was called last; at first, since it was made."""
Make = Callable[[Any, Any], Awaitable[News]]


class Subscriptions(msgspec.Struct, frozen=True):
    """The subscriptions of one connection, by id; those of a message begin once it is answered."""

    make: Make
    news: dict[str, News] = msgspec.field(default_factory=dict)
    numbers: Iterator[int] = msgspec.field(default_factory=lambda: count(1))
    fresh: dict[str, News] = msgspec.field(default_factory=dict)

    async def add(self, kind: Any, wanted: Any) -> str:
        """Begin to tell of what comes from now on; return the id. Raises `ChainError`."""
        if read_text(kind, "a subscription") not in KINDS:
            raise BadParams(f"expected one of {', '.join(KINDS)}, got {shown(kind)}")
        if len(self.news) + len(self.fresh) >= MAX_SUBSCRIPTIONS:
            raise ChainError(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        name = hex(next(self.numbers))
        self.fresh[name] = await self.make(kind, wanted)
        return name

    def remove(self, name: str) -> bool:
        """End a subscription; raises `ChainError` if there is none."""
        if self.news.pop(name, None) is None:
            raise ChainError("subscription not found")
        return True

    async def notifications(self) -> AsyncIterator[Json]:
        """Yield a notification of each thing that is new, one subscription after the other."""
        for name, news in [*self.news.items()]:
            for each in await news():
                if name in self.news:
                    params = {"subscription": name, "result": each}
                    yield {"jsonrpc": "2.0", "method": "eth_subscription", "params": params}


def on_ledger(chain: LedgerChain) -> Make:
    """Return what makes subscriptions to the ledger."""

    async def make(kind: Any, wanted: Any) -> News:
        fields = read_object(wanted, "a filter") if kind == "logs" and wanted is not None else {}
        is_whole = kind == "newPendingTransactions" and read_bool(wanted or False, "whole")
        found = made_now(chain, KINDS[kind], read_log_filter(fields, 0, 2**256))

        async def news() -> list[Any]:
            blocks, items = await changes(found, chain, KEPT_BLOCKS)
            if kind == "newHeads":
                return [header(await whole_block(chain, each, full=False)) for each in blocks]
            if is_whole:
                each = [await chain.transaction(read_hash(tx_hash)) for tx_hash in items]
                return [transaction_object(tx, chain.chain_id) for tx in each if tx]
            return items

        return news

    return make


def header(block: Json) -> Json:
    """Return the header of a block, as newHeads notifies it."""
    return {name: it for name, it in block.items() if name not in NO_HEADER}


async def converse(
    socket: WebSocket,
    watchers: list[Callable[[], Awaitable[None]]],
    subscriptions: Subscriptions,
    answer: Callable[[bytes, Subscriptions], Awaitable[bytes | None]],
    poll_s: float | None = None,
) -> None:
    """Answer each message on a WebSocket, and notify what is new whenever the chain calls its
    `watchers`, and every `poll_s` seconds. Returns when the client has left.
    """
    changed, turn, room = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(MAX_AT_ONCE)

    async def wake() -> None:
        changed.set()

    async def reply(request: bytes) -> None:
        mine = replace(subscriptions, fresh={})
        try:
            if (response := await answer(request, mine)) is not None:
                async with turn:
                    await socket.send_text(response.decode())
            subscriptions.news.update(mine.fresh)
            changed.set()
        finally:
            room.release()

    async def notify() -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_s if subscriptions.news else None):
                    await changed.wait()
            changed.clear()
            with suppress(ChainError):  # a node may not answer now; it is asked again
                while await send_all():
                    pass

    async def send_all() -> int:
        number = 0
        async for each in subscriptions.notifications():
            async with turn:
                await socket.send_text(encode(each).decode())
            number += 1
        return number

    await socket.accept()
    watchers.append(wake)
    try:
        async with asyncio.TaskGroup() as tasks:
            teller = tasks.create_task(notify())
            with suppress(WebSocketDisconnect):
                while True:
                    await room.acquire()
                    tasks.create_task(reply(await socket.receive_bytes()))
            teller.cancel()
    finally:
        watchers.remove(wake)
