"""One command runs every campaign, and fails if one of them does."""

import subprocess
from typing import Any

import pytest

from tests import campaign

ALL = [
    ["tests.explore", "--runs", "5", "--seed", "3"],
    ["tests.explore", "--runs", "5", "--seed", "3", "--adversary"],
    ["tests.crash", "--cycles", "2", "--seed", "3"],
    ["tests.hostile", "--requests", "20000", "--seed", "3"],
    ["pytest", "-n", "auto", "-m", "thorough", *campaign.LONG],
]


@pytest.mark.parametrize("failing", ["", "--adversary", "tests.crash", "tests.hostile", "pytest"])
def test_it_runs_all_with_their_sizes_and_fails_if_one_does(monkeypatch, capsys, failing):
    ran: list[list[str]] = []

    def fake(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command[2:])
        return subprocess.CompletedProcess(command, int(failing in command))

    monkeypatch.setattr(subprocess, "run", fake)
    monkeypatch.setattr("sys.argv", ["campaign", "--runs", "5", "--cycles", "2", "--seed", "3"])
    assert (campaign.main(), ran) == (int(bool(failing)), ALL)
    assert capsys.readouterr().out.count(" clean ") == 5 - bool(failing)
