"""Suggests the nearest known name for a misspelt one, in the text of an error."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, seen: str, known: Iterable[str], *, possible: str | None = None) -> str:
    """Return the text of an error about a name that does not exist.

    It says what was seen, the nearest known name if one is near, and what is possible; by default
    all names: "unknown victim 'servce'; did you mean 'service'? Possible: service, facilitator".
    """
    names = [str(name) for name in known]
    near = get_close_matches(seen, names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {str(seen)!r}{hint} {possible or 'Possible: ' + ', '.join(names)}"
