"""The README is true: its programs run, its tables are current, CI runs its test command."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.house import picture
from x402sim.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_first_program_pays_in_eight_lines() -> None:
    program = blocks("python")[0]
    assert len(program.strip().splitlines()) <= 8
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    assert "'entryPrice'" in run.stdout
    assert "0x" in run.stdout


def test_the_decisions_table_is_current() -> None:
    table = CliRunner().invoke(app, ["decisions", "--markdown"]).stdout
    assert table.count("\n") > 30
    assert table in README, "python -m tests.renew --only decisions"


def test_it_shows_things_in_order() -> None:
    headings = [
        "# x402sim", "## One paid request", "## Two commands", "## Scenarios",
        "## Use it as your local x402 facilitator", "## Judging your own service", "## The map",
        "## Decisions",
    ]  # fmt: skip
    places = [README.index(heading) for heading in headings]
    assert places == sorted(places)


def test_every_folder_on_the_map_exists() -> None:
    the_map = blocks("text")[0]
    names = re.findall(r"^ {0,2}([\w./]+/|[\w]+\.py)(?= )", the_map, re.MULTILINE)
    packages = {file.parent.name + "/" for file in (ROOT / "x402sim").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"(?<!\S)\w+/", the_map))
    for name in names:
        inside = [ROOT / name, ROOT / "x402sim" / name]
        assert any(path.exists() for path in inside), name


def test_every_file_to_start_from_exists() -> None:
    table = README.split("| to add | start in | its test |")[1].split("\n\n")[0]
    paths = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", table)
    assert len(paths) >= 10
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "x402sim" / path).exists(), path


def test_the_scenario_shown_is_the_file_and_its_plot_is_current() -> None:
    shown = blocks("python")[2]
    assert shown == (ROOT / "scenarios" / "replay.py").read_text(encoding="utf-8")
    assert "scenarios/replay.png" in README
    assert picture.drawn_from() == picture.journal_hash(), "python -m tests.renew --only picture"


def test_the_story_in_the_readme_plays() -> None:
    story: dict[str, Any] = {}
    exec(blocks("python")[3], story)
    assert story["run"].outcome == "passed"
    assert len(story["run"].latency) > 5


def test_the_study_in_the_readme_shows_what_it_says() -> None:
    study: dict[str, Any] = {"__name__": "study"}
    exec(blocks("python")[4], study)
    reconcile, forget = (
        study["unserved"](lost=0.3, policy=each, seed=0) for each in ("reconcile", "forget")
    )
    assert reconcile == 0
    assert 0.1 < forget < 0.5


def test_ci_runs_the_line_of_the_readme_and_the_lines_of_contributing() -> None:
    (everyday,) = [line for line in blocks("sh")[1].splitlines() if "pytest" in line]
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    thorough = re.findall(r'^ *(\S+ -m pytest .*-m "thorough .*")$', contributing, re.MULTILINE)
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in commands if "pytest" in line] == [everyday, *thorough]
    assert commands[-2:] == thorough


def test_every_command_has_help_that_teaches() -> None:
    runner = CliRunner()
    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert len(names) >= 10
    for command in names:
        assert f"python -m x402sim {command}" in README
        shown = runner.invoke(app, [command, "--help"])
        assert shown.exit_code == 0
        assert len(shown.stdout) > 200
