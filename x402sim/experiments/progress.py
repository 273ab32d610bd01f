"""The progress bar of a sweep, with the time left: in a terminal, and in Jupyter.

Jupyter shows one output, which is updated in place. Its last text has no times, so that an
executed notebook is the same each time. In pipes there is none.
"""

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from x402sim.clock import stopwatch

_EVERY_S = 0.5
_WIDTH = 24


class Bar:
    """Shows how many points are done, and how many of them failed; this one shows nothing."""

    def update(self, done: int, failed: int) -> None:
        """Show these numbers."""

    def close(self) -> None:
        """Show the last state for good, or nothing."""


class _Terminal(Bar):
    def __init__(self, text: str, total: int, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=_WIDTH),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}", style="red"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(text, total=total, failed="")
        self._bar.start()

    def update(self, done: int, failed: int) -> None:
        """Redraw the bar."""
        shown = f"{failed} failed" if failed else ""
        self._bar.update(self._task, completed=done, failed=shown)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class _Jupyter(Bar):
    def __init__(self, text: str, total: int, display: Any) -> None:
        self._text, self._total = text, total
        self._elapsed = stopwatch()
        self._shown_s, self._done, self._failed = 0.0, 0, 0
        self._handle = display({"text/plain": self._line("")}, raw=True, display_id=True)

    def _line(self, left: str) -> str:
        full = round(_WIDTH * self._done / self._total) if self._total else _WIDTH
        bar = "━" * full + " " * (_WIDTH - full)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._text} {bar} {self._done}/{self._total}{failed}{left}"

    def update(self, done: int, failed: int) -> None:
        """Redraw the bar, at most twice a second."""
        self._done, self._failed = done, failed
        now_s = self._elapsed()
        if done and now_s - self._shown_s >= _EVERY_S:
            self._shown_s = now_s
            left_s = round(now_s / done * (self._total - done))
            left = f" {left_s // 60}:{left_s % 60:02} left"
            self._handle.update({"text/plain": self._line(left)}, raw=True)

    def close(self) -> None:
        """Show the last numbers, without a time."""
        self._handle.update({"text/plain": self._line("")}, raw=True)


def bar_of(text: str, total: int, *, shown: bool = True) -> Bar:
    """Return the bar that fits the place: a terminal, Jupyter, or none."""
    if not shown:
        return Bar()
    if "ipykernel" in sys.modules:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        if hasattr(get_ipython(), "kernel"):
            return _Jupyter(text, total, display)
    console = Console(stderr=True)
    return _Terminal(text, total, console) if console.is_terminal else Bar()
