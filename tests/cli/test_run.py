"""`run`: what it plays, what it says of it, to people and to programs, and how it gives up."""

import hashlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.cli import stories
from tests.serve.driver import command, environment
from x402sim import LocalServer, World
from x402sim.cli import app
from x402sim.world.server import server as world_server

HASH = re.compile("[0-9a-f]{64}")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", *arguments])


def result(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("run", *arguments), capture_output=True, text=True, check=False, env=environment()
    )


def assert_gives_up(done: Result, *says: str) -> None:
    """It said in one line on stderr why, on stdout nothing, and left with 2."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("x402sim: ")
    for text in says:
        assert text in done.stderr


# --- for people ----------------------------------------------------------------------


def test_a_scenario_is_a_row_and_the_exit_code_says_that_all_held() -> None:
    done = run("replay", "lost_answer")
    assert done.exit_code == 0
    titles, first, second, blank, total, hashed = done.stdout.splitlines()
    assert titles.split() == [
        "scenario", "outcome", "checks", "steps", "virtual", "time", "real", "time",
    ]  # fmt: skip
    played = World(seed=0).play("replay")
    checks = f"{len(played.checked)}/{len(played.checked)}"
    assert first.split()[:3] == ["replay", "passed", checks]
    assert second.split()[:2] == ["lost_answer", "passed"]
    assert blank == ""
    assert total.startswith("2 passed in ")
    assert total.endswith(" with seed 0")
    assert HASH.search(hashed)


def test_virtual_time_is_the_worlds_and_steps_are_the_payers_requests(tmp_path: Path) -> None:
    later = stories.HOLDS + "    await world.advance(90_061)\n"
    done = run(stories.write(tmp_path, later))
    row = done.stdout.splitlines()[1]
    assert "  1 d 01 h  " in row
    assert row.split()[3] == "2"


def test_without_a_name_everything_is_played() -> None:
    names = [
        each["name"] for each in json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    ]
    done = run()
    rows = [line.split()[0] for line in done.stdout.splitlines()[1 : len(names) + 1]]
    assert rows == names, done.stdout


def test_a_failing_check_tells_clause_expected_actual_trace_and_command(tmp_path: Path) -> None:
    file = stories.write(tmp_path, stories.FAILS)
    done = run(file, "replay", "--seed", "7")
    assert done.exit_code == 1
    told = done.stdout[done.stdout.index("FAILED") :]
    for text in (
        "FAILED mine: mine: of my own",
        "2 of 3 checks did not hold",
        "5/nonce-once: A nonce of a payer is used once, which prevents replay and",
        "expected  2\n",
        "actual    1\n",
        "expected  20000\n",
        "actual    10000\n",
        "POST /api/pay",
        "service → facilitator    settle",
        "0.01 alice → merchant",
        "service ✗ facilitator    connection lost",
        "alice ← service          200",
        f"run again: python -m x402sim run {shlex.quote(file)} --on in-process --seed 7",
        "1 passed, 1 failed",
    ):
        assert text in told, told
    assert told.count("/api/pay") == 1, "the second check is about the same exchange"
    assert "4.1/receipt" not in told, "this check held"
    assert " 402 " not in told, "the first request is not what the checks are about"


def test_the_command_plays_the_same_again(tmp_path: Path) -> None:
    folder = tmp_path / "my own"
    folder.mkdir()
    done = run(stories.write(folder, stories.FAILS), "--seed", "3")
    (again,) = re.findall("run again: (.+)", done.stdout)
    arguments = shlex.split(again)[3:]
    assert arguments[0] == "run"
    second = process(*arguments[1:])
    assert second.returncode == 1
    pattern = "journal sha256 " + HASH.pattern
    assert re.findall(pattern, second.stdout) == re.findall(pattern, done.stdout) != []


def test_a_story_that_raises_shows_where(tmp_path: Path) -> None:
    done = run(stories.write(tmp_path, stories.RAISES))
    assert done.exit_code == 1
    assert "KeyError: 'what the story had forgotten'" in done.stdout
    assert 'mine: raise KeyError("what the story had forgotten")' in done.stdout
    assert "Traceback" not in done.output


def test_many_failures_are_told_in_part_and_counted(tmp_path: Path) -> None:
    body = stories.HOLDS + "    for n in range(9): world.expect(n, -1, '5/nonce-once')\n"
    done = run(stories.write(tmp_path, body))
    assert done.stdout.count("expected  -1") == 5
    assert "and 4 more" in done.stdout


def test_it_reads_at_80_columns(tmp_path: Path) -> None:
    long = "mine_" + 50 * "x"
    body = stories.FAILS + "    world.expect('y' * 300, ['z' * 300], '5/nonce-once')\n"
    done = run(stories.write(tmp_path, body, long), "cache_eviction")
    assert done.exit_code == 1
    for line in done.stdout.splitlines():
        assert len(line) <= 80 or line.startswith("  run again: "), line


def test_by_default_it_plays_on_after_a_failure(tmp_path: Path) -> None:
    failing = stories.write(tmp_path, stories.FAILS)
    assert "1 passed, 1 failed" in run(failing, "replay").stdout
    stopped = run(failing, "replay", "--no-keep-going")
    assert stopped.exit_code == 1
    assert "\nreplay" not in stopped.stdout


# --- for programs --------------------------------------------------------------------


def test_json_is_exactly_what_is_promised(tmp_path: Path) -> None:
    done = run("replay", stories.write(tmp_path, stories.FAILS), "--json", "--seed", "5")
    assert done.exit_code == 1
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert list(found) == ["seed", "journal_sha256", "scenarios"]
    assert found["seed"] == 5
    for each in found["scenarios"]:
        assert list(each) == ["name", "outcome", "reason", "steps", "journal_sha256", "checks"]
        assert type(each["steps"]) is int
        for check in each["checks"]:
            assert list(check) == ["clause", "ok", "expected", "actual"]
            assert type(check["ok"]) is bool
    passed, failed = found["scenarios"]
    assert (passed["name"], passed["outcome"], passed["reason"]) == ("replay", "passed", "")
    assert all(check["ok"] for check in passed["checks"])
    assert (failed["name"], failed["outcome"]) == ("mine", "failed")
    assert failed["reason"] == "2 of 3 checks did not hold"
    assert failed["checks"][1] == {
        "clause": "5/nonce-once", "ok": False, "expected": 2, "actual": 1,
    }  # fmt: skip


def test_the_hashes_are_the_journals_and_one_of_them_all() -> None:
    found = result("replay", "lost_answer", "--seed", "2")
    hashes = [each["journal_sha256"] for each in found["scenarios"]]
    assert hashes == [World(seed=2).play(name).sha256 for name in ("replay", "lost_answer")]
    in_order = "".join(f"{each}\n" for each in hashes).encode()
    assert found["journal_sha256"] == hashlib.sha256(in_order).hexdigest()
    turned = result("lost_answer", "replay", "--seed", "2")
    assert turned["journal_sha256"] != found["journal_sha256"]


def test_the_seed_alone_decides() -> None:
    assert result("replay") == result("replay", "--seed", "0") != result("replay", "--seed", "1")


def test_tcp_and_another_process_come_to_the_same() -> None:
    here = result("replay", "lost_answer")
    assert result("replay", "lost_answer", "--on", "tcp") == here
    there = process("replay", "lost_answer", "--json")
    assert json.loads(there.stdout) == here
    assert there.stderr == ""


# --- against a service that runs -----------------------------------------------------


def test_a_url_is_played_on_and_what_it_cannot_offer_is_skipped() -> None:
    with LocalServer(seed=1) as server:
        url = server.url
        done = run("replay", "stuck_transaction", "late_settlement", "--on", url)
        found = result("late_settlement", "replay", "--on", url)
    assert done.exit_code == 0, done.output
    assert "2 passed, 1 skipped" in done.stdout
    assert f"skipped, because {url} does not offer virtual time:\n  late_settlement" in done.stdout
    assert [each["outcome"] for each in found["scenarios"]] == ["skipped", "passed"]
    assert found["scenarios"][0]["reason"] == f"{url} does not offer virtual time"
    assert found["scenarios"][0]["checks"] == []


def test_if_nothing_can_be_played_it_is_not_called_success() -> None:
    with LocalServer() as server:
        done = run("late_settlement", "--on", server.url, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["scenarios"][0]["outcome"] == "skipped"
    assert "nothing was played" in done.stderr


def test_a_service_without_control_is_asked_what_a_stranger_may(monkeypatch: Any) -> None:
    monkeypatch.setattr(world_server.Listen, "has_control", False)
    with LocalServer() as server:
        done = run("unpaid_request", "replay", "--on", server.url)
    assert done.exit_code == 0, done.output
    assert "1 passed, 1 skipped" in done.stdout
    assert "does not offer a payer with money" in done.stdout


# --- giving up -----------------------------------------------------------------------


def test_an_unknown_name() -> None:
    assert_gives_up(run("replai"), "unknown scenario 'replai'", "did you mean 'replay'?", "`list`")
    assert_gives_up(run("qqqq"), "unknown scenario 'qqqq'", "ends in .py", "`list`")
    assert_gives_up(run("replay", "nowhere.py"), "no such file: nowhere.py")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import nothing_of_the_kind", "No module named 'nothing_of_the_kind'"),
        ("x = 1", "has 0 scenarios"),
        ("1 / 0", "ZeroDivisionError"),
        (
            '"""No docstring of the form."""\nfrom x402sim import scenario\n'
            "@scenario\nasync def mine(world): ...",
            "Covers: CLAUSE",
        ),
    ],
)
def test_a_file_that_is_no_scenario(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert_gives_up(run(str(file)), f"cannot load {file}", says)


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("moon", "a stage is in-process, tcp, or a URL, not 'moon'"),
        ("http://127.0.0.1:1", "nobody answers at http://127.0.0.1:1"),
        ("http://127.0.0.1:99999", "with a port up to 65535"),
        ("http://", "expected http://HOST:PORT"),
    ],
)
def test_a_stage_that_is_not_there(on: str, says: str) -> None:
    assert_gives_up(run("replay", "--on", on), "--on", says)
    assert_gives_up(run("replay", "--on", on, "--json"), says)


def test_a_place_for_reports_that_cannot_be_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert_gives_up(run("replay", "--out", str(file)), "--out", "cannot write", "File exists")


def test_reports_without_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    out = tmp_path / "out"
    done = run("replay", "--out", str(out))
    assert_gives_up(done, "--out", "pandas", "pip install 'x402sim[report]'")
    assert not out.exists()


def test_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    file = stories.write(tmp_path, stories.NEVER_ENDS)
    with subprocess.Popen(
        command("run", file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
        assert "Traceback" not in running.stderr.read()


# --- reports and the bar -------------------------------------------------------------


def test_out_writes_a_report_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    done = run("replay", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"report {out / 'report.html'}"
    assert "Alice pays for a quote" in (out / "report.html").read_text(encoding="utf-8")
    journal = (out / "replay" / "journal.ndjson").read_bytes()
    assert hashlib.sha256(journal).hexdigest() == World(seed=0).play("replay").sha256


def test_in_a_pipe_there_is_no_bar_and_no_colour() -> None:
    done = process("replay")
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_the_bar_is_on_stderr_alone() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("run", "replay", "lost_answer"), stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as running:
        os.close(theirs)
        out, _ = running.communicate(timeout=60)
    seen = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "1 of 2: replay" in seen
    assert "2 of 2: lost_answer" in seen
    assert "\x1b" not in out
    assert len(out.splitlines()) == 6
