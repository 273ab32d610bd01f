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
from types import CoroutineType, FrameType
from typing import Any

from x402sim.text import tracebacks

_CALLED_BY_PYTHON = "_warn_unawaited_coroutine"
_found: ContextVar[list[str] | None] = ContextVar("forgotten coroutines", default=None)


class ForgottenAwait(RuntimeError):
    """A story called a coroutine function, and did not await what that returned."""


@contextmanager
def forgotten_awaits(file: str) -> Iterator[list[str]]:
    """Find the coroutines that are never awaited in a block; after it, the list names them.

    `file` is where the story is written: the line is told if it is in there. If the block raises,
    the exception has a note of them, since it may follow from that.
    """
    _wrap()
    found: list[str] = []
    told: list[str] = []
    token = _found.set(found)
    try:
        yield told
    except Exception as error:
        placed = [_placed(each, file) for each in found]
        _let_go(error)  # where that happens is not where it was forgotten
        told.extend(_told([*placed, *(_placed(each, "") for each in found[len(placed) :])]))
        if told:
            error.add_note("; ".join(told))
        raise
    finally:
        _found.reset(token)
    told.extend(_told([_placed(each, file) for each in found]))


def _told(placed: list[str]) -> list[str]:
    """Return what was found; the last one says what to do."""
    return [*placed[:-1], f"{placed[-1]}: write `await`"] if placed else []


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
        found = _found.get()
        if found is None:
            original(coroutine)
        else:
            found.append(f"coroutine {coroutine.__qualname__!r} was never awaited{_frames()}")

    setattr(warnings, _CALLED_BY_PYTHON, note)


def _frames() -> str:
    """Return where Python is, from the newest frame: "\\0FILE:LINE\\0FILE:LINE"."""
    frame: FrameType | None = sys._getframe(2)
    lines = []
    while frame is not None:
        lines.append(f"\0{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return "".join(lines)


def _placed(noted: str, file: str) -> str:
    """Return what was noted, with the newest line in this file."""
    text, *frames = noted.split("\0")
    for each in frames:
        where, _, line = each.rpartition(":")
        if where == file:
            return f"{text} ({tracebacks.shown(file)}:{line})"
    return text
