"""The memory of this process, and what one payment costs for ever."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.hostile.town import Town, town

IS_MEASURABLE = sys.platform == "linux"
WARM_UP = 500


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
