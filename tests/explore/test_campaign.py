"""A campaign: short ones hold, a seed gives the same worlds, what fails is shrunk and told."""

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from tests.explore import campaign
from tests.explore.campaign import BATCH, Batch, Found, failure, main, run
from tests.explore.case import Act, Buy, Case, Deposit, Lie, Reorganise, Submit, worlds
from tests.explore.play import play
from tests.money import Law
from tests.mutants.changes import setting
from x402sim.policies import FailToServe, ServicePolicy


def describe(found: Found) -> str:
    return "\n".join(failure(*each) for each in found.failures.values())


@pytest.mark.parametrize("adversary", [False, True])
def test_a_short_campaign_of_a_fresh_seed_holds(adversary: bool) -> None:
    found = run(Batch(random.getrandbits(32), BATCH, adversary))
    assert not found.failures, describe(found)
    assert (found.runs, found.outcomes["served"] > 0) == (BATCH, True)


@pytest.mark.thorough
def test_the_command_plays_the_same_worlds_in_its_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "BATCH", 2)
    assert main(["--runs", "3", "--seed", "5", "--adversary"]) == 0
    head, totals, *table = capsys.readouterr().out.splitlines()
    assert head == "3 adversarial worlds, seed 5"
    first, second = run(Batch(5, 2, True)), run(Batch(6, 1, True))
    assert totals.startswith(f"3 worlds held: {first.events + second.events:,} events, ")
    for name, count in (first.outcomes + second.outcomes).items():
        assert f"{count:>10,}  {name}" in table


def test_a_world_that_fails_is_shrunk_and_told() -> None:
    found = run(Batch(1, BATCH, False), setting(policy=ServicePolicy(serve=FailToServe(1))))
    (case, violations), *_ = found.failures.values()
    assert [type(step) for step in case.steps] == [Buy]
    text = failure(case, violations)
    assert Law.RECEIPT_STAYS.value in text
    assert msgspec.json.encode(case).decode() in text


@pytest.mark.parametrize("adversary", [False, True])
def test_a_world_survives_json(adversary: bool) -> None:
    @settings(max_examples=15, database=None, deadline=None)
    @given(worlds(adversary=adversary))
    def survives(case: Case) -> None:
        assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case
        assert adversary or not {Lie, Submit} & {type(step) for step in case.steps}

    survives()


def test_the_same_world_writes_the_same_journal() -> None:
    undone = (Act(at_s=75.0, does="run_indexer"), Reorganise(at_s=85.0, depth=2, drop=True))
    case = Case(steps=(Deposit(number=0, duration_s=60), *undone))
    assert play(case).journal.sha256() == play(case).journal.sha256()


def test_replay_plays_one_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "world.json"
    file.write_bytes(msgspec.json.encode(Case(steps=(Buy(number=0),))))
    assert main(["--replay", str(file)]) == 0
    assert capsys.readouterr().out == "Every invariant held.\n"
    file.write_text('{"steps": [{"do": "Fly"}]}')
    with pytest.raises(SystemExit, match="2"):
        main(["--replay", str(file)])
