"""One command runs every campaign, and fails if one of them does."""

import argparse
import subprocess
from typing import Any

import pytest

from tests import campaign
from tests.house.forked import ROOT


def run(monkeypatch: pytest.MonkeyPatch, failing: str) -> tuple[int, list[list[str]]]:
    ran: list[list[str]] = []

    def fake(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command[2:])
        return subprocess.CompletedProcess(command, int(failing in command))

    monkeypatch.setattr(subprocess, "run", fake)
    monkeypatch.setattr("sys.argv", ["campaign", "--runs", "5", "--cycles", "2", "--seed", "3"])
    return campaign.main(), ran


def test_it_runs_all_with_their_sizes(monkeypatch, capsys):
    code, ran = run(monkeypatch, failing="nothing")
    assert code == 0
    assert ran == [
        ["tests.explore", "--runs", "5", "--seed", "3"],
        ["tests.explore", "--runs", "5", "--seed", "3", "--adversary"],
        ["tests.crash", "--cycles", "2", "--seed", "3"],
        ["tests.hostile", "--requests", "20000", "--seed", "3"],
        ["pytest", "-n", "auto", "-m", "thorough", *campaign.LONG],
    ]
    assert capsys.readouterr().out.count(" clean ") == 5


@pytest.mark.parametrize("failing", ["--adversary", "tests.crash", "tests.hostile", "pytest"])
def test_one_that_fails_fails_it_all(monkeypatch, failing):
    code, ran = run(monkeypatch, failing)
    assert (code, len(ran)) == (1, 5)


def test_each_long_test_is_there_and_asks_for_its_length():
    for name in campaign.LONG:
        assert "at_length(" in (ROOT / name).read_text("utf-8")


def test_without_a_seed_each_has_its_own():
    given = argparse.Namespace(runs=1, cycles=1, requests=1, seed=None)
    assert all("--seed" not in command for command in campaign.commands(given))
