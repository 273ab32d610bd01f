"""How far a sweep is, with the time left, and how far a long run is.

In a terminal and in Jupyter it is one line, which is updated in place. What Jupyter shows in the
end has no times, so that an executed notebook is the same each time. In pipes and files a sweep
shows nothing, and a run a line every few seconds.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from x402sim.clock import stopwatch

if TYPE_CHECKING:
    from rich.console import Console

_EVERY_S = 0.5
_SILENT_S, _LINE_S = 2.0, 5.0
"""Real seconds until a run shows anything, and between two lines in a file."""
_WIDTH = 24


class Bar:
    """Shows how many points are done, and how many of them failed; this one shows nothing."""

    def update(self, done: int, failed: int) -> None:
        """Show these numbers."""

    def close(self) -> None:
        """Show the last state for good, or nothing."""


class _Terminal(Bar):
    def __init__(self, text: str, total: int, console: "Console") -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

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


@contextmanager
def telling(name: str, words: Callable[[], str]) -> Iterator[None]:
    """Show how far work of unknown length is, if it takes more than two seconds of real time.

    `words` says it, and is called in a thread of its own: the work is not slowed down.
    """
    over = threading.Event()

    def tell() -> None:
        if over.wait(_SILENT_S):
            return
        show, end, every_s = _line_of(name)
        show(words())
        while not over.wait(every_s):
            show(words())
        end()

    thread = threading.Thread(target=tell, name="x402sim progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _line_of(name: str) -> tuple[Callable[[str], None], Callable[[], None], float]:
    """Return what shows a line in place, what removes it, and the seconds between two."""
    display = _jupyter()
    if display is not None:
        handle = display({"text/plain": name}, raw=True, display_id=True)

        def show(line: str) -> None:
            handle.update({"text/plain": line}, raw=True)

        return lambda words: show(f"{name}: {words}"), lambda: show(""), _EVERY_S
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        plainly = partial(console.print, markup=False, highlight=False, soft_wrap=True)
        return lambda words: plainly(f"{name}: {words}"), lambda: None, _LINE_S
    status = console.status(name)
    status.start()
    return lambda words: status.update(f"{escape(name)}: {words}"), status.stop, _EVERY_S


def _jupyter() -> Any:
    """Return IPython's `display`, if a notebook shows what is displayed; else None."""
    if "ipykernel" in sys.modules:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        if hasattr(get_ipython(), "kernel"):
            return display
    return None


def bar_of(text: str, total: int, *, shown: bool = True) -> Bar:
    """Return the bar that fits the place: a terminal, Jupyter, or none."""
    if not shown:
        return Bar()
    display = _jupyter()
    if display is not None:
        return _Jupyter(text, total, display)
    from rich.console import Console

    console = Console(stderr=True)
    return _Terminal(text, total, console) if console.is_terminal else Bar()
