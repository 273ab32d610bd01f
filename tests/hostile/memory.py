"""The memory of this process, what one payment costs for ever, and the limits of both."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.hostile.town import Town, town

IS_MEASURABLE = sys.platform == "linux"
WARM_UP = 500
MEMORY = {"rss_grown_until_cap_mib": 50, "rss_grown_after_cap_mib": 8}
"""The most that a world may grow until its journal is full, and in the 20,000 requests after that:
it is flat, but for the allocator."""
PAYMENT = {
    "rss_bytes_per_payment": 16_000,
    "database_bytes_per_payment": 4_000,
    "chain_file_bytes_per_payment": 1_000,
}
"""The most bytes that a payment leaves behind."""


def limited(figures: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    """Return figures, with the limits that they exceed among the violations."""
    wrong = [
        f"{name} is {figures[name]}, and may be {most}"
        for name, most in limits.items()
        if figures[name] > most
    ]
    known = figures.get("violations", [])
    violated = figures.get("violated", 0) + len(wrong)
    return {**figures, "violated": violated, "violations": [*wrong, *known]}


def rss_bytes() -> int:
    """Return the resident memory of this process; 0 where it cannot be read."""
    if not IS_MEASURABLE:
        return 0
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def payments(count: int) -> dict[str, Any]:
    """Pay `count` times, in a world on disk; return what a payment leaves behind, in bytes."""
    with TemporaryDirectory() as folder:
        async with town(Path(folder) / "world.db") as world:
            journal = world.parts.journal
            for _ in range(WARM_UP):
                await world.buy()
            before, disk, entries = rss_bytes(), _sizes(world), journal.length
            for _ in range(count):
                await world.buy()
            grown = [now - then for now, then in zip(_sizes(world), disk, strict=True)]
            return {
                "payments": count,
                "rss_bytes_per_payment": round((rss_bytes() - before) / count),
                "journal_entries_per_payment": round((journal.length - entries) / count, 1),
                "database_bytes_per_payment": round(grown[0] / count),
                "chain_file_bytes_per_payment": round(grown[1] / count),
            }


def _sizes(world: Town) -> list[int]:
    """Return the size of the database and of the chain file, their logs included."""
    pages = "PRAGMA page_count"
    database = world.parts.service.store
    chain: Any = world.parts.chain
    return [database.one(pages)[0] * 4096, chain._log._db.execute(pages).fetchone()[0] * 4096]
