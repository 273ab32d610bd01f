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
from x402sim.text.program import shown

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
    assert f"{shown()} run replay" in told
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
    assert f"{shown()} run {file}" in listed(file).stdout


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
