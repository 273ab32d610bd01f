"""The hash of a table by its content, which no version of pandas, Arrow or Python changes.

It is the SHA-256 of lines of ASCII, each ended by a newline. The first is a JSON array of the
names of the columns, sorted; each row follows as a JSON object without spaces, its names sorted,
without the values that are missing. A number is written in digits if it is whole (2, also of the
float 2.0), and as Python's `repr` of the float if not; a moment as its whole microseconds since
1970, in UTC; a date in ISO 8601; True and False as true and false; anything else as its text.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

_AT_ONCE = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_dump = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def frame_sha256(frame: "DataFrame") -> str:
    """Return the hash of a frame, without its index."""
    names = [str(name) for name in frame.columns]
    return lines_sha256(chain([json.dumps(sorted(names), separators=(",", ":"))], _lines(frame)))


def _lines(frame: "DataFrame") -> Iterator[str]:
    names = [str(name) for name in frame.columns]
    for first in range(0, len(frame), _AT_ONCE):  # Python's objects need ten times the memory
        part = frame.iloc[first : first + _AT_ONCE]
        columns = [part.iloc[:, at].astype(object).tolist() for at in range(len(names))]
        for row in zip(*columns, strict=True):
            yield row_line(dict(zip(names, row, strict=True)))


def lines_sha256(lines: Iterable[str]) -> str:
    """Return the hash of lines, each ended by a newline."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return found.hexdigest()


def row_line(row: Mapping[str, Any]) -> str:
    """Return the line of a row, given its values by name."""
    known = {name: _plain(value) for name, value in row.items()}
    return _dump({name: value for name, value in known.items() if value is not None})


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; None if it is missing, also as one of pandas'."""
    kind = type(value)
    if value is None or kind is str or kind is bool or kind is int:
        return value
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        if value != value:  # not a number
            return None
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _US
    if isinstance(value, date):
        return value.isoformat()
    return _plain(value.item()) if hasattr(value, "item") else str(value)
