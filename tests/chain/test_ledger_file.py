"""A ledger on disk: closed, killed, or opened by the wrong world."""

import asyncio
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    OWNER,
    SHOP,
    START_BASE,
    LedgerDriver,
    payment,
)
from tests.chain.killed import operate
from x402sim.chain.base import ChainError, ChainUnavailable
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.ledger.operations import OperationLog
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import MAINNET, TESTNET, Network

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "world.chain"


def contents(driver: LedgerDriver) -> tuple:
    """Return everything a ledger knows, for comparison."""
    machine = driver.ledger.machine
    state = {name: copy(it) for name, it in vars(machine.state).items() if name[0] != "_"}
    return *state.values(), dict(machine._snapshots), machine.automine


def stored(file: Path) -> tuple:
    """Return what a ledger knows that is opened from a file."""
    driver = LedgerDriver(file=file)
    with closing(driver.ledger):
        return contents(driver)


def test_an_opened_ledger_goes_on_as_the_first_would_have(file):
    unbroken = LedgerDriver()
    interrupted = LedgerDriver(file=file)
    for n, _, _ in zip(range(75), operate(unbroken), operate(interrupted), strict=False):
        if n % 15 == 14:
            interrupted.ledger.close()
            interrupted.chain = LedgerDriver(file=file, now=interrupted.now).ledger
    assert contents(interrupted) == contents(unbroken)
    interrupted.ledger.close()


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(each, marks=pytest.mark.thorough) for each in (0, 2))]
)
def test_kill_9_loses_nothing_that_was_acknowledged(file, seed):
    """At most one operation more is there: written, but killed before it was acknowledged."""
    luck = random.Random(seed)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.chain.killed", str(file)], cwd=ROOT, stdout=subprocess.PIPE
    )
    with worker:
        acknowledged = [worker.stdout.readline() for _ in range(luck.randrange(1, 300))]
        time.sleep(luck.random() / 200)
        worker.kill()
        acknowledged += worker.stdout.readlines()
    done = acknowledged.count(b"done\n")
    assert worker.returncode != 0
    assert done >= 1

    survivor, reference = stored(file), LedgerDriver()
    steps = operate(reference)
    for _, _ in zip(range(done), steps, strict=False):
        pass
    if survivor != contents(reference):
        next(steps)
    assert survivor == contents(reference)


@pytest.mark.parametrize(
    ("network", "owner", "text"),
    [
        (MAINNET, OWNER, "the file holds chain 338, not 25"),
        (replace(TESTNET, chain_id=339), OWNER, "the file holds chain 338, not 339"),
        (TESTNET, MALLORY, "the file was made with another seed"),
    ],
)
def test_a_file_of_another_world_is_refused_and_left_alone(
    file: Path, network: Network, owner: Wallet, text: str
):
    first = LedgerDriver(file=file)
    first.send(payment())
    before = contents(first)
    first.ledger.close()
    with pytest.raises(ChainError) as refused:
        LedgerChain(network, first.clock, owner=owner.address_bytes, file=file)
    assert str(refused.value) == text
    assert stored(file) == before


def test_a_new_file_beside_a_database_with_payments_is_refused(file: Path) -> None:
    with pytest.raises(ChainError, match="the chain file is empty, but its database has payments"):
        LedgerChain(TESTNET, Clock(), owner=OWNER.address_bytes, file=file, has_history=True)


def test_reset_clears_the_file(file):
    first = LedgerDriver(file=file)
    first.send(payment())
    first.now[0] += 60
    asyncio.run(first.ledger.reset())
    empty = contents(first)
    assert first.state.head.number == 0
    assert first.state.head.timestamp_s == NOW_S + 60
    assert (first.balance(ALICE), first.balance(SHOP)) == (START_BASE, 0)
    first.ledger.close()
    assert stored(file) == empty


def test_one_file_belongs_to_one_open_ledger(file):
    first = LedgerDriver(file=file)
    with (
        sqlite3.connect(file, timeout=0) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("INSERT INTO operations(op) VALUES (x'00')")
    other.close()
    first.ledger.close()


def test_a_file_that_is_no_database_is_an_error(file):
    file.write_bytes(b"not a database at all" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        LedgerDriver(file=file)


def test_a_reset_that_cannot_be_logged_leaves_the_old_chain_whole(file, monkeypatch):
    driver = LedgerDriver(file=file)
    old = driver.put(payment())
    for _ in range(3):
        driver.mine(1024)

    def full(*_):
        raise ChainUnavailable("the chain file cannot be written: database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(OperationLog, "begin", full)
        with pytest.raises(ChainUnavailable, match="disk is full"):
            driver.reset()
    assert driver.transaction(old).block_number == 1, "its archive is open"
    driver.reset()
    assert driver.height() == 0
    driver.ledger.close()


def test_a_full_disk_refuses_the_operation_and_loses_nothing(file):
    driver = LedgerDriver(file=file)
    driver.send(payment("a"))
    database = driver.ledger._log._db
    database.execute("PRAGMA max_page_count=1")  # no less than the pages in use
    before = contents(driver)

    def send_many() -> None:
        nonlocal before
        for n in range(1000):
            before = contents(driver)
            driver.send(payment(n, value=1))

    with pytest.raises(ChainError, match="cannot be written: database or disk is full"):
        send_many()
    assert contents(driver) == before
    database.execute("PRAGMA max_page_count=1000000")
    assert driver.send(payment("b", value=1)).succeeded
    after = contents(driver)
    driver.ledger.close()
    assert stored(file) == after
