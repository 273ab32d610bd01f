"""Reads users' TOML files, with limited nesting."""

import tomllib
from pathlib import Path
from typing import Any

MOST_NESTED = 50
"""More levels of tables and lists than any of our files has."""


def read_toml(file: Path) -> dict[str, Any]:
    """Return the table in a file; raises `OSError`, and `ValueError` that says what is wrong.

    Dotted keys may nest so deeply that a later recursion over the table would overflow the stack.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    inside: list[Any] = [table]
    for _ in range(MOST_NESTED):
        values = (each.values() if isinstance(each, dict) else each for each in inside)
        inside = [each for some in values for each in some if isinstance(each, dict | list)]
    if inside:
        raise ValueError(_TOO_DEEP)
    return table


_TOO_DEEP = f"it is nested too deeply: at most {MOST_NESTED} tables and lists in each other"
