"""The progress of a sweep, with the time left, and of a long run.

In a terminal and in Jupyter, a line is updated in place. The last line in Jupyter has no
times, so that an executed notebook is equal each time. Pipes and files get a new line every
few seconds.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from x402sim.clock import stopwatch
from x402sim.text.console import console as new_console

Show = Callable[[str], None]
_EVERY_S = 0.5
_SILENT_S, _LINE_S = 2.0, 5.0
"""Real seconds until a run shows progress, and between two lines in a file."""
_WIDTH = 24


class Bar:
    """Shows the number of finished points, and of failed points among them.

    `known` points were done before, and do not count for the estimate of the time left.
    """

    def __init__(self, text: str, total: int, *, known: int = 0, shown: bool = True) -> None:
        self._text, self._total, self._known = text, total, known
        self._elapsed = stopwatch()
        self._shown_s, self._done, self._failed = 0.0, 0, 0
        self._show, self._end, self._every_s = _place(self._line("")) if shown else _NOWHERE

    def _line(self, left: str) -> str:
        full = round(_WIDTH * self._done / self._total) if self._total else _WIDTH
        bar = "━" * full + " " * (_WIDTH - full)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._text} {bar} {self._done}/{self._total}{failed}{left}"

    def update(self, done: int, failed: int, total: int) -> None:
        """Show these numbers and the time left, at most twice a second; in a file, every 5 s."""
        self._done, self._failed, self._total = done, failed, total
        now_s, played = self._elapsed(), done - self._known
        if played and now_s - self._shown_s >= self._every_s:
            self._shown_s = now_s
            left_s = round(now_s / played * (self._total - done))
            self._show(self._line(f" {left_s // 60}:{left_s % 60:02} left"))

    def close(self) -> None:
        """Show the last numbers, without a time; in a terminal, remove the line."""
        self._end(self._line(""))


@contextmanager
def telling(name: str, words: Callable[[], str]) -> Iterator[None]:
    """Show the progress of work of unknown length, if it takes more than two real seconds.

    `words` returns the progress. A second thread calls `words`, to keep the work fast. Equal words
    are shown once: on a busy machine, nothing may change between two lines.
    """
    over = threading.Event()

    def tell() -> None:
        wait_s, shown = _SILENT_S, ""
        while not over.wait(wait_s):
            if not shown:
                show, end, wait_s = _place(name)
            if (line := f"{name}: {words()}") != shown:
                show(line)
            shown = line
        if shown:
            end("")

    thread = threading.Thread(target=tell, name="x402sim progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _place(first: str) -> tuple[Show, Show, float]:
    """Return functions that show a line and the last line, and the seconds between two lines."""
    display = _jupyter()
    if display is not None:
        handle = display({"text/plain": first}, raw=True, display_id=True)

        def show(line: str) -> None:
            handle.update({"text/plain": line}, raw=True)

        return show, show, _EVERY_S
    from rich.markup import escape

    console = new_console(stderr=True)
    if not console.is_terminal:
        plainly = partial(console.print, markup=False, highlight=False, soft_wrap=True)
        return plainly, lambda line: None, _LINE_S
    status = console.status(escape(first))
    status.start()
    return lambda line: status.update(escape(line)), lambda line: status.stop(), _EVERY_S


_NOWHERE: tuple[Show, Show, float] = (lambda line: None, lambda line: None, _EVERY_S)


def _jupyter() -> Any:
    if "ipykernel" in sys.modules:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        if hasattr(get_ipython(), "kernel"):
            return display
    return None
