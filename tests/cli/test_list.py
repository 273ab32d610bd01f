"""`list`: what there is to play, and what one scenario is about."""

import json
import subprocess
import sys
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from tests.cli import stories
from x402sim.cli import app
from x402sim.spec.clauses import CLAUSES
from x402sim.world.story.scenario import NEEDS

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def listed(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["list", *arguments])


def test_it_names_every_scenario_that_ships() -> None:
    files = sorted(file.stem for file in SCENARIOS.glob("*.py"))
    assert len(files) >= 20
    names = [line for line in listed().stdout.splitlines() if not line.startswith(" ")]
    assert names == files
    assert [each["name"] for each in json.loads(listed("--json").stdout)] == files


def test_each_has_a_title_a_number_of_clauses_and_its_needs() -> None:
    lines = listed("--json").stdout
    (replay,) = [each for each in json.loads(lines) if each["name"] == "replay"]
    told = listed().stdout.split("\nreplay\n")[1]
    assert told.startswith(f"  {replay['title']}\n")
    needs = ", ".join(replay["needs"])
    assert f"  {len(replay['covers'])} clauses; needs {needs}\n" in told


def test_a_name_tells_its_story_its_clauses_and_its_file() -> None:
    told = " ".join(listed("replay").stdout.split())
    (replay,) = json.loads(listed("replay", "--json").stdout)
    assert replay["story"] in told
    assert str(SCENARIOS / "replay.py") == replay["file"]
    assert replay["file"] in told
    assert "python -m x402sim run replay" in told
    sentences = {clause.id: clause.text for clause in CLAUSES}
    for clause in replay["covers"]:
        assert f"{clause}: {sentences[clause]}" in told


def test_a_file_of_ones_own_is_told_about_too(tmp_path: Path) -> None:
    file = stories.write(tmp_path, stories.HOLDS)
    (told,) = json.loads(listed(file, "--json").stdout)
    assert told == {
        "name": "mine",
        "title": "mine: of my own",
        "covers": ["4.1/receipt", "5/nonce-once"],
        "needs": ["funds", "chain"],
        "story": "Alice buys a quote.",
        "file": file,
    }
    assert f"python -m x402sim run {file}" in listed(file).stdout


def test_the_needs_are_explained_and_say_who_has_them() -> None:
    told = listed("--needs").stdout
    for need, meaning in NEEDS.items():
        assert f"{need}: {meaning}" in told
    after = told.split("virtual time: ")[1]
    wanting = [
        e["name"] for e in json.loads(listed("--json").stdout) if "virtual time" in e["needs"]
    ]
    assert after.split("\n", 1)[1].replace(",", "").split() == wanting


def test_it_reads_at_80_columns() -> None:
    for arguments in ((), ("--needs",), ("replay",)):
        for line in listed(*arguments).stdout.splitlines():
            assert len(line) <= 80 or "/" in line, line


def test_an_unknown_name_is_one_line() -> None:
    done = listed("replai")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == (
        "x402sim: unknown scenario 'replai'; did you mean 'replay'? `list` shows all\n"
    )


def test_the_command_line_is_cheap_to_import() -> None:
    heavy = ("x402sim.world", "x402sim.bench", "x402sim.report", "httpx", "uvicorn", "pandas")
    code = f"import sys, x402sim.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
