"""New blocks as a scenario sees them: asked for, or told to a function of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable

from x402sim.chain.base import Block
from x402sim.protocol.crypto import to_hex
from x402sim.world.control.messages import State
from x402sim.world.running_world import RunningWorld
from x402sim.world.stages import Stage


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

    A coroutine function runs in a task of its own. What it raises fails the scenario. Raises
    `ValueError` without parts: for a deployment.
    """
    if parts is None:
        raise ValueError("a Python function cannot be sent to a deployment")
    running: set[asyncio.Task[None]] = set()

    async def finish(started: Awaitable[None]) -> None:
        try:
            await started
        except Exception as error:  # noqa: BLE001 - the user's own code: the scenario fails
            parts.report_bug(error)

    def on_new_block(block: Block) -> None:
        new = NewBlock(block.number, block.timestamp_s, tuple(map(to_hex, block.tx_hashes)))
        try:
            started = hook(new)
        except Exception as error:  # noqa: BLE001 - as above
            parts.report_bug(error)
            return
        if isawaitable(started):
            task = asyncio.create_task(finish(started), name="a scenario's hook of a block")
            running.add(task)
            task.add_done_callback(running.discard)

    parts.chain_recorder.on_block.append(on_new_block)
