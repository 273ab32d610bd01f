"""Writes what was found out about a service as a target file.

A value that departs from a sentence of the specification is no choice that a service has: it is
left as a comment that names the sentence, so that the checks judge it.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from x402sim.suite.service.deviations import Deviation, deviations
from x402sim.suite.service.target import SPEC, Target, value_of
from x402sim.text.words import printable

WIDTH = 80
NEEDED = (
    "payment_required.payment_id",
    "payment_required.requirements",
    "pay.spelling",
    "sessions.header",
)
"""Keys that are written even if they depart: without them, nothing can be read or paid."""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """One key of a target file: its value and how it was found; no value if it was not."""

    key: str
    value: Any
    how: str
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found out: the base URL, and the findings for each table of a target file."""

    base_url: str
    tables: dict[str, list[FoundKey]]


_OWNERS = {
    "sessions.duration_unit_s": "the seconds in one unit of duration",
    "sessions.refund_within_s": "the seconds from the end of a session to its refund, at most",
    "indexer.interval_s": "the seconds between two runs of the payment indexer",
}
"""The keys that only the owner knows, and without which much is not judged."""

_WITHOUT_IT = "without it, 3/expiry-refund is judged in part"
_UNSEEN = {
    "protected.second_pair": "another pair that is quoted",
    "sessions.claim_path": "where a paid session is claimed, with {paymentId}",
    "sessions.id": "where the session id is: a JSON pointer or a header; empty: anywhere",
    "sessions.shortest": "the shortest duration that is accepted; its end is waited for",
    **{
        key: f"{_OWNERS[key]}; {_WITHOUT_IT}"
        for key in ("sessions.duration_unit_s", "sessions.refund_within_s")
    },
    "sessions.view": "the path of a session's state, with {sessionId}",
    "sessions.header": "the header that a request is paid with from a session",
    "record.path": "the path of a stored payment, with {paymentId}",
    "indexer.interval_s": _OWNERS["indexer.interval_s"],
}
"""The keys that no request shows, and what they mean."""


NO_SECOND = 'another path that is sold; set it, or set "" if there is none'
"""What a file says where no second path was found: without the key, 5/resource-binding is open."""


def to_ask(looked: Looked) -> str:
    """Return which keys the owner should set; empty if there are none."""
    lines = [
        f"  second.path: {NO_SECOND}"
        for each in looked.tables.get("second", ())
        if each.key == "path" and not each.is_sure
    ]
    if any(each.key == "path" for each in looked.tables.get("sessions", ())):
        lines += [f"  {key}: {meaning}" for key, meaning in _OWNERS.items()]
    return "\n".join(["only its owner knows, so set in it:", *lines]) if lines else ""


def as_toml(looked: Looked, name: str) -> str:
    """Return a target file of the findings; what is not sure or departs is a comment."""
    tables = _with_unseen(looked.tables)
    sure = {
        table: {each.key: each.value for each in findings if each.is_sure}
        for table, findings in tables.items()
    }
    departing = deviations(msgspec.convert(sure, Target))
    lines = [
        f"# What could be found out about {looked.base_url} without paying, and how.",
        "# A line that begins with # was not seen, or departs from the specification: the",
        "# comment says which. All keys: README.md in x402sim/conformance/service.",
        "",
        f"name = {json.dumps(name)}",
    ]
    for table, findings in tables.items():
        lines += ["", f"[{table}]"]
        for each in findings:
            lines += _written(each, departing.get(f"{table}.{each.key}"))
    return "\n".join(lines) + "\n"


def _with_unseen(tables: dict[str, list[FoundKey]]) -> dict[str, list[FoundKey]]:
    """Return the tables with the keys that no request shows, unless there are no sessions."""
    full = {table: list(findings) for table, findings in tables.items()}
    has_sessions = any(each.key == "path" for each in full.get("sessions", ()))
    for key, meaning in _UNSEEN.items():
        table, name = key.split(".")
        is_seen = any(each.key == name for each in full.get(table, ()))
        if not is_seen and (has_sessions or table != "sessions"):
            found = FoundKey(name, value_of(SPEC, key), meaning, False)
            full.setdefault(table, []).append(found)
    return full


def _written(found: FoundKey, deviation: Deviation | None) -> Iterator[str]:
    """Yield the lines of one key."""
    line, how = f"{found.key} = {_toml(found.value)}", printable(found.how)
    if deviation is None:
        line = line if found.is_sure else f"# {line}"
        if max(len(line), 36) + len(how) + 3 <= WIDTH:
            yield f"{line:36} # {how}"
            return
        yield from _comment(how)
        yield line
    elif deviation.key in NEEDED:
        yield from _comment(
            f"{how}; this departs from {deviation.sentence} It is set, because nothing can be read "
            "or paid without it."
        )
        yield line
    else:
        yield from _comment(f"{how}; left out, because it departs from {deviation.sentence}")
        yield f"# {line}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False)]


def _toml(value: Any) -> str:
    """Return a value in TOML, on one line."""
    match value:
        case dict():
            inner = ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items())
            return "{ " + inner + " }" if inner else "{}"
        case list():
            return f"[{', '.join(_toml(each) for each in value)}]"
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
        case _:
            return json.dumps(value)
