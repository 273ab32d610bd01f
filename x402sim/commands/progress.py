"""How far is it? A bar on stderr, for a person who watches; nothing in pipes and for programs."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress


class Progress:
    """A bar that is gone when the work is over; `shown` False shows nothing."""

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

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hide()

    def tell(self, text: str, done: float) -> None:
        """Say what is being done, and how much of it all is over."""
        self._bar.start()
        self._bar.update(self._task, description=text, completed=done, refresh=True)

    def hide(self) -> None:
        """Take the bar away until it has something to tell: what follows stands in its place."""
        self._bar.stop()
