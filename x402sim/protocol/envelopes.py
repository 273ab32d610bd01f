"""Finds a payment's messages inside messages of MCP, A2A and JSON-RPC, and compares copies.

A tool's result or call, an agent's task or message, and errors of JSON-RPC carry the standard's
messages unchanged: a 402, a payment, receipts. `PLACES` lists the places.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from x402sim.protocol.findings import Finding
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage, decoded, fields_of

Fields = Mapping[str, Any]
MOST_COPIES = 20
"""The most texts and receipts of one message for a look."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a message: names, and `each` for all entries of a list."""

    path: tuple[str, ...]
    is_text: bool = False
    """Whether it is JSON in a string."""
    is_copy: bool = False
    """Whether other places hold the same 402."""


_ERROR = "x402/error"
PLACES: Mapping[str, tuple[Place, ...]] = {
    "MCP": (
        Place(("structuredContent",), is_copy=True),
        Place(("paymentRequired",), is_copy=True),  # of the experimental `org.x402/payment`
        Place(("structuredContent", _ERROR, "data"), is_copy=True),
        Place(("content", "each", "text"), is_text=True, is_copy=True),
        Place((_ERROR, "data"), is_copy=True),
        Place(("error", "data"), is_copy=True),
        Place(("_meta", "x402/payment")),
        Place(("_meta", "x402/payment-response")),
        Place(("structuredContent", "x402/payment-response")),
        Place(("error", "data", "x402/payment-response")),
        Place(("x402/payment",)),
        Place(("x402/payment-response",)),
    ),
    "A2A": tuple(
        Place((*before, name, *after))
        for before in (
            ("status", "message", "metadata"),
            ("message", "metadata"),
            ("metadata",),
            (),
        )
        for name, after in (
            ("x402.payment.required", ()),
            ("x402.payment.payload", ()),
            ("x402.payment.receipts", ("each",)),
        )
    ),
}
_STATUSES: Mapping[str, tuple[str, str]] = {
    "payment-required": ("x402.payment.required", "input-required"),
    "payment-rejected": ("", ""),
    "payment-submitted": ("x402.payment.payload", ""),
    "payment-verified": ("", ""),
    "payment-completed": ("x402.payment.receipts", ""),
    "payment-failed": ("x402.payment.receipts", ""),
}
"""The statuses of A2A: the field of each, and the state of the task."""


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A message inside another: the place, and the value of any type."""

    where: str
    fields: Any
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message of another protocol, the messages inside, and faults outside."""

    protocol: str
    enclosed: tuple[Enclosed, ...]
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def envelope_of(fields: Fields) -> Envelope | None:
    """Return the content of a message of MCP, A2A or JSON-RPC; None for any other."""
    if "x402Version" in fields or "accepts" in fields or "success" in fields:
        return None
    roots = [
        (name, fields[name]) for name in ("params", "result") if isinstance(fields.get(name), dict)
    ]
    for protocol, places in PLACES.items():
        for prefix, root in (*roots, ("", fields)):
            found = tuple(_found_in(root, places, f"{prefix}." if prefix else ""))
            if found:
                look = _of_mcp if protocol == "MCP" else _of_a2a
                return Envelope(protocol, found, tuple(look(root, fields, found)))
    is_mcp = any("_meta" in part for part in (fields, *(root for _, root in roots)))
    if "jsonrpc" not in fields and not is_mcp:
        return None
    if misplaced := tuple(_misplaced(fields)):
        is_a2a = any("metadata" in part.where for part in misplaced)
        protocol = "A2A" if is_a2a else "MCP"
        odd = tuple(_elsewhere(part, protocol) for part in misplaced)
        return Envelope(protocol, misplaced, odd)
    error = fields.get("error")
    facts = (
        {name: str(error[name])[:400] for name in ("code", "message", "data") if name in error}
        if isinstance(error, dict)
        else {}
    )
    return Envelope("JSON-RPC", (), (), facts)


def _found_in(root: Fields, places: Sequence[Place], prefix: str) -> Iterator[Enclosed]:
    for place in places:
        for where, value in _at(root, place.path):
            if place.is_text:
                text, wrapped = decoded(str(value).encode("utf-8", "replace")), ""
                if isinstance(text, dict) and isinstance(text.get(_ERROR), dict):
                    text, wrapped = text[_ERROR].get("data"), f" {_ERROR}.data"
                if isinstance(text, dict) and "accepts" in text:
                    yield Enclosed(f"{prefix}{where}{wrapped}", text, is_copy=True)
            elif not place.is_copy or (isinstance(value, dict) and "accepts" in value):
                yield Enclosed(prefix + where, value, place.is_copy)


def _at(value: Any, path: tuple[str, ...], where: str = "") -> Iterator[tuple[str, Any]]:
    if not path:
        yield where, value
        return
    first, *rest = path
    if first == "each":
        for number, each in enumerate(value[:MOST_COPIES] if isinstance(value, list) else ()):
            yield from _at(each, tuple(rest), f"{where}[{number}]")
    elif isinstance(value, dict) and first in value:
        name = f'["{first}"]' if not first.isidentifier() and first != "_meta" else first
        joint = "." if where and not name.startswith("[") else ""
        yield from _at(value[first], tuple(rest), f"{where}{joint}{name}")


_RIGHT_PLACES: tuple[tuple[str, Callable[[Fields], bool], str, str], ...] = (
    (
        "a payment",
        lambda it: "payload" in it,
        'params._meta["x402/payment"]',
        'metadata["x402.payment.payload"]',
    ),
    (
        "a 402",
        lambda it: isinstance(it.get("accepts"), list),
        "result.structuredContent",
        'metadata["x402.payment.required"]',
    ),
    (
        "a receipt",
        lambda it: "success" in it and "transaction" in it,
        'result._meta["x402/payment-response"]',
        'metadata["x402.payment.receipts"]',
    ),
)
"""The parts of a message: how to recognise each, and its place in MCP and in A2A."""
_DEEPEST = 6


def _misplaced(fields: Fields, where: str = "", depth: int = 0) -> Iterator[Enclosed]:
    for name, value in fields.items():
        place = f'{where}["{name}"]' if not name.replace("_", "").isalnum() else f"{where}.{name}"
        place, inner = place.removeprefix("."), value
        if isinstance(value, str) and "payment" in name.lower():
            with suppress(BadMessage):  # a header's value
                inner = decoded(json_of_header(value))
        is_object = isinstance(inner, dict) and depth <= _DEEPEST
        if is_object and any(is_it(inner) for _, is_it, *_ in _RIGHT_PLACES):
            yield Enclosed(place, value)
        elif is_object and (below := list(_misplaced(inner, place, depth + 1))):
            yield from below
        elif "x402" in name.lower():  # meant as a part of a payment
            yield Enclosed(place, value)


def _elsewhere(found: Enclosed, protocol: str) -> Finding:
    fields = found.fields
    if isinstance(fields, str):
        with suppress(BadMessage):
            fields = decoded(json_of_header(fields))
    is_object = isinstance(fields, dict)
    rows = (row for row in _RIGHT_PLACES if is_object and row[1](fields))
    what, _, *rights = next(rows, ("something of x402", None, *_RIGHT_PLACES[0][2:]))
    do = f"Move it there, as an object: programs of {protocol} look nowhere else."
    return Finding(found.where, what, rights[protocol == "A2A"], do)


# --- faults of the envelope ------------------------------------------------------------------


def _of_mcp(root: Fields, fields: Fields, found: Sequence[Enclosed]) -> Iterator[Finding]:
    copies = [part for part in found if part.is_copy]
    if not copies:
        return
    yield from of_copies(copies)
    error = root.get("error")
    if isinstance(error, dict) and "data" in error:
        if error.get("code") != 402:
            do = "Write 402: clients look for it."
            yield Finding("error.code", repr(error.get("code"))[:80], "402", do)
        return
    if (root is fields and _ERROR in fields) or root.get("resultType") == "payment_required":
        return
    if root.get("isError") is not True:
        got = repr(root["isError"])[:80] if "isError" in root else "nothing"
        do = "Set it: clients look for a 402 in results that are errors."
        yield Finding("isError", got, "true", do)
    if not any("content[" in copy.where for copy in copies):
        do = "Put the same 402 there, too, as JSON in the text: some clients read nothing else."
        yield Finding("content[0].text", "no 402", "the 402 as JSON", do, stops=False)


def of_copies(copies: Sequence[Enclosed]) -> Iterator[Finding]:
    """Yield the differences between copies of a message and the first copy."""
    first, *others = copies
    for other in others:
        paths = list(differences(first.fields, other.fields))
        if paths:
            got = f"{other.where} differs from {first.where} in {', '.join(paths[:6])}"
            do = "Write both from one object: clients read either, and pay what they read."
            yield Finding("copies", got, "two equal copies", do)


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            below = f"{path}.{name}" if path else str(name)
            yield from differences(one.get(name), other.get(name), below)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif one != other or type(one) is not type(other):
        yield path or "all"


def _of_a2a(root: Fields, fields: Fields, found: Sequence[Enclosed]) -> Iterator[Finding]:
    """Yield contradictions between the status of a payment and other fields."""
    task = root.get("status")
    places = (fields_of(task).get("message"), root.get("message"), root)
    metadata: Fields = {}
    for each in places:
        inner = fields_of(each).get("metadata", each)
        if isinstance(inner, dict) and any(str(name).startswith("x402.") for name in inner):
            metadata = inner
            break
    status = metadata.get("x402.payment.status")
    if not isinstance(status, str) or status not in _STATUSES:
        got = repr(status)[:80] if status is not None else "nothing"
        do = "Write it: an agent knows by it what the message is."
        yield Finding("x402.payment.status", got, ", ".join(_STATUSES), do)
        return
    name, state = _STATUSES[status]
    if name and not metadata.get(name):
        yield Finding(name, "nothing", f"it, beside {status}", "Send it with this status.")
    if state and isinstance(task, dict) and task.get("state") != state:
        do = f"Set the task's state to {state!r}, so that the client answers."
        yield Finding("status.state", repr(task.get("state"))[:80], repr(state), do)
    receipts = metadata.get("x402.payment.receipts")
    last = receipts[-1] if isinstance(receipts, list) and receipts else None
    success = fields_of(last).get("success")
    is_over = isinstance(success, bool) and status in ("payment-completed", "payment-failed")
    if is_over and success != (status == "payment-completed"):
        got = f"{status}, and the last receipt says {str(success).lower()}"
        do = "Let both say the same."
        yield Finding("x402.payment.status", got, "what the receipt says", do)
