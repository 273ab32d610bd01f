"""How far a sweep is: a bar in a terminal and in Jupyter, lines in a file. How far a run is."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from x402sim import World
from x402sim.report import progress

STEPS = ((50, 30.0), (51, 30.1), (100, 60.0), (200, 120.0))
LINES = ["", ", 1 failed 1:30 left", ", 1 failed 1:00 left", ", 1 failed 0:00 left"]


def follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sweep of 200 points take two minutes; one of its points fails."""
    now = [0.0]
    monkeypatch.setattr(progress, "stopwatch", lambda: lambda: now[0])
    bar = progress.Bar("sweep", 200)
    for done, now[0] in STEPS:
        bar.update(done, 1, 200)
    bar.close()


def display(shown: list[str]) -> Any:
    """Return IPython's `display`, which updates a line in place."""

    def displayed(data: dict[str, str], **_: Any) -> Any:
        shown.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, **_: shown.append(data["text/plain"]))

    return displayed


def console(shown: list[str]) -> Any:
    """Return rich's console in a terminal, whose line is gone in the end."""
    status = {"start": lambda: None, "update": shown.append, "stop": lambda: shown.append("gone")}
    return SimpleNamespace(
        is_terminal=True, status=lambda text: shown.append(text) or SimpleNamespace(**status)
    )


@pytest.mark.parametrize(
    ("jupyter", "last"), [(False, "gone"), (True, f"sweep {'━' * 24} 200/200, 1 failed")]
)
def test_a_bar_shows_done_total_failures_and_the_time_left_and_ends_without_it(
    monkeypatch: pytest.MonkeyPatch, *, jupyter: bool, last: str
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("rich.console.Console", lambda **_: console(shown))
    monkeypatch.setattr(progress, "_jupyter", lambda: display(shown) if jupyter else None)
    follow(monkeypatch)
    assert [line.partition("/200")[2] for line in shown[:-1]] == LINES
    assert shown[-1] == last


def test_a_file_has_a_line_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    follow(monkeypatch)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("/200")[2] for line in lines] == LINES[1:]


def test_a_short_sweep_in_a_file_a_short_run_and_whoever_wants_none_get_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(progress, "_SILENT_S", 60.0)  # a loaded machine makes a short run long
    for shown in (True, False):
        bar = progress.Bar("sweep", 10, shown=shown)
        bar.update(5, 0, 10)
        bar.close()
    World().play("replay")
    assert capsys.readouterr() == ("", "")
