"""`sweep`: it plays an experiment in a file, prints the summary, and says how to play on."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import Result

from tests.cli import runner
from tests.cli.runner import assert_misuse

STUDY = """
import helper

def delay(rate, seed, mode="plain"):
    if rate == 2 and seed in (3, 5):
        raise ValueError("no rate 2")
    return {"x": helper.FACTOR * rate + seed, "ok": seed % 2 == 0, "mode_was": mode}

def number(seed):
    return seed

def word(seed):
    return {"said": "yes"}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("FACTOR = 10\n")
    file = tmp_path / "study.py"
    file.write_text(STUDY)
    return file


def run(*arguments: object) -> Result:
    return runner.run("sweep", *arguments, "--workers", "0")


def test_it_prints_means_with_intervals(study: Path) -> None:
    done = run(f"{study}:delay", "--set", "rate=1,4", "--set", "mode=fast", "--seeds", 5)
    assert done.exit_code == 0, done.output
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["rate", "mode", "result", "seeds", "failed", "mean", "low", "high"]
    assert [row[:6] for row in rows] == [
        ["1", "fast", "x", "5", "0", "12"], ["1", "fast", "ok", "5", "0", "0.6"],
        ["4", "fast", "x", "5", "0", "42"], ["4", "fast", "ok", "5", "0", "0.6"],
    ]  # fmt: skip
    assert all(float(row[6]) < float(row[5]) < float(row[7]) for row in rows)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_value_that_is_no_json_is_a_text_however_deep(study: Path) -> None:
    done = run(f"{study}:delay", "--set", "rate=1", "--set", "mode=" + "[" * 9_000, "--seeds", 1)
    assert done.exit_code == 0, done.output


def test_a_failure_is_told_with_the_line_that_replays_it(study: Path) -> None:
    done = run(f"{study}:delay", "--set", "rate=1,2", "--seeds", 6)
    assert done.exit_code == 1
    assert "2 points failed" in done.stderr
    assert "study.py:6 in delay: raise ValueError" in done.stderr
    assert "x402sim/experiments" not in done.stderr
    line = next(line for line in done.stderr.splitlines() if "replay: " in line)
    command = shlex.split(line.partition("replay: ")[2])
    assert command[-6:] == ["--set", "rate=2", "--seeds", "3:", "--workers", "0"]
    again = run(*command[command.index("sweep") + 1 : -2])
    assert again.exit_code == 1
    assert "the only point failed" in again.stderr


def test_a_folder_keeps_the_rows_of_all_calls_and_is_resumed(study: Path, tmp_path: Path) -> None:
    """Fewer values or seeds than before: the files have all that is in the folder, in any order."""
    out = tmp_path / "out"
    call = (f"{study}:delay", "--out", out, "--set")
    assert run(*call, "rate=1,2", "--seeds", 6).exit_code == 1
    rows = pd.read_parquet(out / "results.parquet")
    assert len(rows) == 12
    assert rows["error"].notna().sum() == 2
    assert rows["ok"].dropna().isin([True, False]).all()
    done = run(*call, "rate=1", "--seeds", 8)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 3, "the table has what was asked for"
    assert "14 points of all sweeps" in done.stderr
    rows, summary = pd.read_parquet(out / "results.parquet"), pd.read_csv(out / "summary.csv")
    points = [(1, seed) for seed in range(8)] + [(2, seed) for seed in range(6)]
    assert list(zip(rows["rate"], rows["seed"], strict=True)) == points
    assert summary[["rate", "result", "seeds", "failed"]].values.tolist() == [
        [1, "x", 8, 0], [1, "ok", 8, 0], [2, "x", 4, 2], [2, "ok", 4, 2],
    ]  # fmt: skip
    run(*call, "rate=0.5", "--seeds", "3:")
    rows = pd.read_parquet(out / "results.parquet")
    assert list(zip(rows["rate"], rows["seed"], strict=True)) == [(0.5, 3), *points]
    study.write_text(STUDY.replace("rate == 2", "rate == 3"))
    changed = run(*call, "rate=1", "--seeds", 8)
    assert changed.exit_code == 2
    assert "results of another sweep (the code of delay has changed): give" in changed.stderr


def test_if_every_point_fails_the_table_is_missing_and_the_errors_are_said(study: Path) -> None:
    done = run(f"{study}:delay", "--set", "rate=2", "--seeds", "3:")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("x402sim: the only point failed:\n")
    study.write_text(STUDY.replace("seed in (3, 5)", "seed >= 0"))
    done = run(f"{study}:delay", "--set", "rate=2", "--seeds", 3)
    assert done.stderr.startswith("x402sim: all 3 points failed. The first one:\n")
    assert "no summary" not in done.stderr


def test_an_interval_needs_two_seeds_and_the_command_says_so(study: Path) -> None:
    done = run(f"{study}:number", "--seeds", "7:")
    assert done.stdout.splitlines()[1].split() == ["value", "1", "0", "7", "-", "-"]
    assert done.stderr == "x402sim: '-' means no interval: it needs two seeds\n"
    done = run(f"{study}:number", "--seeds", "10:14", "--json")
    found = json.loads(done.stdout)
    assert found["points"] == 4
    assert found["summary"][0] | {"mean": 11.5, "seeds": 4, "failed": 0} == found["summary"][0]


def test_results_without_numbers_are_told_what_to_return(study: Path) -> None:
    done = run(f"{study}:word", "--seeds", "2")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "return a number, or a dict or frame of numbers. --out DIR keeps" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (":dely", "unknown function 'dely'; did you mean 'delay'? Possible: delay, number, word"),
        ("", "FILE.py:FUNCTION is needed"),
        (":delay --set rate", "KEY=A,B,C is needed, not 'rate'"),
        (":delay --set ratte=1", "did you mean 'rate'"),
        (":number --seeds many", "--seeds: N from 1 on, A:B with"),
        (":delay --set rate=", "KEY=A,B,C is needed, not 'rate='"),
        (":number --seeds 0", "A:B with A below B, or A: is needed, not '0'"),
        (":number --seeds 5:2", "is needed, not '5:2'"),
        (":number --out {study}", "is a file"),
    ],
)
def test_wrong_usage_is_said_in_one_line(study: Path, options: str, says: str) -> None:
    assert_misuse(run(*f"{study}{options.format(study=study)}".split()), says)
