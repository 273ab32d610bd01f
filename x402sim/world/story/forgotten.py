"""Finds the coroutines that a story forgot to await: `world.fault(...)` alone injects no fault.

Python finds out when it discards such a coroutine, and calls a function of `warnings`, by name.
That function is wrapped, once; outside of a story it does what it always did. A warning would not
do: it is shown once for each line, and filters are shared by all threads.
"""

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CoroutineType, FrameType
from typing import Any

from x402sim.text import tracebacks

_CALLED_BY_PYTHON = "_warn_unawaited_coroutine"


@dataclass(slots=True)
class _Search:
    """What was found in a block; the line is told if it is in `file`."""

    file: str
    found: list[str] = field(default_factory=list)

    def note(self, name: str) -> None:
        """Note a coroutine, with the newest line of the file in which Python is."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        where = f" ({tracebacks.shown(self.file)}:{frame.f_lineno})" if frame else ""
        self.found.append(f"coroutine {name!r} was never awaited{where}")


_search: ContextVar[_Search | None] = ContextVar("forgotten coroutines", default=None)


class ForgottenAwait(RuntimeError):
    """A story called a coroutine function, and did not await what that returned."""


@contextmanager
def forgotten_awaits(file: str) -> Iterator[list[str]]:
    """Find the coroutines that are never awaited in a block; after it, the list has each.

    `file` is where the story is written: the line is told if it is in there. If the block raises,
    the exception has a note of them, since it may follow from that.
    """
    _wrap()
    search = _Search(file)
    token = _search.set(search)
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


def _wrap() -> None:
    """Wrap the function that Python calls, unless it is wrapped."""
    original = getattr(warnings, _CALLED_BY_PYTHON, None)
    if original is None or getattr(original, "__module__", None) == __name__:
        return

    def note(coroutine: "CoroutineType[Any, Any, Any]") -> None:
        search = _search.get()
        if search is None:
            original(coroutine)
        else:
            search.note(coroutine.__qualname__)

    setattr(warnings, _CALLED_BY_PYTHON, note)
