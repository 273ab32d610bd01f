"""JSON-RPC filters and subscriptions: new logs, blocks and arriving transactions.

A filter remembers the newest reported blocks. When a reorganisation replaces blocks, the filter
reports their logs once more, as removed, and then the new blocks.

At most `MAX_FILTERS` are kept: a new filter replaces the filter with the oldest poll, and a filter
ends after `MAX_AGE_S` seconds without a poll.

Over WebSocket, `eth_subscribe` notifies the same. Nothing is queued for a client that reads slowly:
each subscription is a position in the chain, and moves on when the client has read the last
notification. A notification takes a turn of the loop: a backlog holds up nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketDisconnect

from x402sim.chain.base import Block, ChainError, Log, LogFilter
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.rpc.jsonrpc import log_object, read_log_filter, whole_block
from x402sim.http.limits import (
    MAX_AGE_S,
    MAX_ALL_SUBSCRIPTIONS,
    MAX_AT_ONCE,
    MAX_FILTERS,
    MAX_LOGS,
    MAX_SUBSCRIPTIONS,
)
from x402sim.http.web import connection
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.messages import encode
from x402sim.protocol.rpc_values import BadParams, Json, read_object, read_text, shown
from x402sim.tasks import Turns

AT_ONCE = 100
"""How many blocks are searched for logs at once, or transactions told of."""
KEPT_BLOCKS = 64
"""How many of the newest blocks a filter remembers."""
FilterType = Literal["logs", "blocks", "transactions"]
"""What a filter reports: logs, blocks, or arriving transactions."""
EVERYTHING = LogFilter(0, 2**256)


class TooManyLogs(ChainError):
    """More logs are wanted than an answer may have."""


class Filter(msgspec.Struct):
    """The selection of a filter, and the position after the last report."""

    kind: FilterType
    wanted: LogFilter
    """Selects logs; a filter of blocks reports all that are mined from now on."""
    next_block: int
    arrived: int
    """The number of the newest reported arrival."""
    polled_s: float
    reported: list[tuple[Block, list[Log]]]
    """The newest passed blocks, oldest first, each with the reported logs."""


class Filters:
    """The filters of all clients, by id."""

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}
        self._made = 0

    def add(self, chain: LedgerChain, kind: FilterType, wanted: LogFilter = EVERYTHING) -> str:
        """Make a filter of news from now on; return the id."""
        filters = self._current()
        while len(filters) >= MAX_FILTERS:
            del filters[min(filters, key=lambda name: filters[name].polled_s)]
        self._made += 1
        name = hex(self._made)
        filters[name] = made_now(chain, kind, wanted)
        return name

    def remove(self, name: str) -> bool:
        """Forget a filter; False if there is none."""
        return self._current().pop(name, None) is not None

    def logs(self, name: str) -> LogFilter:
        """Return the logs that a filter wants; raises `ChainError` if there is none of logs."""
        found = self._find(name)
        if found.kind != "logs":
            raise ChainError("filter not found")
        return found.wanted

    async def changes(
        self, chain: LedgerChain, name: str, turn: Callable[[], Awaitable[None]]
    ) -> list[Json] | list[str]:
        """Return what is new since a filter was polled last, read in some blocks a `turn`. What
        passes `MAX_LOGS` is left for the next poll, but no block is divided. Raises `ChainError`
        without the filter.
        """
        found, news, most = self._find(name), list[Any](), AT_ONCE
        passed = replace(found, reported=[*found.reported])
        while True:
            now = replace(passed, reported=[*passed.reported])
            items, is_all = await changes(now, chain, most)
            if len(news) + len(items) > MAX_LOGS and most > 1:
                most = 1  # to find the last block with room in the answer
                continue
            if news and len(news) + len(items) > MAX_LOGS:
                break
            news += [to_hex(each.hash) for each in items] if now.kind == "blocks" else items
            passed = now
            if is_all:
                break
            await turn()
        found.next_block, found.reported = passed.next_block, passed.reported
        found.arrived = passed.arrived
        return news

    def _find(self, name: str) -> Filter:
        found = self._current().get(name)
        if found is None:
            raise ChainError("filter not found")
        found.polled_s = _now_s()
        return found

    def _current(self) -> dict[str, Filter]:
        """Forget the filters that were not polled lately; return the others."""
        since_s = _now_s() - MAX_AGE_S
        self._filters = {key: it for key, it in self._filters.items() if it.polled_s >= since_s}
        return self._filters


def made_now(chain: LedgerChain, kind: FilterType, wanted: LogFilter = EVERYTHING) -> Filter:
    """Return a filter of news from now on."""
    machine = chain.machine
    head = machine.state.head
    arrived = machine.arrivals.number
    return Filter(kind, wanted, head.number + 1, arrived, _now_s(), [(head, [])])


async def changes(found: Filter, chain: LedgerChain, most: int) -> tuple[list[Any], bool]:
    """Return what is new since a filter was polled last, of `most` blocks or transactions: blocks,
    objects of logs, or hashes of transactions; and whether that is all.
    """
    if found.kind == "transactions":
        arrivals = chain.machine.arrivals
        arrived = arrivals.after(found.arrived, most)
        found.arrived = max(arrived, default=found.arrived)
        return [*map(to_hex, arrived.values())], found.arrived >= arrivals.number
    gone = await _undo(found, chain)
    height = await chain.height()
    numbers = range(found.next_block, height + 1)[:most]
    new = [block for n in numbers if (block := await chain.block(n))]
    logs: list[Log] = []
    if new and found.kind == "logs":
        first = max(new[0].number, found.wanted.from_block)
        last = min(new[-1].number, found.wanted.to_block)
        logs = await chain.logs(replace(found.wanted, from_block=first, to_block=last))
    of_block: dict[int, list[Log]] = {}
    for log in logs:
        of_block.setdefault(log.block_number, []).append(log)
    for block in new[-KEPT_BLOCKS:]:
        found.reported.append((block, of_block.get(block.number, [])))
        found.next_block = block.number + 1
    del found.reported[:-KEPT_BLOCKS]
    is_all = found.next_block > height
    if found.kind == "blocks":
        return new, is_all
    removed = [{**log_object(log), "removed": True} for log in gone]
    return removed + [log_object(log) for log in logs], is_all


def _now_s() -> float:
    """Return the loop's time: that of the world's clock may be advanced by hours at once."""
    return asyncio.get_running_loop().time()


async def _undo(found: Filter, chain: LedgerChain) -> list[Log]:
    """Go back to the newest block that is still on the chain; return the logs reported since,
    newest block first.
    """
    gone: list[Log] = []
    while found.reported:
        block, logs = found.reported[-1]
        still = await chain.block(block.number)
        if still and still.hash == block.hash:
            break
        found.reported.pop()
        found.next_block = block.number
        gone += logs
    return gone


# --- over WebSocket ---------------------------------------------------------------------

AT_A_TURN = 8
"""The most blocks or transactions of a backlog that a subscription reads in a turn."""
KINDS: dict[Any, FilterType] = {
    "newHeads": "blocks",
    "logs": "logs",
    "newPendingTransactions": "transactions",
}
NO_HEADER = ("transactions", "uncles", "withdrawals", "size", "totalDifficulty")
"""The fields of a block that a header lacks."""
News = Callable[[], Awaitable[list[Any]]]
"""Returns the news since the last call; at first, since the subscription began."""
Make = Callable[[Any, Any], Awaitable[News]]


class Subscriptions(msgspec.Struct, frozen=True):
    """The subscriptions of one connection, by id.

    A request's `fresh` subscriptions begin after the answer: a client must know a subscription's id
    before the first notification. `everybody` has the `news` of all connections.
    """

    make: Make
    everybody: list[dict[str, News]]
    news: dict[str, News] = msgspec.field(default_factory=dict)
    numbers: Iterator[int] = msgspec.field(default_factory=lambda: count(1))
    fresh: dict[str, News] = msgspec.field(default_factory=dict)

    async def add(self, kind: Any, wanted: Any) -> str:
        """Begin a subscription to what is new from now on; return its id. Raises `ChainError`."""
        if read_text(kind, "a subscription") not in KINDS:
            raise BadParams(f"expected one of {', '.join(KINDS)}, got {shown(kind)}")
        if kind == "newPendingTransactions" and wanted:
            raise BadParams("newPendingTransactions tells hashes, not whole transactions")
        if len(self.news) + len(self.fresh) >= MAX_SUBSCRIPTIONS:
            raise ChainError(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        if sum(map(len, self.everybody)) >= MAX_ALL_SUBSCRIPTIONS:
            raise ChainError(f"there are {MAX_ALL_SUBSCRIPTIONS} subscriptions already, of all")
        name = hex(next(self.numbers))
        self.fresh[name] = await self.make(kind, wanted)
        return name

    def remove(self, name: str) -> bool:
        """End a subscription; raises `ChainError` if there is none."""
        if self.news.pop(name, None) is None:
            raise ChainError("subscription not found")
        return True

    async def notifications(self, turns: Turns) -> AsyncIterator[Json]:
        """Yield a notification of each new thing, subscription by subscription, each in a separate
        turn.
        """
        for name, news in [*self.news.items()]:
            await turns.mine()
            for each in await news():
                await turns.mine()
                if name in self.news:
                    params = {"subscription": name, "result": each}
                    yield {"jsonrpc": "2.0", "method": "eth_subscription", "params": params}


def on_ledger(chain: LedgerChain) -> Make:
    """Return a maker of subscriptions to the ledger."""

    async def make(kind: Any, wanted: Any) -> News:
        fields = read_object(wanted, "a filter") if kind == "logs" and wanted is not None else {}
        found = made_now(chain, KINDS[kind], read_log_filter(fields, 0, 2**256))

        async def news() -> list[Any]:
            items, _ = await changes(found, chain, AT_A_TURN)
            if kind == "newHeads":
                return [header(await whole_block(chain, each, full=False)) for each in items]
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
    turns: Turns,
    poll_s: float | None = None,
) -> None:
    """Answer each message on a WebSocket, and notify news whenever the chain calls the `watchers`,
    and every `poll_s` seconds. Returns when the client has left.
    """
    changed, turn, room = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(MAX_AT_ONCE)
    client = connection(socket)

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
            client.forget(len(request))
            room.release()

    async def notify() -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_s if subscriptions.news else None):
                    await changed.wait()
            changed.clear()
            with suppress(ChainError):  # a node may not answer now; the next turn polls again
                while await send_all() and not client.is_closed():
                    pass

    async def send_all() -> int:
        number = 0
        async for each in subscriptions.notifications(turns):
            if client.is_closed():  # whoever has left has perhaps a long backlog
                break
            async with turn:
                await socket.send_text(encode(each).decode())
            number += 1
        return number

    await socket.accept()
    watchers.append(wake)
    subscriptions.everybody.append(subscriptions.news)
    try:
        async with asyncio.TaskGroup() as tasks:
            notifier = tasks.create_task(notify())
            with suppress(WebSocketDisconnect):
                while True:
                    await room.acquire()
                    tasks.create_task(reply(await socket.receive_bytes()))
            notifier.cancel()
    finally:
        watchers.remove(wake)
        subscriptions.everybody[:] = [
            each for each in subscriptions.everybody if each is not subscriptions.news
        ]
