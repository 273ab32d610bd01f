"""Finds values in JSON documents; places are JSON pointers.

The specification does not say where a service shows a stored payment, or a session: it may be
anywhere in an answer, and its names may be written in camelCase.
"""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote


def find(body: Any, fits: Callable[[str, Any], bool]) -> str:
    """Return where the first fitting value is, the outer ones first; empty if there is none.

    `fits` is called with the name of a field, or a number in a list, and its value.
    """
    return next((place for place, value in walk(body) if fits(last_part(place), value)), "")


def last_part(place: str) -> str:
    """Return the last part of a place: the name of a field, or a number in a list."""
    return place.rpartition("/")[2]


def walk(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a JSON document with its pointer, the outer ones first."""
    layer = [("", body)]
    while layer:
        yield from layer
        layer = [
            (f"{where}/{str(name).replace('~', '~0').replace('/', '~1')}", inner)
            for where, value in layer
            for name, inner in (
                value.items()
                if isinstance(value, dict)
                else enumerate(value)
                if isinstance(value, list)
                else ()
            )
        ]


def shown(body: Any, *names: str) -> dict[str, Any] | None:
    """Return the first object that has these fields, with names in snake_case; None without one."""
    for _, value in walk(body):
        named = {snake(name): each for name, each in value.items()} if type(value) is dict else {}
        if named.keys() >= {*names}:
            return named
    return None


def snake(name: str) -> str:
    """Return a field's name in snake_case."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def begins(value: Any, prefix: str) -> bool:
    """Tell whether a value is a text with this beginning."""
    return isinstance(value, str) and value.startswith(prefix)


def is_requirements(value: Any) -> bool:
    """Tell whether a value is an object as section 2.1 has it: with a payee and an amount."""
    return isinstance(value, dict) and {"payTo", "maxAmountRequired"} <= set(value)


def whole(value: Any) -> int | None:
    """Return a JSON number that is whole, however it is written (300.0); None for another value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and value == value // 1 else None


def filled(path: str, name: str, opaque: str) -> str:
    """Return a path of a target file with an id in place of {name}; any id fits into a path."""
    return path.replace(f"{{{name}}}", quote(opaque, safe="-._~"))
