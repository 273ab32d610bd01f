"""`list`: all scenarios, and some of them in full."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent

from tests.cli import stories
from tests.cli.runner import run
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.needs import Need

EXTRAS = ("pandas", "matplotlib", "pyarrow", "distributed", "web3", "trustme", "uvloop")
SCENARIOS = Path(__file__).parents[2] / "scenarios"


listed = partial(run, "list")


def test_it_lists_every_shipped_scenario() -> None:
    files = sorted(file.stem for file in SCENARIOS.glob("*.py"))
    assert len(files) >= 20
    names = [line for line in listed().stdout.splitlines() if not line.startswith(" ")]
    assert names == files
    assert [each["name"] for each in json.loads(listed("--json").stdout)] == files


def test_a_name_shows_story_clauses_and_file() -> None:
    told = " ".join(listed("replay").stdout.split())
    (replay,) = json.loads(listed("replay", "--json").stdout)
    assert replay["story"] in told
    assert str(SCENARIOS / "replay.py") == replay["file"]
    assert replay["file"] in told
    assert "python -m x402sim run replay" in told
    sentences = {clause.id: clause.text for clause in CLAUSES}
    for clause in replay["covers"]:
        assert f"{clause}: {sentences[clause]}" in told


def test_a_users_own_file_is_shown_too(tmp_path: Path) -> None:
    file = stories.write(tmp_path, stories.HOLDS)
    (told,) = json.loads(listed(file, "--json").stdout)
    assert told == {
        "name": "mine",
        "title": "mine: of my own",
        "covers": ["4.1/receipt", "5/nonce-once"],
        "needs": ["funds", "control chain"],
        "story": "Alice buys a quote.",
        "file": file,
    }
    assert f"python -m x402sim run {file}" in listed(file).stdout


def test_needs_lists_each_need_with_its_scenarios() -> None:
    told = listed("--needs").stdout
    scenarios = json.loads(listed("--json").stdout)
    for need in Need:
        is_needed = any(need in each["needs"] for each in scenarios)
        assert (f"{need}: {need.meaning}\n" in told) == is_needed
    after = told.split("virtual time: ")[1]
    wanting = [each["name"] for each in scenarios if "virtual time" in each["needs"]]
    assert after.split("\n", 1)[1].replace(",", "").split() == wanting


def test_needs_as_json_have_their_scenarios_and_their_meaning() -> None:
    every = json.loads(listed("--json").stdout)
    needs = json.loads(listed("--needs", "--json").stdout)
    assert [each["need"] for each in needs] == [
        n for n in Need if any(n in s["needs"] for s in every)
    ]
    for each in needs:
        assert each["meaning"] == Need(each["need"]).meaning
        assert each["scenarios"] == [s["name"] for s in every if each["need"] in s["needs"]]


def test_the_help_is_cheap_and_no_command_needs_an_extra_to_be_loaded() -> None:
    heavy = ("x402sim.world", "x402sim.report", "httpx", "uvicorn", "pandas")
    code = f"""
        import sys
        from typer.testing import CliRunner
        sys.modules.update(dict.fromkeys({EXTRAS}))
        from x402sim.cli import COMMANDS, app, load
        assert CliRunner().invoke(app, ["--help"]).exit_code == 0
        print([each for each in {heavy} if sys.modules.get(each)])
        print([load(each).name for each in COMMANDS] == [*COMMANDS])
        print("eth_account" in sys.modules)  # half of a start, for those who sign
    """
    command = [sys.executable, "-c", dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True", "False"]
