"""Formats exceptions: the user's file and line, the causes, and the errors in a group.

A frame of x402sim or of a library is shown only if no frame of the user's code follows it. No line
has an absolute path, so that the same failure has the same text on every machine.
"""

import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_SCENARIOS = _PACKAGE / "scenarios"


@cache
def _libraries() -> tuple[tuple[Path, Path], ...]:
    """Return the folders of libraries, each with the prefix that is shown for it."""
    import sysconfig

    names = ("purelib", ""), ("platlib", ""), ("stdlib", "python")
    return tuple((Path(sysconfig.get_path(name)), Path(shown)) for name, shown in names)


def summary(error: BaseException) -> str:
    """Return the type and the text of an error, with its notes.

    A group also has those of its errors; a group of one error has the frames of that error alone.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(summary(each) for each in error.exceptions)
        text = inner if len(error.exceptions) == 1 else f"{text}: {inner}"
    return text + "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def place(error: BaseException, file: str) -> str:
    """Return the newest line of a file in the trace of an error, "study.py:12"; else ""."""
    for each in _all(error):
        for frame in reversed(traceback.extract_tb(each.__traceback__)):
            if frame.filename == file:
                return f"{shown(file)}:{frame.lineno}"
    return ""


def lines(error: BaseException, *, skip: str = "") -> tuple[str, ...]:
    """Return the trace of an error, oldest frame first: "study.py:12 in story: the code".

    Its cause comes before it; the errors of a group come after it, each with its type and text.
    `skip` is a file whose frames are left out.
    """
    before = lines(error.__cause__, skip=skip) if error.__cause__ else ()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != skip]
    ours = [number for number, frame in enumerate(frames) if is_users(shown(frame.filename))]
    last = ours[-1] if ours else -1
    is_group = isinstance(error, BaseExceptionGroup)
    kept = [f for n, f in enumerate(frames) if n in ours or (n > last and not is_group)]
    own = (f"{shown(each.filename)}:{each.lineno} in {each.name}: {each.line}" for each in kept)
    return (*before, *own, *_nested(error, skip))


def _nested(error: BaseException, skip: str) -> Iterator[str]:
    """Yield the traces of the errors in a group; that of the only one needs no heading."""
    if not isinstance(error, BaseExceptionGroup):
        return
    if len(error.exceptions) == 1:
        yield from lines(error.exceptions[0], skip=skip)
        return
    for number, each in enumerate(error.exceptions, 1):
        yield f"error {number} of {len(error.exceptions)}: {type(each).__name__}: {each}"
        yield from (f"  {line}" for line in lines(each, skip=skip))


def _all(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside an error, and then the error."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _all(each)
    yield error


def shown(file: str) -> str:
    """Return a file's name for a trace: the user's without folders, others with their package."""
    path = Path(file)
    if path.is_relative_to(_PACKAGE) and not path.is_relative_to(_SCENARIOS):
        return path.relative_to(_PACKAGE.parent).as_posix()
    for folder, prefix in _libraries():
        if path.is_relative_to(folder):
            return (prefix / path.relative_to(folder)).as_posix()
    if "site-packages" in path.parts:  # of another environment on the path
        return Path(*path.parts[path.parts.index("site-packages") + 1 :]).as_posix()
    return f"python/{path.name}" if file.startswith("<frozen ") else path.name


def is_users(name: str) -> bool:
    """Tell whether a name of `shown` is a user's file: not of x402sim, Python or a library."""
    return "/" not in name
