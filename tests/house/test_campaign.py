"""One command runs every campaign, and fails if one of them does."""

import subprocess

import pytest

from tests import campaign

ALL = ["tests.explore", "tests.explore", "pytest"]


@pytest.mark.parametrize("failing", ["", "--adversary", "pytest"])
def test_it_runs_all_and_fails_if_one_does(monkeypatch, capsys, failing):
    ran = []

    def fake(command, **_):
        ran.append(command[2])
        return subprocess.CompletedProcess(command, int(failing in command))

    monkeypatch.setattr(subprocess, "run", fake)
    monkeypatch.setattr("sys.argv", ["campaign", "--seed", "3"])
    assert (campaign.main(), ran) == (int(bool(failing)), ALL)
    assert capsys.readouterr().out.count(" clean ") == 3 - bool(failing)
