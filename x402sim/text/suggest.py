"""Suggests the nearest known name for a misspelt one, in the text of an error."""

from collections.abc import Callable, Iterable


def unknown(
    kind: str,
    given: str,
    known: Iterable[str],
    *,
    possible: str | None = None,
    shown: Callable[[str], str] = str,
) -> str:
    """Return the text of an error about a name that does not exist.

    It has what was given, the nearest known name if one is near, and what is possible; by default
    all names: "unknown victim 'servce'; did you mean 'service'? Possible: service, facilitator".
    A name is near, too, if it alone begins with what was given. `shown` is how a name is shown.
    """
    from difflib import get_close_matches  # few names are misspelt

    names = [str(name) for name in known]
    near = get_close_matches(given, names, n=1, cutoff=0.6)
    longer = [name for name in names if given and name.startswith(given)]
    near = near or longer[: len(longer) == 1]
    hint = f"; did you mean {shown(near[0])!r}?" if near else "."
    possible = possible or f"Possible: {', '.join(map(shown, names)) or 'none'}"
    return f"unknown {kind} {str(given)!r}{hint} {possible}"


def near_url(text: str) -> str:
    """Return what to say of a text that would be a URL with http:// before it; else nothing."""
    is_near = "://" not in text and ("." in text or ":" in text)
    return f"; did you mean http://{text}?" if is_near else ""
