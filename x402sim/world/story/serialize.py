"""Converts a world's options and checked values into journal fields."""

from dataclasses import fields
from typing import Any

from x402sim.events import Scalar
from x402sim.protocol.networks import MAINNET
from x402sim.spec.decisions import Decisions


def options(**given: Any) -> dict[str, str]:
    """Return the given options of a world, as Python source."""
    return {name: _python(value) for name, value in given.items() if value}


def _python(value: Any) -> str:
    if value == MAINNET:
        return "MAINNET"
    if not isinstance(value, Decisions):
        return repr(value)
    as_ever = Decisions()
    names = [each.name for each in fields(value)]
    changed = [n for n in names if getattr(value, n) != getattr(as_ever, n)]
    return f"Decisions({', '.join(f'{n}={getattr(value, n)!r}' for n in changed)})"


def value(given: Any) -> Scalar:
    """Return a value as a JSON scalar."""
    return given if isinstance(given, str | int | float | bool | None) else repr(given)
