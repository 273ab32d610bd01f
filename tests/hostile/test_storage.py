"""A disk that is full, a database that is locked: 503, nothing lost, and sending again recovers."""

import asyncio
import logging
import resource
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.rig import ServiceRig, scene
from tests.serve.driver import PAY, started
from x402sim.service import background, indexer, sessions
from x402sim.service.reconcile import reconcile
from x402sim.service.state import Service
from x402sim.service.store.database import Database, _Transaction

UNAVAILABLE = (503, "Storage unavailable")
WRITES = ("INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT")
UNLIMITED = resource.RLIM_INFINITY


class FailingDisk:
    """A connection, and its cursor, whose write number `at` fails as on a full disk."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._connection, self._at, self._writes = connection, at, 0
        self.failed: str | None = None

    @property
    def connection(self) -> "FailingDisk":
        return self

    def cursor(self) -> "FailingDisk":
        return self

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        if sql.startswith(WRITES):
            self._writes += 1
            if self._at == self._writes:
                self.failed = sql
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
        return self._connection.execute(sql, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "service.db"


def brief(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


async def answered(send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """Send a request; if storage fails, send it again: once must do."""
    response = await send()
    if response.status_code == 503:
        assert brief(response) == UNAVAILABLE
        assert response.json()["reason"] == "database or disk is full"
        response = await send()
    assert response.status_code == 200
    return response


def use(store: Database, connection: Any) -> None:
    store._connection, store._writer = connection, connection.cursor()
    store._transaction = _Transaction(store._writer)


async def worked(work: Callable[[Service], Awaitable[Any]], service: Service) -> None:
    """Run a background job; if storage fails, run it again: once must do."""
    try:
        await work(service)
    except sqlite3.OperationalError:
        await work(service)


@scene
async def a_life(rig: ServiceRig, db: Path, at: int, failed: list[str]) -> None:
    """A payment, a session that is spent once, its refund, and the indexer, with one write failing."""
    database = rig.service.store
    disk = FailingDisk(database._connection, at)
    use(database, disk)
    required, deposit = await rig.ask(), await rig.ask_session("0.05", 600)
    header = rig.sign(required)
    await answered(lambda: rig.pay(required, header))
    assert (await rig.ask(x_payment_id=required.json()["paymentId"])).status_code == 200
    header = rig.sign(deposit)
    await answered(lambda: rig.pay(deposit, header))
    created = await rig.ask_session("0.05", 600, x_payment_id=deposit.json()["paymentId"])
    session_id = created.json()["sessionId"]
    for released in ("10000", "20000"):
        await answered(lambda: rig.ask(x_session_id=session_id))
        shown = await rig.http.get(f"/api/sessions/{session_id}")
        assert shown.json()["released"] == released
    rig.now[0] += 700
    for work in (indexer.run, reconcile, sessions.expire, sessions.expire):
        await worked(work, rig.service)
    shown = await rig.http.get(f"/api/sessions/{session_id}")
    assert shown.json()["status"] == "refunded"
    for paid in (required, deposit):
        record = await rig.record(paid.json()["paymentId"])
        assert (record["status"], type(record["block_number"])) == ("settled", int)
    assert (rig.transfers(rig.alice), rig.transfers()) == (2, 3)  # one is the refund
    assert not database._connection.in_transaction
    failed += [disk.failed] if disk.failed else []


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_disk_is_full_at_any_one_write(tmp_path: Path, step: int) -> None:
    """Each write of a whole life fails in turn; sending or running again always recovers."""
    failed: list[str] = []
    for count, at in enumerate(range(1, 200, step)):
        if len(failed) == count:  # the life before had as many writes
            a_life(db=tmp_path / f"{at}.db", at=at, failed=failed)
    assert len(failed) * step >= 15
    assert "COMMIT" in failed


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lock the database from another connection."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield
    other.execute("ROLLBACK")
    other.close()


@scene
async def test_every_route_that_writes_is_503_and_recovers(rig: ServiceRig, db: Path) -> None:
    session_id = (await rig.open_session())["sessionId"]
    required = await rig.ask()
    header = rig.sign(required)
    with locked(db):
        refused = await rig.pay(required, header)
        assert brief(refused) == UNAVAILABLE
        assert refused.json()["reason"] == "database is locked"
        assert refused.json()["final"] is False
        assert (await rig.http.get("/healthz")).status_code == 200
        assert (await rig.ask()).status_code == 402
        assert brief(await rig.ask(x_session_id=session_id)) == UNAVAILABLE
        shown = await rig.http.get(f"/api/sessions/{session_id}")
        assert shown.json()["released"] == "0"
    assert rig.transfers(rig.alice) == 1  # the deposit
    assert (await rig.pay(required, header)).status_code == 200
    assert (await rig.ask(x_payment_id=required.json()["paymentId"])).status_code == 200
    assert (await rig.ask(x_session_id=session_id)).status_code == 200
    assert rig.transfers(rig.alice) == 2


def test_a_transaction_that_fills_the_disk_is_undone_whole():
    """SQLite rolls it back by itself; the error is the first one, and the next one works."""
    database = Database()
    database.execute("PRAGMA max_page_count = 30")
    with pytest.raises(sqlite3.OperationalError, match="full"), database.transaction():  # noqa: PT012
        database.execute("INSERT INTO secrets VALUES ('small', 'x')")
        database.execute("INSERT INTO secrets VALUES ('large', zeroblob(1000000))")
    with database.transaction():
        database.execute("INSERT INTO secrets VALUES ('next', 'x')")
    assert database.execute("SELECT name FROM secrets").fetchall() == [("next",)]
    database.close()


@scene
async def test_a_restore_of_a_locked_database_ends(rig: ServiceRig, db: Path) -> None:
    copy = rig.service.store.copy()
    with locked(db), pytest.raises(sqlite3.OperationalError, match="locked"):
        rig.service.store.restore(copy)
    rig.service.store.restore(copy)
    copy.close()


@scene
async def test_a_defect_in_sql_is_no_failure_of_the_storage(
    rig: ServiceRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.service.store.execute("DROP TABLE payments")
    answer = await rig.http.get("/api/payments/pay_x")
    assert brief(answer) == (500, "Internal server error")
    assert "no such table" in caplog.text


# --- the background ------------------------------------------------------------------


@scene
async def test_the_background_work_lives_on_and_logs_a_cause_once(
    rig: ServiceRig, db: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def turns(count: int) -> None:
        for _ in range(count):
            rig.now[0] += 10
            await asyncio.sleep(0.001)
        assert not work.done()

    caplog.set_level(logging.WARNING)
    rig.service.store.execute("PRAGMA busy_timeout = 5")
    await rig.open_session("0.05", 60)
    rig.clock.sleep_until = lambda until_s: _slept(rig, until_s)  # type: ignore[method-assign]
    work = asyncio.create_task(background.run_background(rig.service))
    with locked(db):
        await turns(12)
    await turns(60)
    work.cancel()
    await asyncio.wait({work})
    assert rig.transfers() == 2  # the deposit and its refund
    lines = [each for each in caplog.records if "database is locked" in each.getMessage()]
    assert len(lines) == 1
    assert lines[0].exc_info is None or lines[0].exc_info == (None, None, None)


async def _slept(rig: ServiceRig, until_s: float) -> None:
    while rig.now[0] < until_s:
        await asyncio.sleep(0)


# --- a whole process -----------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is of Linux")
def test_a_server_whose_disk_is_full_answers_503_and_recovers(tmp_path):
    with started("--db", str(tmp_path / "world.db")) as server:
        payer = server.payer()
        asked = payer.ask()
        body = payer.settlement(asked)
        height = server.state()["chain"]["height"]
        _limit_files(server.process.pid, 4096)
        for _ in range(2):  # the second over the same connection
            refused = server.http.post(PAY, json=body)
            assert brief(refused) == UNAVAILABLE
        for path in ("mine", "snapshot", "faucet", "reset"):
            sent = {"address": payer.address} if path == "faucet" else {}
            assert server.http.post(f"/_sim/{path}", json=sent).status_code == 503
        assert server.state()["chain"]["height"] == height
        _limit_files(server.process.pid, UNLIMITED)
        assert server.http.post(PAY, json=body).status_code == 200
        assert payer.transfers == 1
        assert payer.quote(asked["paymentId"]).status_code == 200
        height = server.state()["chain"]["height"]
    with started("--db", str(tmp_path / "world.db")) as server:
        assert server.state()["chain"]["height"] == height


def _limit_files(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))
