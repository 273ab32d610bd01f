"""Finds the first event at which two runs differ, and in what."""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import UNSET

from x402sim.events import name_of
from x402sim.journal import Entry, Journal, line

CONTEXT = 3
"""How many equal events are shown before the first difference."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first two events that differ; None where a journal has ended.

    `changed` are the fields that differ, with their two values (`msgspec.UNSET`: not there).
    """

    position: int
    a: Entry | None
    b: Entry | None
    changed: dict[str, tuple[Any, Any]]


def first_difference(a: Journal, b: Journal) -> Difference | None:
    """Return where two journals first differ; None if they are equal, byte for byte."""
    for position, (one, other) in enumerate(zip_longest(a, b)):
        if one is None or other is None or line(one) != line(other):
            return Difference(position, one, other, _changed(one, other))
    return None


def describe(a: Journal, b: Journal) -> list[str]:
    """Return lines that show where two journals first differ; none if they are equal."""
    found = first_difference(a, b)
    if found is None:
        return []
    lines = [f"{found.position} events are equal, and then the runs differ:"]
    before = [entry for n, entry in enumerate(a) if found.position - CONTEXT <= n < found.position]
    lines += [f"    {_shown(entry)}" for entry in before]
    lines += [f"  a {_shown(found.a)}", f"  b {_shown(found.b)}"]
    if found.a and found.b:
        lines += [
            f"    {name}: a {_json(one)}, b {_json(other)}"
            for name, (one, other) in found.changed.items()
        ]
    return lines


def _changed(one: Entry | None, other: Entry | None) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ, in the order of the journal's line."""
    a, b = ({} if entry is None else msgspec.json.decode(line(entry)) for entry in (one, other))
    pairs = {name: (a.get(name, UNSET), b.get(name, UNSET)) for name in dict.fromkeys([*a, *b])}
    return {name: pair for name, pair in pairs.items() if _json(pair[0]) != _json(pair[1])}


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return "(the journal ends here)"
    event = msgspec.structs.asdict(entry.event)
    del event["actor"]
    detail = f"{entry.event.actor} {name_of(entry.event)} {_json(event)}"
    return f"{entry.seq} at {entry.at_ms} ms: {detail}"


def _json(value: Any) -> str:
    return "(not there)" if value is UNSET else _ENCODER.encode(value).decode()
