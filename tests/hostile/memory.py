"""The memory of this process, what one payment costs for ever, and the limits of both."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.hostile.town import Town, town

IS_MEASURABLE = sys.platform == "linux"
WARM_UP = 500
PAGES = "PRAGMA page_count"
MOST = {
    "until the cap": 50 << 20,
    "after the cap": 8 << 20,
    "in memory": 16_000,
    "in the database": 4_000,
    "in the chain's file": 1_000,
}
"""The most bytes that a world may grow until its journal is full, and in the 20,000 requests after
that: it is flat, but for the allocator; and those that a payment may leave behind."""


def exceeded(grown: dict[str, int]) -> dict[str, int]:
    """Return what has grown more than it may."""
    return {name: size for name, size in grown.items() if size > MOST[name]}


def rss_bytes() -> int:
    """Return the resident memory of this process; 0 where it cannot be read."""
    return resident_bytes("self") if IS_MEASURABLE else 0


def resident_bytes(pid: int | str) -> int:
    """Return the resident memory of a process, on Linux."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


async def payments(count: int) -> dict[str, int]:
    """Pay `count` times, in a world on disk; return what a payment leaves behind, in bytes."""
    with TemporaryDirectory() as folder:
        async with town(Path(folder) / "world.db") as world:
            for _ in range(WARM_UP):
                await world.buy()
            before = _sizes(world)
            for _ in range(count):
                await world.buy()
            return {name: (size - before[name]) // count for name, size in _sizes(world).items()}


def _sizes(world: Town) -> dict[str, int]:
    """Return the bytes in memory, of the database and of the chain file, their logs included."""
    chain: Any = world.parts.chain
    return {
        "in memory": rss_bytes(),
        "in the database": world.parts.service.store.one(PAGES)[0] * 4096,
        "in the chain's file": chain._log._db.execute(PAGES).fetchone()[0] * 4096,
    }
