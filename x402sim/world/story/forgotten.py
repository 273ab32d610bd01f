"""Finds the coroutines that a story forgot to await: `world.fault(...)` alone injects no fault.

Python warns when it discards such a coroutine. While a story is played, these warnings are always
shown, and not just once for each line; and what shows them first asks whose they are, since
filters are shared by all threads.
"""

import inspect
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CoroutineType
from typing import TextIO

from x402sim.text import tracebacks

_FORGOTTEN = re.compile("coroutine '.*' was never awaited")


@dataclass(slots=True)
class _Search:
    """What was found in a block; the line is told if it is in `file`."""

    file: str
    found: list[str] = field(default_factory=list)

    def note(self, told: str) -> None:
        """Note what Python tells of a coroutine, with the newest line of the file where it is."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        where = f" ({tracebacks.shown(self.file)}:{frame.f_lineno})" if frame else ""
        self.found.append(f"{told}{where}")


_search: ContextVar[_Search | None] = ContextVar("forgotten coroutines", default=None)


class _Hook:
    """Python's way to show a warning, in place as long as any story is played."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stories = 0
        self._before = warnings.showwarning
        self._undo = ExitStack()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Show warnings by this hook in a block."""
        with self._lock:
            self._stories += 1
            if self._stories == 1:
                self._put()
        try:
            yield
        finally:
            with self._lock:
                self._stories -= 1
                if not self._stories:
                    self._undo.close()

    def _put(self) -> None:
        self._undo.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("always", _FORGOTTEN.pattern, RuntimeWarning)
        if warnings.showwarning != self._show:  # another thread may have kept and restored it
            self._before = warnings.showwarning
        warnings.showwarning = self._show

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        search, told = _search.get(), _FORGOTTEN.match(str(message))
        if search is None or told is None:
            self._before(message, category, filename, lineno, file, line)
        else:
            search.note(told[0])


_HOOK = _Hook()


class ForgottenAwait(RuntimeError):
    """A story called a coroutine function, and did not await what that returned."""


@contextmanager
def forgotten_awaits(file: str) -> Iterator[list[str]]:
    """Find the coroutines that are never awaited in a block; after it, the list has each.

    `file` is where the story is written: the line is told if it is in there. If the block raises,
    the exception has a note of them, since it may follow from that.
    """
    search = _Search(file)
    token = _search.set(search)
    with _HOOK.in_place():
        try:
            yield search.found
        except Exception as error:
            search.file = ""  # where it is discarded from now on is not where it was forgotten
            _let_go(error)
            if search.found:
                error.add_note(named(search.found))
            raise
        finally:
            _search.reset(token)


def named(found: list[str]) -> str:
    """Name what was found, and say what to do."""
    return "; ".join(found) + ": write `await`"


def _let_go(error: BaseException) -> None:
    """Discard what an error's frames hold, which may be a coroutine."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _let_go(each)
    if isinstance(error, AttributeError):
        from difflib import get_close_matches

        near = get_close_matches(error.name or "", dir(error.obj), n=1)
        if near and near[0] != error.name and not isinstance(error.obj, CoroutineType):
            error.add_note(f"did you mean {near[0]!r}?")
        error.obj = None
    traceback.clear_frames(error.__traceback__)
