"""Writes the Python program that plays one case again."""

from collections.abc import Mapping
from typing import Any

import msgspec

from x402sim.explore.case import Case

_WIDTH = 100


def program(case: Case) -> str:
    """Return a program of public names; it prints what the case breaks, and its journal's hash."""
    names = sorted({type(step).__name__ for step in case.steps} | {"Case"})
    has_fault = any("fault" in step.__struct_fields__ for step in case.steps)
    imports = [f"from x402sim.explore.case import {', '.join(names)}"]
    imports.append("from x402sim.explore.play import play")
    if has_fault:
        imports.insert(0, "from x402sim import Fault")
    lines = [*imports, "", f"played = play({_code(case, 0)})"]
    lines += [
        "print(*played.violations, sep='\\n')",
        "print('journal sha256', played.journal.sha256())",
    ]
    return "\n".join(lines) + "\n"


def _code(value: Any, depth: int) -> str:
    """Return Python code that makes a value; fields with their default values are left out."""
    if isinstance(value, msgspec.Struct):
        arguments = [
            f"{each.name}={_code(getattr(value, each.name), depth + 1)}"
            for each in msgspec.structs.fields(value)
            if each.required or getattr(value, each.name) != _default(each)
        ]
        return _call(f"{type(value).__name__}(", arguments, ")", depth)
    if isinstance(value, tuple):
        items = [_code(each, depth + 1) for each in value]
        return _call("(", items, ",)" if len(items) == 1 else ")", depth)
    if isinstance(value, Mapping):
        return repr(dict(value))
    return repr(value)


def _default(each: msgspec.structs.FieldInfo) -> Any:
    if each.default_factory is not msgspec.NODEFAULT:
        return each.default_factory()
    return each.default


def _call(opening: str, items: list[str], closing: str, depth: int) -> str:
    """Return items between brackets, on one line if they fit."""
    short = opening + ", ".join(items) + closing
    if len(short) + 4 * depth <= _WIDTH and "\n" not in short:
        return short
    inner = "".join(f"{'    ' * (depth + 1)}{item},\n" for item in items)
    return f"{opening}\n{inner}{'    ' * depth}{closing.lstrip(',')}"
