"""The journal: order, numbers, the form of its lines, and which files it reads."""

import json
import os
import pickle
import platform
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from x402sim import __version__
from x402sim.events import (
    KINDS,
    Event,
    NoAnswer,
    Note,
    PaymentIndexed,
    RequestSent,
)
from x402sim.journal import EVERY, HEADER, OURS, VERSION, Entry, Journal, Maker, line
from x402sim.report.columns import UNREAD, tables

INDEXED = PaymentIndexed(payment_id="pay_1", block=7)


def filled(count: int, limit: int | None = None) -> Journal:
    journal = Journal(limit)
    for number in range(count):
        journal.record(1000 + number, PaymentIndexed(payment_id="pay_1", block=number))
    return journal


def test_with_a_limit_only_the_newest_are_kept_and_numbers_go_on():
    journal = filled(5, limit=3)
    assert (len(journal), journal.length) == (3, 5)
    for seq, kept in (0, [2, 3, 4]), (3, [3, 4]), (4, [4]), (5, []), (99, []):
        assert [entry.seq for entry in journal.since(seq)] == kept
        assert [entry.seq for entry in Journal.load(journal.ndjson(seq))] == kept
    read = Journal.load(journal.ndjson())
    read.record(1, INDEXED)
    assert [entry.seq for entry in read] == [2, 3, 4, 5], "a journal that was read goes on"


# --- listeners, merging ----------------------------------------------------------------


def test_a_listener_hears_everything_and_may_record_itself():
    journal, heard = Journal(), []

    def listener(entry: Entry) -> None:
        heard.append(entry.event)
        if entry.event == INDEXED:
            journal.record(entry.at_ms, Note(name="heard"))

    journal.listeners.append(listener)
    journal.record(1, INDEXED)
    journal.record(2, Note(name="left"))
    assert heard == [INDEXED, Note(name="heard"), Note(name="left")]
    assert [(entry.seq, entry.event) for entry in journal] == list(enumerate(heard))


def test_merging_puts_entries_in_order_of_time_and_numbers_them_again():
    ours, theirs = Journal(), Journal()
    for at_ms in (1, 3, 5):
        ours.record(at_ms, Note(name="us"))
    for at_ms in (0, 3, 9):
        theirs.record(at_ms, Note(name="them"))
    ours.merge(theirs)
    assert [(entry.seq, entry.at_ms, entry.event.name) for entry in ours] == [
        (0, 1, "us"), (1, 1, "them"), (2, 3, "us"), (3, 3, "them"), (4, 5, "us"), (5, 9, "them"),
    ]  # fmt: skip
    ours.record(10, INDEXED)
    assert list(ours)[-1].seq == 6


# --- which files it reads --------------------------------------------------------------


VERSIONS = {
    b'{"seq":0,"at_ms":1,"actor":"world","event":"begin"}': "version 1 .*; version 6 is needed",
    b'{"journal":"x402sim","version":2}': "this journal has version 2; version 6 is needed",
    b'{"journal":"x402sim","version":"2"}': "this journal has version '2'",
    **dict.fromkeys(
        (b'{"journal":"x402sim"}', b'{"journal":"another"}', b"\xff", b"[]", b"", b"[" * 400_000),
        "this is no journal",
    ),
}
ENTRIES = [
    *(b"{}", b"[]", b"\xff", b"", b'{"seq":' + b"[" * 400_000),
    b'{"seq":1,"at_ms":1,"event":"unheard of","actor":"world"}',
    b'{"seq":1,"at_ms":1,"event":"sessions expired","actor":"service"}',
    b'{"seq":1,"at_ms":1,"event":"sessions expired","actor":"service","count":"1"}',
    b'{"seq":"1","at_ms":1,"event":"sessions expired","actor":"service","count":1}',
    b'{"event":"sessions expired","actor":"service","count":1}',
]


def test_a_file_of_another_version_or_with_a_line_that_is_no_entry_is_refused_by_name():
    assert VERSION == 6
    wrong = [
        (first + rest, VERSIONS[first])
        for first in VERSIONS
        for rest in (b"", b"\n", b"\n" + HEADER)
    ]
    whole, says = filled(1).ndjson(), "line 3 is no entry of a journal"
    for text, told in [*wrong, *((whole + bad + b"\n", says) for bad in ENTRIES)]:
        with pytest.raises(ValueError, match=told):
            Journal.load(text)


# --- columns -------------------------------------------------------------------------

VALUES = {
    str: ["", "a", "b", "a", "world"],
    int: [0, -1, 2**63 - 1, 2**70, 7],
    bool: [True, False],
    float: [1.0, 0.5],
    type(None): [None],
    dict[str, str]: [{}, {"a": "b"}],
    msgspec.UnsetType: [msgspec.UNSET],
}
SCALARS = [1, True, 1.0, "1", None, "True", 0, False]


def example(kind: type, number: int) -> Event:
    """Return an event of a kind; each number gives its fields other values."""
    made = {}
    for field in msgspec.structs.fields(kind):
        types = get_args(field.type) or (field.type,)
        choices = [value for each in types for value in VALUES.get(each, ())]
        if isinstance(types[0], str):
            choices = list(types)
        elif len(types) > 3 or Any in types:
            choices = SCALARS
        made[field.name] = choices[number % len(choices)] if choices else field.type()
    return kind(**made)


def test_every_kind_of_event_comes_back_from_columns_as_it_was_recorded():
    recorded = [example(kind, number) for number in range(40) for kind in KINDS]
    journal = Journal()
    for number, event in enumerate(recorded):
        journal.record(number, event)
    assert len(journal._storage._batches) == len(recorded) // EVERY == 1
    lines = [line(Entry(number, number, event)) for number, event in enumerate(recorded)]
    assert [line(entry) for entry in journal] == lines  # 1, 1.0 and True are equal, their lines not
    for kind in KINDS:
        found = [entry for entry in journal if type(entry.event) is kind]
        assert list(journal.of(kind)) == found
        names = ("seq", "at_ms", *kind.__struct_fields__)
        values = [(e.seq, e.at_ms, *msgspec.structs.astuple(e.event)) for e in found]
        if kind in UNREAD:
            continue
        (table,) = tables(journal, kind)
        assert list(zip(*map(table.listed, names), strict=True)) == values
    kinds = (RequestSent, NoAnswer, Note)
    found = [entry.event for entry in journal.of(*kinds)]
    assert found == [event for event in recorded if isinstance(event, kinds)]


# --- who made it -------------------------------------------------------------------------


def test_the_versions_stand_beside_a_journal_and_not_in_it(tmp_path: Path) -> None:
    """Its lines, and so its hash, are the same whichever versions made it."""
    journal = Journal()
    journal.record(5, Note(name="x", data={}))
    assert journal.maker == Maker(__version__, platform.python_version()) == OURS
    other = Journal.load(journal.ndjson(), Maker("0.0.9", "3.11.1"))
    assert (other.sha256(), other.ndjson()) == (journal.sha256(), journal.ndjson())
    assert __version__.encode() not in journal.ndjson()
    assert pickle.loads(pickle.dumps(other)).maker == other.maker
    assert Journal.load(journal.ndjson()).maker is None, "it is not known"
    file, beside = tmp_path / "run.ndjson", tmp_path / "run.ndjson.made.json"
    other.save(file)
    assert json.loads(beside.read_text()) == {"x402sim": "0.0.9", "python": "3.11.1"}
    assert Journal.open(file).maker == other.maker
    other.played("study.py:story")
    assert other.sha256() == journal.sha256()
    other.save(file)
    assert Journal.open(file).maker == Maker(OURS.x402sim, OURS.python, "study.py:story")
    Journal.load(journal.ndjson()).save(file)
    assert not beside.exists(), "what is not known is not said by an older file"
    assert Journal.open(file).maker is None
    for broken in (b"", b"[]", b"{"):
        beside.write_bytes(broken)
        assert Journal.open(file).maker is None


def test_what_keeps_no_journal_has_nothing_beside_it() -> None:
    before = set(os.listdir("/dev"))
    journal = Journal(file=Path(os.devnull))
    journal.record(5, Note(name="x", data={}))
    journal.close()
    Journal().save(Path(os.devnull))
    assert {each for each in set(os.listdir("/dev")) - before if "made" in each} == set()
