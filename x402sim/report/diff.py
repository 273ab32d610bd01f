"""At which event do two runs first differ, and in what?"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import UNSET

from x402sim.journal import Event, Journal

CONTEXT = 3
"""Equal events told before the first difference."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first two events that differ; None where a journal has ended.

    `changed` are the fields that differ, with their two values (`msgspec.UNSET`: not there).
    """

    position: int
    a: Event | None
    b: Event | None
    changed: dict[str, tuple[Any, Any]]


def first_difference(a: Journal, b: Journal) -> Difference | None:
    """Return where two journals first differ; None if they are equal, byte for byte."""
    for position, (one, other) in enumerate(zip_longest(a, b)):
        if _ENCODER.encode(one) != _ENCODER.encode(other):
            return Difference(position, one, other, _changed(one, other))
    return None


def tell(a: Journal, b: Journal) -> list[str]:
    """Return lines that tell where two journals first differ; none if they are equal."""
    found = first_difference(a, b)
    if found is None:
        return []
    lines = [f"{found.position} events are equal, and then the runs differ:"]
    before = [event for n, event in enumerate(a) if found.position - CONTEXT <= n < found.position]
    lines += [f"    {_told(event)}" for event in before]
    lines += [f"  a {_told(found.a)}", f"  b {_told(found.b)}"]
    if found.a and found.b:
        lines += [
            f"    {name}: a {_json(one)}, b {_json(other)}"
            for name, (one, other) in found.changed.items()
        ]
    return lines


def _changed(one: Event | None, other: Event | None) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ: those of the event, and `data.…` for its facts."""
    flat_a, flat_b = dict(_fields(one)), dict(_fields(other))
    pairs = {
        name: (flat_a.get(name, UNSET), flat_b.get(name, UNSET))
        for name in dict.fromkeys([*flat_a, *flat_b])
    }
    return {name: pair for name, pair in pairs.items() if _json(pair[0]) != _json(pair[1])}


def _fields(event: Event | None) -> Iterator[tuple[str, Any]]:
    if event is None:
        return
    yield from (("seq", event.seq), ("at_ms", event.at_ms))
    yield from (("actor", event.actor), ("event", event.event))
    yield from ((f"data.{name}", value) for name, value in sorted(event.data.items()))


def _told(event: Event | None) -> str:
    if event is None:
        return "(the journal ends here)"
    return f"{event.seq} at {event.at_ms} ms: {event.actor} {event.event} {_json(event.data)}"


def _json(value: Any) -> str:
    return "(not there)" if value is UNSET else _ENCODER.encode(value).decode()
