"""The database: the files, and the enforced constraints."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import product

import pytest

from x402sim import LocalServer
from x402sim.protocol.routes import QUOTE
from x402sim.service.store import Store
from x402sim.service.store.database import Backoff, Database, after_failure
from x402sim.service.store.file import claimed
from x402sim.service.store.served import IdempotencyKey, StoredResponse


@pytest.mark.parametrize(("vfs", "mode"), [("unix", "wal"), ("unix-dotfile", "delete")])
def test_what_a_file_can_undo_outlives_a_kill(tmp_path, monkeypatch, vfs, mode):
    """Also where the file system has no WAL: it needs memory that processes share."""
    connect = sqlite3.connect
    in_vfs = lambda file, **options: connect(f"file:{file}?vfs={vfs}", uri=True, **options)  # noqa: E731
    monkeypatch.setattr(sqlite3, "connect", in_vfs)
    store = Store(tmp_path / "service.db")
    assert store.one("PRAGMA journal_mode") == (mode,)
    store.close()
    monkeypatch.undo()
    assert Database().one("PRAGMA journal_mode") == ("memory",)


def test_a_kill_while_the_tables_are_created_leaves_a_file_that_opens(tmp_path):
    """The file has all tables and their version, or nothing."""
    execute, codes = Database.execute, set()

    def execute_or_die(self, sql, *values):
        if next(statements, None) is None:
            os._exit(9)
        return execute(self, sql, *values)

    for count in range(0, 40, 6):
        statements = iter(range(count))
        file = tmp_path / f"{count}.db"
        if (child := os.fork()) == 0:
            Database.execute = execute_or_die
            Database(file)
            os._exit(0)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        store = Store(file)
        assert store.counts()["payments"] == 0
        store.close()
    assert codes == {0, 9}


def test_a_file_of_another_version_is_refused_with_what_to_do(tmp_path):
    file = tmp_path / "old.db"
    old = sqlite3.connect(file)
    old.execute("CREATE TABLE payments(payment_id TEXT PRIMARY KEY, authorization_key TEXT)")
    old.commit()
    old.close()
    with pytest.raises(sqlite3.DatabaseError, match=r"version 0.*use a new file"):
        Store(file)
    left = sqlite3.connect(file)
    assert left.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [
        ("payments",)
    ]
    left.close()


def test_one_process_holds_a_file_and_another_is_refused_until_it_ends(tmp_path):
    """Also after a kill; and a program that only reads is not locked out."""
    file = tmp_path / "service.db"
    ready, holds = os.pipe()
    if (child := os.fork()) == 0:
        store = Store(file)
        os.write(holds, b"x")
        signal.pause()
        store.close()
    os.read(ready, 1)
    with pytest.raises(sqlite3.OperationalError, match=r"locked: another service.*another file"):
        Store(file)
    (link := tmp_path / "link.db").symlink_to(file)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        Store(link)
    with closing(sqlite3.connect(file)) as reader:
        assert reader.execute("SELECT count(*) FROM payments").fetchone() == (0,)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with closing(Store(file)), pytest.raises(sqlite3.OperationalError, match="locked"):
        Store(file)
    Store(file).close()


def insert_settled(
    store: Store, number: int, resource: str = "/", block_number: int | None = None
) -> None:
    store.execute(
        "INSERT INTO payments(payment_id, tx_hash, from_address, to_address, amount, "
        "resource_url, state, block_number, timestamp, header, payer, nonce, duration, "
        "is_authorized, nonce_confirmed_unused) "
        "VALUES (?, ?, '', '', '1', ?, 'settled', ?, ?, '', ?, ?, 1, 1, 0)",
        f"pay_{number}", f"0x{number}", resource, block_number, number, b"payer",
        number.to_bytes(32),
    )  # fmt: skip


def steps(store: Store, ask: Callable[[Store], object]) -> int:
    """Return how many steps of SQLite's virtual machine it takes to ask."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    store._connection.set_progress_handler(step, 1)
    answer = ask(store)
    store.close()
    assert answer
    return count


def waiting(rows: int) -> Store:
    """Return a store of deposits: so many unresolved, to be refunded, and about to expire."""
    store = Store()
    for number in range(3 * rows):
        insert_settled(store, number, block_number=1)
    store.execute("UPDATE payments SET state = 'maybe submitted' WHERE attempt <= ?", rows)
    store.execute(
        "INSERT INTO sessions SELECT payment_id, payment_id, '', 5, 0, "
        "iif(attempt % 2, 'active', 'expired'), 0, 0, attempt FROM payments "
        "WHERE attempt BETWEEN ? AND ?",
        rows + 1,
        3 * rows - 1,
    )
    store.execute(
        "INSERT INTO refunds(session_id, to_address, amount, timestamp) "
        "SELECT session_id, 'a', 5, 0 FROM sessions WHERE status = 'expired'"
    )
    return store


def test_what_failed_waits_behind_what_is_new_and_is_looked_at_once_after_a_start():
    """It waits for twice as long each time, from the first wait to the longest."""
    store = waiting(50)
    first, second, third, *_ = (each.number for each in store.payments.pending(0.0, 3))
    store.put_off("payments", {first: Backoff(9.0, 4.0), second: Backoff(8.0, 4.0)})
    due = [each.number for each in store.payments.pending(9.0, 99)]
    assert (due[0], due[-2:], len(due)) == (third, [second, first], 50)
    assert first not in {each.number for each in store.payments.pending(8.9, 99)}
    store.end_waits("payments")
    assert [each.number for each in store.payments.pending(0.0, 2)] == [first, second]
    store.close()
    waits, last_s = [], 0.0
    for _ in range(4):
        last_s = after_failure(last_s, (15, 60), now_s=100).wait_s
        waits.append(last_s)
    assert waits == [15, 30, 60, 60]


# --- names and files ---------------------------------------------------------------------


ODD = [
    (":memory:", "this is SQLite's word for something else; write /.*/:memory: for a file"),
    ("file:x.db", "this is SQLite's word"),
    (".", "this is a folder"),
    ("pipe", "this is something else"),
    ("/dev/null", "this is something else"),
    ("dangling", "there is no folder .*/nowhere"),
    ("loop", "a file is wanted: "),
    ("plain/x.db", "there is no folder plain"),
    ("x\0.db", "null"),
    ("n" * 300, "at most 200 bytes is wanted"),
    ("/proc/x.db", "cannot be made"),
    ("chained", r"chained.chain: .* this is a folder"),
]


@pytest.mark.parametrize(("name", "says"), ODD)
def test_what_is_no_file_is_refused_and_leaves_nothing_behind(tmp_path, monkeypatch, name, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere/x.db")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "chained.chain").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=says):
        LocalServer(file=name).start()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="the limit stands for a full disk")
@pytest.mark.parametrize(
    ("limit", "command", "is_new"),
    [
        (30_000, "serve", True),
        (30_000, "service", False),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in
          product([0, 4096, 30_000], ["serve", "service"], [True, False])),
    ],
)  # fmt: skip
def test_a_disk_that_is_full_at_the_start_is_told_in_one_line(tmp_path, command, limit, is_new):
    """Nothing is left behind, and a file that was there before stays as it was."""
    db = tmp_path / "world.db"
    if not is_new:
        with LocalServer(file=db, seed=0):
            """It makes the files."""
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    world = {"PRIVATE_KEY": "0x" + "11" * 32}
    world |= {f"{name}_URL": "http://127.0.0.1:1" for name in ("FACILITATOR", "EXPLORER", "RPC")}
    limited = subprocess.run(
        [sys.executable, "-m", "x402sim", command, "--port", "0", "--db", db],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | world | {"PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (limited.returncode, limited.stdout) == (2, ""), limited
    assert limited.stderr.startswith(f"x402sim: cannot use the database {db}: ")
    assert (limited.stderr.count("\n"), "give another --db" in limited.stderr) == (1, True)
    after = {each: each.read_bytes() for each in tmp_path.iterdir()}
    own_of_sqlite = {each for each in after if each.name.endswith(("-shm", "-wal"))}
    assert {each: after[each] for each in after if each in before} == before
    assert set(after) - set(before) <= (set() if is_new else own_of_sqlite)


def test_what_a_failed_start_made_goes_and_what_was_there_stays(tmp_path):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    Store(old).close()
    stood = sorted(tmp_path.iterdir())
    for file in (old, new):
        with pytest.raises(ZeroDivisionError), claimed(file), closing(Store(file)):
            assert 1 // 0, "what is opened after it fails"
        assert sorted(tmp_path.iterdir()) == stood
    with pytest.raises(sqlite3.OperationalError), claimed(new):
        raise sqlite3.OperationalError("database is locked")
    assert new.exists(), "another process uses it"


def test_an_answer_that_is_stored_counts_as_served_whatever_ends_the_process() -> None:
    with closing(Store()) as store:
        key = IdempotencyKey("pay_0123456789abcdef", b"digest")
        assert store.served.reserve(key, "pay_1", until_s=300, now_s=0)
        store.served.keep(key, StoredResponse([], b"quote"), ("pay_1", QUOTE), until_s=300)
        assert store.served.is_marked("pay_1")
