"""Finds the first different event of two runs, and the fields that differ.

Runs that begin differently, such as with another seed or title, are compared further.

Two recordings of `watch` differ in every time, id and hash, so only the order of requests and
answers, and the findings, are compared.
"""

from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import UNSET

from x402sim.events import Begin, ExchangeEvent, FaultInjected, Note, PaymentSettled, name_of
from x402sim.journal import Entry, Journal, line

CONTEXT = 3
"""Equal events shown before the first difference."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


def describe(a: Journal, b: Journal) -> list[str]:
    """Return lines that show where two journals first differ; none for equal journals."""
    before = deque[Entry](maxlen=CONTEXT)
    both = all(map(_is_watched, (a, b)))
    pairs = zip_longest(_lasting(a), _lasting(b)) if both else zip_longest(a, b)
    begins: list[str] = []
    equal = 0
    for one, other in pairs:
        if one and other and line(one) == line(other):
            equal += 1
            before.append(one)
        elif one and other and isinstance(one.event, Begin) and isinstance(other.event, Begin):
            begins = ["the runs begin differently:", *_changes(one, other)]
        else:
            return [
                *begins,
                f"{equal} events are equal, and then the runs differ:",
                *(f"    {_shown(entry)}" for entry in before),
                *(f"  a {_shown(one)}", f"  b {_shown(other)}"),
                *(_changes(one, other) if one and other else ()),
            ]
    return [*begins, f"all other {equal} events are equal"] if begins else []


def _is_watched(journal: Journal) -> bool:
    begin = next(journal.events(Begin), None)
    return begin is not None and begin.upstream is not UNSET


_NEW_EACH_TIME = ("payment_id", "session_id", "authorization", "tx_hash", "payer")


def _lasting(journal: Journal) -> Iterator[Entry]:
    """Yield a recording's events, renumbered, without facts that differ for equal traffic."""
    seq = 0
    for entry in journal:
        event = entry.event
        if isinstance(event, Note):
            if event.name not in ("finding", "fault struck"):
                continue
            kept = {name: event.data.get(name) for name in ("mark", "about", "does", "path")}
            event = Note(name=event.name, data=kept)
        elif isinstance(event, ExchangeEvent | PaymentSettled):
            ids = {name: "…" for name in _NEW_EACH_TIME if getattr(event, name, None)}
            event = msgspec.structs.replace(event, **ids)
        elif not isinstance(event, FaultInjected):
            continue
        yield Entry(seq, 0, event)
        seq += 1


def _changes(one: Entry, other: Entry) -> Iterator[str]:
    a, b = (msgspec.json.decode(line(entry)) for entry in (one, other))
    for name in dict.fromkeys([*a, *b]):
        shown = [_json(fields.get(name, UNSET)) for fields in (a, b)]
        if shown[0] != shown[1]:
            yield f"    {name}: a {shown[0]}, b {shown[1]}"


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return "(the journal ends here)"
    fields = msgspec.structs.asdict(entry.event).items()
    event = {name: value for name, value in fields if name != "actor" and value is not UNSET}
    detail = f"{entry.event.actor} {name_of(entry.event)} {_json(event)}"
    return f"{entry.seq} at {entry.at_ms} ms: {detail}"


def _json(value: Any) -> str:
    return "(not there)" if value is UNSET else _ENCODER.encode(value).decode()
