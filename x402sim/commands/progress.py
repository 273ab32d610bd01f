"""The progress bar: on stderr, if that is a terminal; in pipes and for programs there is none."""

import sys

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress as RichProgress, TextColumn, TimeElapsedColumn

from x402sim.text.printable import printable


class Progress:
    """A bar, which `close` hides until its next update; with `shown` False there is none."""

    def __init__(self, total: float, *, shown: bool = True) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not (shown and sys.stderr.isatty()),
        )
        self._task = self._bar.add_task("", total=total)

    def update(self, text: str, done: float) -> None:
        """Show what is being done, and how much of the total is done."""
        self._bar.start()
        self._bar.update(
            self._task, description=escape(printable(text)), completed=done, refresh=True
        )

    def close(self) -> None:
        """Hide the bar until its next update; what is printed next takes its place."""
        self._bar.stop()
