"""Words for people: text of other parties, times, numbers, and the name that was meant.

Other parties choose the text of answers, journals and nodes. Printed unchanged, an escape sequence
would move the cursor, a bidi override reverse what follows, a newline begin a line that looks like
ours, U+FFFE break XML, and `::error::` or `##[error]` run as a command in CI. So it is escaped.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from x402sim.text.keys import secret_in

_COMMAND = re.compile(r":(?=:[A-Za-z])|#(?=#\[|#vso\[|#teamcity\[)")
"""Where a command to a CI begins: GitHub finds `::` after blanks, and `##[` anywhere."""


def printable(text: str) -> str:
    """Return a text for one line, with every character escaped that `repr` escapes.

    Those are the control characters, newlines included, bidi overrides and other formatting,
    lone surrogates and what Unicode has not assigned. Letters of all languages stay. Printing
    it again changes nothing.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if "::" not in text and "##" not in text:
        return text
    return _COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def printable_lines(text: str) -> str:
    """Return a text with its lines kept, each of them printable."""
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))


def described(value: object) -> str:
    """Return a value as text that is equal in every process: like `repr`, without addresses.

    A function becomes a name, an object without a `repr` the class, and a frozen distribution of
    scipy.stats the call that makes such a distribution.
    """
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    text = repr(value)
    if " at 0x" not in text:
        return text
    name = getattr(getattr(value, "dist", None), "name", None)
    args, keywords = getattr(value, "args", None), getattr(value, "kwds", None)
    if not (isinstance(name, str) and isinstance(args, tuple) and isinstance(keywords, dict)):
        return f"{type(value).__qualname__}(...)"
    return f"{name}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in keywords.items())])})"


def as_given(value: object, most: int = 120) -> str:
    """Return a value for an error: `described`, cut to `most` characters, or what looks secret."""
    return secret_in(value) or described(value)[:most]


def changed(value: Any, shown: Callable[[Any], str] = described) -> str:
    """Return the call that makes a dataclass, with only the fields that differ from the default."""
    default = type(value)()
    pairs = [(each.name, getattr(value, each.name)) for each in fields(value)]
    given = [f"{name}={shown(it)}" for name, it in pairs if it != getattr(default, name)]
    return f"{type(value).__name__}({', '.join(given)})"


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_END_S = 253402300800  # the first second of the year 10000, which `datetime` cannot represent
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


def unknown(
    kind: str,
    given: object,
    known: Iterable[str],
    *,
    possible: str | None = None,
    shown: Callable[[str], str] = str,
) -> str:
    """Return the text of an error about an unknown name.

    "unknown victim 'servce'; did you mean 'service'? Possible: service, facilitator": it has the
    given name, the nearest known name if one is near, and by default all names. The only name that
    begins with the given text is near, too. `shown` formats a name.
    """
    from difflib import get_close_matches  # late: misspelt names are rare

    names, text = [str(name) for name in known], str(given)
    near = get_close_matches(text, names, n=1, cutoff=0.6)
    longer = [name for name in names if text and name.startswith(text)]
    near = near or longer[: len(longer) == 1]
    hint = f"; did you mean {shown(near[0])!r}?" if near else "."
    possible = possible or f"Possible: {', '.join(map(shown, names)) or 'none'}"
    return f"unknown {kind} {secret_in(given) or repr(text)}{hint} {possible}"


def near_url(text: str) -> str:
    """Return a hint for a text that would be a URL with http:// in front; else an empty text."""
    is_near = "://" not in text and ("." in text or ":" in text) and not secret_in(text)
    return f"; did you mean http://{text}?" if is_near else ""


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: "1 start", "2 starts"; `several` is a plural without an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def often(number: int) -> str:
    """Return how often something happened: "once", "3 times"."""
    return "once" if number == 1 else f"{number} times"
