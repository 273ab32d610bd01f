"""How is it written into a journal what a world is made of, and what becomes of it?"""

import traceback
from dataclasses import fields
from typing import Any

import msgspec

from x402sim.protocol.networks import MAINNET
from x402sim.spec.decisions import Decisions
from x402sim.world.transport.faults import Fault


def options(**given: Any) -> dict[str, str]:
    """Return those options of a world that were given, as Python has them."""
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


def value(given: Any) -> Any:
    """Return a value as the journal can hold it."""
    return given if isinstance(given, str | int | float | bool | None) else repr(given)


def fault(given: Fault) -> dict[str, Any]:
    """Return what is said of a fault: its fields, but for those that are as ever."""
    as_ever = {field.name: field.default for field in msgspec.structs.fields(Fault)}
    told = msgspec.to_builtins(given)
    return {name: value for name, value in told.items() if value != as_ever[name]}


def trace(error: BaseException) -> list[str]:
    """Return where an error came from, and what caused it before; no machine's paths."""
    before = trace(error.__cause__) if error.__cause__ else []
    frames = traceback.extract_tb(error.__traceback__)
    return before + [f"{frame.name}: {frame.line}" for frame in frames]
