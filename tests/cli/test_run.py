"""`run`: what it plays, what it prints (text and JSON), and misuse."""

import hashlib
import json
import re
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli import runner, stories
from tests.cli.runner import assert_misuse
from tests.serve.driver import Running
from x402sim import LocalServer, World
from x402sim.commands import run as playing
from x402sim.report.reading import checks_of
from x402sim.text.program import shown

run = partial(runner.run, "run")


def result(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- text ----------------------------------------------------------------------


def test_each_scenario_is_a_row_and_exit_code_0_means_all_held(tmp_path: Path) -> None:
    later = stories.write(tmp_path, stories.HOLDS + "    await world.advance(90_061)\n")
    done = run("replay", later)
    assert done.exit_code == 0
    titles, first, second, blank, total, hashed = done.stdout.splitlines()
    assert titles.split() == [
        "scenario", "outcome", "checks", "steps", "virtual", "time", "real", "time",
    ]  # fmt: skip
    played = World(seed=0).play("replay")
    checks = f"{len(checks_of(played.journal))}/{len(checks_of(played.journal))}"
    assert first.split()[:3] == ["replay", "passed", checks]
    assert second.split()[:2] == ["mine", "passed"]
    assert second.split()[3] == "2"
    assert "  1 d 1 h  " in second
    assert blank == ""
    assert total.startswith("2 passed in ")
    assert total.endswith(" with seed 0")
    assert re.search("[0-9a-f]{64}", hashed)


def test_a_failed_check_shows_clause_expected_actual_trace_and_command(tmp_path: Path) -> None:
    folder = tmp_path / "my own"
    folder.mkdir()
    file = stories.write(folder, stories.FAILS)
    done = run(file, "replay", "--seed", "7")
    assert done.exit_code == 1
    told = done.stdout[done.stdout.index("FAILED") :]
    for text in (
        "FAILED mine: mine: of my own",
        "2 of 3 checks did not hold",
        "5/nonce-once: Each nonce of a payer is used once, which prevents replay and",
        "expected  2\n",
        "actual    1\n",
        "expected  20000\n",
        "actual    10000\n",
        "POST /api/pay",
        "service → facilitator    settle",
        "0.01 alice → merchant",
        "service ✗ facilitator    connection lost",
        "alice ← service          200",
        f"run it again: {shown()} run {shlex.quote(file)} --on in-process --seed 7",
        "1 passed, 1 failed",
    ):
        assert text in told, told
    assert told.count("/api/pay") == 1, "the second check is about the same exchange"
    assert "4.1/receipt" not in told, "this check held"
    assert " 402 " not in told, "the first request is not what the checks are about"


def test_a_scenario_that_raises_shows_the_line(tmp_path: Path) -> None:
    done = run(stories.write(tmp_path, stories.RAISES))
    assert done.exit_code == 1
    assert "KeyError: 'the scenario raised this'" in done.stdout
    assert 'mine: raise KeyError("the scenario raised this")' in done.stdout
    assert "Traceback" not in done.output
    body = stories.HOLDS + "    for n in range(9): world.expect(n, -1, '5/nonce-once')\n"
    done = run(stories.write(tmp_path, body))
    assert done.stdout.count("expected  -1") == playing.MAX_CHECKS
    assert f"and {9 - playing.MAX_CHECKS} more" in done.stdout


def test_a_scenario_without_a_check_has_shown_nothing(tmp_path: Path) -> None:
    """It said "passed 0/0", and exit code 0, as if all had held."""
    file = tmp_path / "mine.py"
    file.write_text(
        "async def look(world):\n    alice = await world.payer('alice', balance='1.00')\n"
        "    await alice.buy()\n"
    )
    done = run(f"{file}:look", "replay")
    assert done.exit_code == 1
    _, mine, replay = done.stdout.splitlines()[:3]
    assert mine.split()[:4] == ["look", "no", "checks", "2"]
    assert len(replay.rstrip()) == len(mine.rstrip()), "the columns stay"
    assert "no checks, which proves nothing:" in done.stdout
    assert "1 passed, 1 with no checks in" in done.stdout
    assert run(f"{file}:look", "--json").exit_code == 1


# --- JSON --------------------------------------------------------------------


def test_json_has_the_documented_form(tmp_path: Path) -> None:
    done = run("replay", stories.write(tmp_path, stories.FAILS), "--json", "--seed", "5")
    assert done.exit_code == 1
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert list(found) == ["seed", "combined_sha256", "clock_ahead_s", "scenarios"]
    assert found["clock_ahead_s"] == 0
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


def test_combined_sha256_is_the_hash_of_the_journals_hashes() -> None:
    found = result("replay", "lost_answer", "--seed", "2")
    hashes = [each["journal_sha256"] for each in found["scenarios"]]
    assert hashes == [World(seed=2).play(name).sha256 for name in ("replay", "lost_answer")]
    in_order = "".join(f"{each}\n" for each in hashes).encode()
    assert found["combined_sha256"] == hashlib.sha256(in_order).hexdigest()
    turned = result("lost_answer", "replay", "--seed", "2")
    assert turned["combined_sha256"] != found["combined_sha256"]


# --- against a service that runs -----------------------------------------------------


@pytest.mark.thorough
def test_on_a_url_scenarios_with_missing_needs_are_skipped() -> None:
    with LocalServer(seed=1) as server:
        url = server.url
        done = run("replay", "stuck_transaction", "late_settlement", "--on", url)
        found = result("late_settlement", "replay", "--on", url)
        nothing = run("late_settlement", "--on", url, "--json")
        elsewhere = run("replay", "--on", url, "--network", "base-sepolia")
    assert_misuse(elsewhere, "--network: ", "is on cronos-testnet, not on base-sepolia; leave")
    assert nothing.exit_code == 2
    assert json.loads(nothing.stdout)["scenarios"][0]["outcome"] == "skipped"
    assert "nothing was played" in nothing.stderr
    assert done.exit_code == 0, done.output
    assert "2 passed, 1 skipped" in done.stdout
    assert f"skipped, because {url} does not offer virtual time:\n  late_settlement" in done.stdout
    assert [each["outcome"] for each in found["scenarios"]] == ["skipped", "passed"]
    assert found["scenarios"][0]["reason"] == f"{url} does not offer virtual time"
    assert found["scenarios"][0]["checks"] == []


def test_a_server_whose_clock_is_left_ahead_is_told_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever pays there later, with a right clock, is refused."""
    with LocalServer() as server:
        assert run("replay", "--on", server.url).stderr == ""
        done = run("session_exhaustion", "replay", "--on", server.url, "--json")
        ahead_s = json.loads(done.stdout)["clock_ahead_s"]
        assert ahead_s == pytest.approx(server.clock.offset_s, abs=5)
        assert ahead_s > 300
        told = f"the clock of {server.url} is left {ahead_s:.0f} s ahead of real time"
        assert done.exit_code == 0
        assert told in done.stderr
        assert 'POST {"clock": true} to /_sim/reset' in done.stderr
        late = World(on=server.url).play("session_exhaustion")
        assert f"is left {late.ahead_s:.0f} s ahead" in caplog.text
        assert late.ahead_s == pytest.approx(2 * ahead_s, abs=5)


# --- misuse -----------------------------------------------------------------------


def test_a_file_without_a_valid_scenario(tmp_path: Path) -> None:
    given = 'title="Mine", covers="2.1/asset, 5/window"'
    good = f"from x402sim import scenario\n@scenario({given})\nasync def mine(world): ..."
    for text, says in (
        ("def f(:", "cannot load {file}: SyntaxError: invalid syntax"),
        ("import nothing_of_the_kind", "No module named 'nothing_of_the_kind'"),
        ("1 / 0", "cannot load {file}: ZeroDivisionError"),
        ("x = 1", "x402sim: {file} has 0 scenarios; a file has exactly one, or name a function"),
        (
            good.replace(given, 'title="Mine"'),
            "{file}: TypeError: scenario() missing 1 required keyword-only argument: 'covers'",
        ),
        (
            good.replace("5/window", "9/no"),
            "x402sim: {file}: scenario mine: unknown clause '9/no'",
        ),
        (
            good.replace('w"', 'w", needs="money"'),
            "x402sim: {file}: scenario mine: unknown need 'money'",
        ),
        (f"{good}\nother = mine", "{file} has 2 scenarios; a file has"),
        ("async def story(world): ...", "or name a function: {file}:story"),
    ):
        file = tmp_path / "mine.py"
        file.write_text(text)
        assert_misuse(run(str(file)), says.format(file=file))


def test_an_unknown_function_is_told_once_with_the_files_own_stories(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    imported = "from asyncio import open_connection\nfrom x402sim import scenario\n"
    file.write_text(f"{imported}async def story(world): ...\ndef decorator(f): return f\n")
    for command_ in ("run", "list"):
        done = runner.run(command_, f"{file}:storyy")
        said = f"{file}: unknown function 'storyy'; did you mean 'story'? Possible: story"
        assert (done.exit_code, done.stderr) == (2, f"x402sim: {said}\n")


def test_reports_without_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    out = tmp_path / "out"
    done = run("replay", "--out", str(out))
    assert_misuse(done, "--out", "pandas", "pip install 'x402sim[report]'")
    assert not out.exists()


def test_ctrl_c_stops_it_at_once(tmp_path: Path) -> None:
    file = stories.write(tmp_path, stories.NEVER_ENDS)
    with Running("run", file) as running:
        assert running.line() == "begun\n"
        assert running.end(signal.SIGINT) == 130
        assert "Traceback" not in running.errors()


# --- reports and the bar -------------------------------------------------------------


def test_out_writes_a_report_and_prints_its_path(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    done = run("replay", "--on", "tcp", "--out", str(out))
    assert done.exit_code == 0
    assert done.stderr == "", "no bar"
    assert done.stdout.splitlines()[-1] == f"report {out / 'report.html'}"
    assert "Alice pays for a quote" in (out / "report.html").read_text(encoding="utf-8")
    journal = (out / "replay" / "journal.ndjson").read_bytes()
    assert hashlib.sha256(journal).hexdigest() == World(seed=0).play("replay").sha256
