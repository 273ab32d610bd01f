"""A chain file older than the database is refused, and no other file, wherever a kill falls.

A story runs on two files. Before each statement on either file, both are copied, as a kill at this
moment would leave both behind.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.rig import ServiceRig, scene
from x402sim import World
from x402sim.chain.base import ChainError
from x402sim.serving.control import actions
from x402sim.world.running_world import build

DATABASE, CHAIN = "world.db", "world.db.chain"


def opened(folder: Path) -> None:
    """Open the world in a folder, and close it; raises `ChainError`."""
    parts = build(World(seed=1, file=folder / DATABASE))
    parts.service.store.close()
    parts.chain.close()


def copied(parts: dict[str, Path], to: Path) -> Path:
    """Copy files and SQLite's files beside, each from a folder."""
    to.mkdir()
    for name, folder in parts.items():
        for suffix in ("", "-wal"):
            if (folder / (name + suffix)).exists():
                shutil.copy(folder / (name + suffix), to)
    return to


def numbers(folder: Path) -> tuple[int, int]:
    """Return the newest operation in the chain's file, and the newest known to the database."""
    with sqlite3.connect(folder / CHAIN) as chain, sqlite3.connect(folder / DATABASE) as database:
        logged = chain.execute("SELECT max(seq) FROM operations").fetchone()[0]
        seen = database.execute("SELECT max(operations) FROM chain").fetchone()[0]
    chain.close()
    database.close()
    return logged, seen


async def live(rig: ServiceRig) -> None:
    """Everything that writes to the chain's file, or replaces the database."""
    await rig.buy()
    taken = await actions.snapshot(rig.parts)
    await rig.open_session()
    await rig.parts.chain.controls.mine(2)
    await actions.revert(rig.parts, taken.snapshot)
    await rig.buy()
    await rig.parts.chain.controls.reorg(1)
    await actions.reset(rig.parts)
    await rig.buy()
    await rig.buy()


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files before each statement of a story, in order."""
    folder = tmp_path_factory.mktemp("live")
    copies = tmp_path_factory.mktemp("copies")
    taken: list[Path] = []

    def take(_: str) -> None:
        where = {DATABASE: folder, CHAIN: folder}
        taken.append(copied(where, copies / f"{len(taken):04}"))

    @scene
    async def story(rig: ServiceRig, db: Path) -> None:
        log = rig.parts.chain._log
        connections = rig.service.store._connection, log._db, log._database
        for each in connections:
            each.set_trace_callback(take)
        await live(rig)
        take("")
        for each in connections:
            each.set_trace_callback(None)

    story(db=folder / DATABASE)
    return taken


def test_a_kill_at_any_moment_leaves_files_that_open(moments: list[Path]) -> None:
    assert len(moments) > 50
    for folder in moments:
        opened(folder)


def test_an_older_chain_file_is_refused_and_an_older_database_is_not(
    moments: list[Path], tmp_path: Path
) -> None:
    chosen = moments[:: len(moments) // 8]
    logged, seen = numbers(moments[-1])
    assert logged == seen, "the database learns of each operation"
    known = {folder: numbers(folder) for folder in chosen}
    assert len(set(known.values())) > 4, "the story must get on between the chosen moments"
    refused = 0
    for chain in chosen:
        for database in chosen:
            pair = copied({CHAIN: chain, DATABASE: database}, tmp_path / "pair")
            logged, seen = known[chain][0], known[database][1]
            if logged < seen:
                refused += 1
                wanted = f"it ends at operation {logged}, and the database has operation {seen}"
                with pytest.raises(ChainError, match=wanted):
                    opened(pair)
            else:
                opened(pair)
            shutil.rmtree(pair)
    assert refused > 12
