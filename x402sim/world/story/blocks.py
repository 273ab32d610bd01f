"""What a story sees of the chain's blocks: the newest one, and each new one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable

from x402sim.chain.base import Block
from x402sim.protocol.crypto import to_hex
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.messages import State
from x402sim.world.stages.stage import Stage


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block: its number, its time in Unix seconds, and the hashes of its transactions."""

    number: int
    time_s: int
    tx_hashes: tuple[str, ...] = ()


async def newest_block(stage: Stage) -> NewBlock:
    """Return the chain's newest block, without its transactions."""
    found: State = await stage.ask("state", kind=State)
    return NewBlock(found.chain.height or 0, found.chain.timestamp or 0)


OnBlock = Callable[[NewBlock], Awaitable[None] | None]
"""A function, or a coroutine function, of a new block."""


def call_on_block(parts: RunningWorld | None, hook: OnBlock) -> None:
    """Call a function with each new block, also with those that replace others.

    A coroutine function runs in a task of its own. What it raises fails the story. Raises
    `ValueError` without parts: for a deployment.
    """
    if parts is None:
        raise ValueError("a Python function cannot be sent to a deployment")
    running: set[asyncio.Task[None]] = set()

    async def finish(started: Awaitable[None]) -> None:
        try:
            await started
        except Exception as error:  # noqa: BLE001 - the user's own code: the story is told
            parts.tell(error)

    def told(block: Block) -> None:
        seen = NewBlock(block.number, block.timestamp_s, tuple(map(to_hex, block.tx_hashes)))
        try:
            started = hook(seen)
        except Exception as error:  # noqa: BLE001 - as above
            parts.tell(error)
            return
        if isawaitable(started):
            task = asyncio.create_task(finish(started), name="a story's hook of a block")
            running.add(task)
            task.add_done_callback(running.discard)

    parts.watch.on_block.append(told)
