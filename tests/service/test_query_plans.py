"""No statement of the running service reads a whole table: its cost does not grow with the records.

The plans are those of SQLite for every statement that some scenarios execute.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from x402sim import World
from x402sim.service.store import Store
from x402sim.service.store.database import Database

SCENARIOS = [
    "replay", "session_exhaustion", "indexer_backfill", "reorg_after_indexing", "refund_undone",
    "lost_answer", "restart_mid_settlement",
]  # fmt: skip
OPEN_WORK = "unindexed|shallow|shallow_failures|unresolved|shallow_refunds|refunds_due|expiring"
SMALL = (
    rf"CONSTANT ROW|\(subquery-\d+\)|matched|reputation|\w+ USING (COVERING )?INDEX ({OPEN_WORK})"
)
"""What may be read whole: work that is still open, and a row for each resource."""
WHEN_OPENED = re.compile(r"SELECT EXISTS \(SELECT 1 FROM \w+\)$|DELETE FROM \w+$")


@pytest.fixture(scope="module")
def statements() -> list[str]:
    """Every statement that the scenarios execute, once each, with values."""
    seen: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        original = Database.__init__

        def traced(self: Database, file: Path | None = None) -> None:
            original(self, file)
            self._connection.set_trace_callback(
                lambda sql: seen.setdefault(re.sub(r"X?'[^']*'|\b\d[\d.e+]*\b", "?", sql), sql)
            )

        patch.setattr(Database, "__init__", traced)
        for name in SCENARIOS:
            assert World(seed=1).play(name).outcome == "passed"
    verbs = ("SELECT", "INSERT", "UPDATE", "DELETE")
    return [sql.strip() for sql in seen.values() if sql.strip().startswith(verbs)]


def whole(store: Store, statements: list[str]) -> Iterator[tuple[str, str]]:
    store.execute("PRAGMA foreign_keys=OFF")  # its checks are planned, but run after a violation
    for sql in statements:
        for *_, step in store.execute(f"EXPLAIN QUERY PLAN {sql}"):
            is_small = re.fullmatch(rf"SCAN ({SMALL})", step) or WHEN_OPENED.match(sql)
            if step.startswith("SCAN") and not is_small:
                yield step, sql


def test_no_statement_reads_a_whole_table(statements: list[str]) -> None:
    assert len(statements) >= 35
    assert list(whole(Store(), statements)) == []


@pytest.mark.parametrize("index", ["attempts", "by_transaction", "unindexed", "expiring"])
def test_without_an_index_some_statement_would(statements: list[str], index: str) -> None:
    store = Store()
    store.execute(f"DROP INDEX {index}")
    assert list(whole(store, statements))
