"""A campaign: short ones hold, the number of processes changes nothing, failures are told."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from x402sim.cli import app
from x402sim.explore.campaign import Campaign, Report, run
from x402sim.explore.case import Buy, Case
from x402sim.rng import Rng


def told(report: Report) -> str:
    """Return what to print of a campaign that found something."""
    return "\n".join(f"seed {each.case.seed}: {each.how}" for each in report.failures)


@pytest.mark.parametrize("adversary", [False, True])
def test_a_short_campaign_holds(adversary: bool) -> None:
    report = run(Campaign(seed=1, runs=30, adversary=adversary))
    assert not report.failures, told(report)
    assert report.runs == 30
    assert report.outcomes["served"] > 25
    assert report.kinds["buy: PAYMENT-SIGNATURE"] > 5


@pytest.mark.parametrize("adversary", [False, True])
def test_a_short_campaign_of_a_fresh_seed_holds(adversary: bool) -> None:
    seed = Rng().stream("campaign").getrandbits(32)
    report = run(Campaign(seed=seed, runs=20, adversary=adversary))
    assert not report.failures, told(report)


def test_the_number_of_processes_changes_nothing() -> None:
    reports = [
        run(Campaign(seed=40, runs=24, workers=workers, adversary=True)) for workers in (1, 2)
    ]
    one, two = (msgspec.structs.replace(report, real_s=0.0) for report in reports)
    assert one == two


def test_the_command_prints_seeds_kinds_and_the_verdict() -> None:
    done = CliRunner().invoke(app, ["explore", "--runs", "12", "--seed", "5", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "12 plain worlds, seeds 5 to 16" in done.output
    assert "Every invariant held in every world." in done.output
    assert " buy: two steps\n" in done.output


def test_the_command_prints_json() -> None:
    options = ["--runs", "3", "--seed", "5", "--workers", "1", "--adversary", "--json"]
    done = CliRunner().invoke(app, ["explore", *options])
    assert done.exit_code == 0, done.output
    body = json.loads(done.output)
    assert (body["seed"], body["runs"], body["failures"], body["shrunk"]) == (5, 3, [], [])


def test_replay_plays_one_world(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_bytes(msgspec.json.encode(Case(steps=(Buy(number=0),))))
    done = CliRunner().invoke(app, ["explore", "--replay", str(file)])
    assert (done.exit_code, done.output) == (0, "Every invariant held.\n")


DEEP = '{"steps": [{"a":' + "[" * 1500 + "]" * 1500 + "}]}"


@pytest.mark.parametrize("text", ["{", '{"steps": [{"do": "Fly"}]}', '{"services": 9}', DEEP])
def test_replay_refuses_what_is_no_world(tmp_path: Path, text: str) -> None:
    file = tmp_path / "world.json"
    file.write_text(text)
    done = CliRunner().invoke(app, ["explore", "--replay", str(file)])
    assert done.exit_code == 2
    assert "holds no world" in done.output


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explore", "--replay", str(tmp_path / "no.json")])
    assert done.exit_code == 2
