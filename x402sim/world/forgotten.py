"""Finds the coroutines that a scenario calls and does not await, and names their lines."""

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
class _Unawaited:
    """The coroutines that a block did not await, each with its line if that is in `file`."""

    file: str
    found: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Note Python's warning of a coroutine, with the newest line of the file that runs."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        where = f" ({tracebacks.shown(self.file)}:{frame.f_lineno})" if frame else ""
        self.found.append(f"{text}{where}")


_unawaited: ContextVar[_Unawaited | None] = ContextVar("forgotten coroutines", default=None)


class _Hook:
    """Replaces `warnings.showwarning` as long as any scenario is played."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stories = 0
        self._before = warnings.showwarning
        self._undo = ExitStack()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have warnings shown by this hook in a block."""
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
        unawaited, forgotten = _unawaited.get(), _FORGOTTEN.match(str(message))
        if unawaited is None or forgotten is None:
            self._before(message, category, filename, lineno, file, line)
        else:
            unawaited.note(forgotten[0])


_HOOK = _Hook()


class ForgottenAwait(RuntimeError):
    """A scenario called a coroutine function, and did not await what that returned."""


@contextmanager
def forgotten_awaits(file: str) -> Iterator[list[str]]:
    """Find the coroutines that are never awaited in a block; after it, the list has each.

    `file` is the scenario's: a line in it is named. If the block raises, the exception has a note
    of them, since it may follow from that.
    """
    unawaited = _Unawaited(file)
    token = _unawaited.set(unawaited)
    with _HOOK.in_place():
        try:
            yield unawaited.found
        except Exception as error:
            unawaited.file = ""  # where it is discarded from now on is not where it was forgotten
            _release_frames(error)
            if unawaited.found:
                error.add_note(named(unawaited.found))
            raise
        finally:
            _unawaited.reset(token)


def named(found: list[str]) -> str:
    """Name what was found, and say what to do."""
    return "; ".join(found) + ": write `await`"


def _release_frames(error: BaseException) -> None:
    """Clear an error's frames, as they may hold the coroutine that was not awaited."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _release_frames(each)
    if isinstance(error, AttributeError):
        from difflib import get_close_matches

        near = get_close_matches(error.name or "", dir(error.obj), n=1)
        if near and near[0] != error.name and not isinstance(error.obj, CoroutineType):
            error.add_note(f"did you mean {near[0]!r}?")
        error.obj = None
    traceback.clear_frames(error.__traceback__)
