"""Writes points in time, in UTC: for programs, and for people with how far they are from now."""

import re
from datetime import UTC, datetime
from functools import lru_cache

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_END_S = 253402300800
"""The first second of the year 10000, which no calendar here can write."""
_IN_TEXT = re.compile(r"\b(is|says) (\d{9,11})\b")


def iso(at_ms: int) -> str:
    """Return "2026-11-23T06:49:18.000Z" for Unix milliseconds."""
    at_s, ms = divmod(at_ms, 1000)
    return f"{_iso_second(at_s)}.{ms:03}Z"


@lru_cache(maxsize=16)
def _iso_second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def moment(at_s: int, now_s: int) -> str:
    """Return "2026-11-23 06:49:18 UTC, in 4 min 59 s" for Unix seconds."""
    if not 0 <= at_s < _END_S:
        return "after the year 9999" if at_s > 0 else "before 1970"
    return f"{_utc(at_s)}, {distance(at_s - now_s)}"


def readable(text: str) -> str:
    """Return the text of a refusal with its Unix seconds in UTC, too.

    "validBefore is 1795454687" becomes "validBefore is 2026-11-23 17:24:47 UTC (1795454687)".
    """
    return _IN_TEXT.sub(lambda at: f"{at[1]} {_utc(int(at[2]))} ({at[2]})", text)


def _utc(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def distance(seconds: int) -> str:
    """Return "in 4 min 59 s", "2 h 5 min ago" or "now": the two largest units that count."""
    if seconds == 0:
        return "now"
    text = duration(abs(seconds))
    return f"in {text}" if seconds > 0 else f"{text} ago"


def duration(seconds: int) -> str:
    """Return "4 min 59 s": the two largest units that count; "0 s" for none."""
    left, parts = seconds, list[str]()
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"
