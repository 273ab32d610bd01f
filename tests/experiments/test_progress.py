"""The progress bar: with the time left, in a terminal and in Jupyter, and none in a pipe."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from x402sim.experiments import progress


def test_a_terminal_shows_done_total_failures_and_the_time_left() -> None:
    screen = io.StringIO()
    bar = progress._Terminal("sweep", 200, Console(file=screen, force_terminal=True, width=80))
    bar.update(50, 0)
    bar.update(120, 2)
    bar._bar.refresh()
    bar.close()
    shown = screen.getvalue()
    assert "120/200" in shown
    assert "2 failed" in shown
    assert ":" in shown.rpartition("failed")[2], "the time left"


def test_jupyter_shows_the_time_left_and_ends_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    now = [0.0]
    monkeypatch.setattr(progress, "stopwatch", lambda: lambda: now[0])

    def display(data: dict[str, str], **_: Any) -> Any:
        shown.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, **_: shown.append(data["text/plain"]))

    bar = progress._Jupyter("sweep", 200, display)
    for done, at_s in ((50, 30.0), (51, 30.1), (100, 60.0), (200, 120.0)):
        now[0] = at_s
        bar.update(done, 1)
    bar.close()
    assert [line.partition("/200")[2] for line in shown] == [
        "", ", 1 failed 1:30 left", ", 1 failed 1:00 left", ", 1 failed 0:00 left", ", 1 failed"
    ]  # fmt: skip
    assert shown[-1] == f"sweep {'━' * 24} 200/200, 1 failed"


def test_a_pipe_and_whoever_wants_none_get_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    for shown in (True, False):
        bar = progress.bar_of("sweep", 10, shown=shown)
        bar.update(5, 0)
        bar.close()
    assert capsys.readouterr() == ("", "")
