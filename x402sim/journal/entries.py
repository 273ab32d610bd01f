"""The form of a journal's file: its first line, and one line for each entry."""

import re
from typing import Any

import msgspec

from x402sim.events import Event

VERSION = 5
"""Of the format; it changes when an event, a field or their order does."""
MAX_BRACKETS = 1000
"""More arrays and objects than a line has, and few enough for a small stack."""
HEADER = b'{"journal":"x402sim","version":%d}\n' % VERSION
"""The first line of every journal; it is part of the hash."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event in its journal: `seq` counts from 0, `at_ms` is Unix milliseconds."""

    seq: int
    at_ms: int
    event: Event


class _Number(msgspec.Struct, frozen=True, gc=False):
    seq: int
    at_ms: int


_encoder = msgspec.json.Encoder(order="deterministic")
_decode_number = msgspec.json.Decoder(_Number).decode
_decode_event = msgspec.json.Decoder(Event).decode
_TAG = re.compile(rb'\{"seq":\d+,"at_ms":\d+,"event":"([a-z ]+)"')


def line(entry: Entry) -> bytes:
    """Return an entry as one JSON object: seq, at_ms, and the event's fields as declared."""
    return b'{"seq":%d,"at_ms":%d,' % (entry.seq, entry.at_ms) + _encoder.encode(entry.event)[1:]


def read_line(number: int, text: bytes) -> Entry:
    """Return the entry that a line holds; raises `ValueError` that names the line."""
    if _brackets(text) > MAX_BRACKETS:
        raise ValueError(f"line {number} is no entry of a journal: it is nested too deeply")
    try:
        at = _decode_number(text)
        return Entry(at.seq, at.at_ms, _decode_event(text))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"line {number} is no entry of a journal: {error}") from error


def tag_of(text: bytes) -> str | None:
    """Return the name of a line's event without decoding it; None if it is written otherwise."""
    found = _TAG.match(text)
    return found.group(1).decode() if found else None


def _brackets(text: bytes) -> int:
    """Return an upper limit of the depth of JSON: the decoder recurses as deep as it goes."""
    return text.count(b"[") + text.count(b"{")


def require_version(header: bytes) -> None:
    """Raise `ValueError` unless this is the first line of a journal of our version."""
    wanted = f"version {VERSION} is needed"
    try:
        parsed: Any = None if _brackets(header) > MAX_BRACKETS else msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        parsed = None
    match parsed:
        case {"journal": "x402sim", "version": version}:
            if version != VERSION:
                raise ValueError(f"this journal has version {version!r}; {wanted}")
        case {"seq": _, "at_ms": _}:
            raise ValueError(f"this journal has version 1 (it has no header line); {wanted}")
        case _:
            raise ValueError(f"this is no journal: its first line is not {HEADER.decode().strip()}")
