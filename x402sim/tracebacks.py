"""How is an exception shown? With file and line, its causes, and the errors inside a group.

No line names an absolute path, so that the same failure reads the same on every machine.
"""

import traceback
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parent


def summary(error: BaseException) -> str:
    """Return the type and the text of an error; of a group, those of the errors in it, too."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, BaseExceptionGroup):
        text += ": " + "; ".join(summary(each) for each in error.exceptions)
    return text


def place(error: BaseException, file: str) -> str:
    """Return the newest line of a file in the trace of an error, "study.py:12"; else ""."""
    for each in _all(error):
        for frame in reversed(traceback.extract_tb(each.__traceback__)):
            if frame.filename == file:
                return f"{shown(file)}:{frame.lineno}"
    return ""


def lines(error: BaseException) -> tuple[str, ...]:
    """Return the trace of an error, oldest frame first: "study.py:12 in story: the code".

    Its cause comes before it; the errors of a group come after it, each with its type and text.
    """
    before = lines(error.__cause__) if error.__cause__ else ()
    frames = traceback.extract_tb(error.__traceback__)
    own = (f"{shown(each.filename)}:{each.lineno} in {each.name}: {each.line}" for each in frames)
    return (*before, *own, *_nested(error))


def _nested(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for number, each in enumerate(error.exceptions, 1):
            yield f"error {number} of {len(error.exceptions)}: {type(each).__name__}: {each}"
            yield from (f"  {line}" for line in lines(each))


def _all(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors in it, those in it first."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _all(each)
    yield error


def shown(file: str) -> str:
    """Return a file's name as it is shown: of x402sim's own, with its package."""
    path = Path(file)
    if path.is_relative_to(_PACKAGE):
        return path.relative_to(_PACKAGE.parent).as_posix()
    return path.name
