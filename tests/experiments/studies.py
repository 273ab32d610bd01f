"""Experiments that the tests play; what they did is left in a folder, one file a call."""

import asyncio
import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pandas as pd

from x402sim import LiveWorld, World, sweep
from x402sim.experiments.sweep import SweepFailed


def recorded(*arguments: Any, **options: Any) -> pd.DataFrame:
    """Play a sweep of which points fail; return the frame that the exception has."""
    try:
        sweep(*arguments, **options)
    except SweepFailed as failed:
        return failed.frame
    raise AssertionError("no point failed")


def wait(rate: float, seed: int) -> dict[str, Any]:
    """The latency of a payer's requests, by their number."""

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()

    run = World(seed=seed, latency={"service": (1 / rate, 0.5)}).play(story)
    return {"latency_s": run.steps["latency_s"].sum(), "requests": len(run.steps)}


def as_frame(rate: float, seed: int) -> pd.DataFrame:
    """A frame with as many rows as the seed is high, so that of seed 0 is empty."""
    return pd.DataFrame({"x": [rate * n for n in range(seed)], "kind": "a"}).astype(
        {"kind": "category"}
    )


def counted(folder: str, n: int, seed: int) -> int:
    """Leave a file for this call."""
    Path(folder, f"{n}-{seed}-{uuid.uuid4()}").touch()
    return 100 * n + seed


def slow(folder: str, n: int, seed: int) -> int:
    """As `counted`, but it takes a moment."""
    time.sleep(0.05)
    return counted(folder, n, seed)


def deadly_once(folder: str, made: str, n: int, seed: int) -> int:
    """As `counted`, but kill the process the first time at one point; `folder` gets its pid."""
    value = counted(made, n, seed)
    if (n, seed) == (1, 12) and not list(Path(folder).iterdir()):
        Path(folder, str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def flawed(n: int, seed: int, m: int = 0) -> float:
    """Raise for some points."""
    if n == 2 and seed in (3, 5):
        raise KeyError(f"seed {seed}")
    return seed / n


def tripled(k: int, n: int, seed: int) -> int:
    """A function with a parameter that no grid gives."""
    return k * n + seed


def deadly(n: int, seed: int) -> int:
    """Kill the process for one point."""
    if (n, seed) == (2, 3):
        os.kill(os.getpid(), signal.SIGKILL)
    return n + seed


def failing_story(n: int, seed: int) -> int:
    """Play a story that raises in a task of its own, and look away."""

    async def story(world: LiveWorld) -> None:
        async def inner() -> None:
            {}["nothing"]

        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    World(seed=seed).play(story)
    return n


def free_money(n: int, seed: int) -> int:
    """Play a story with a check that does not hold."""

    async def story(world: LiveWorld) -> None:
        world.expect(n, 0, "4.1/receipt")

    World(seed=seed).play(story)
    return n


def shipped(scenario: str, seed: int) -> str:
    """Play a shipped scenario; return the hash of its journal."""
    return World(seed=seed).play(scenario).sha256
