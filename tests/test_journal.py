import hashlib
import json

import pytest

from x402sim.journal import Journal


def filled(count: int, limit: int | None = None) -> Journal:
    journal = Journal(limit)
    for number in range(count):
        journal.record(1000 + number, "service", "answered", number=number)
    return journal


def test_events_are_numbered_from_zero_in_order():
    journal = filled(3)
    assert [(event.seq, event.at_ms) for event in journal] == [(0, 1000), (1, 1001), (2, 1002)]
    assert len(journal) == 3


def test_an_event_is_a_moment_an_actor_what_it_did_and_the_facts():
    journal = Journal()
    journal.record(5, "alice", "signed", amount="10000", to=None)
    (event,) = journal
    assert (event.at_ms, event.actor, event.event) == (5, "alice", "signed")
    assert event.data == {"amount": "10000", "to": None}


def test_with_a_limit_only_the_newest_are_kept_and_numbers_go_on():
    journal = filled(5, limit=2)
    assert [event.seq for event in journal] == [3, 4]
    assert len(journal) == 2


def test_without_a_limit_everything_is_kept():
    assert len(filled(5000)) == 5000


@pytest.mark.parametrize(
    ("seq", "kept"), [(0, [2, 3, 4]), (3, [3, 4]), (4, [4]), (5, []), (99, [])]
)
def test_since_returns_the_kept_events_from_there_on(seq, kept):
    assert [event.seq for event in filled(5, limit=3).since(seq)] == kept


def test_ndjson_is_one_canonical_object_a_line():
    journal = Journal()
    journal.record(5, "alice", "signed", zebra=1, ant={"b": 1, "a": "é"})
    journal.record(6, "bob", "paid")
    first, second = journal.ndjson().splitlines(keepends=True)
    assert first.decode() == (
        '{"seq":0,"at_ms":5,"actor":"alice","event":"signed",'
        '"data":{"ant":{"a":"é","b":1},"zebra":1}}\n'
    )
    assert json.loads(second) == {
        "seq": 1,
        "at_ms": 6,
        "actor": "bob",
        "event": "paid",
        "data": {},
    }


def test_a_line_break_in_a_fact_does_not_break_the_line():
    journal = Journal()
    journal.record(5, "alice", "said", text="one\ntwo\r\u2028three")
    assert journal.ndjson().count(b"\n") == 1


def test_an_empty_journal_has_no_bytes():
    assert Journal().ndjson() == b""


def test_equal_runs_have_equal_bytes_in_whatever_order_facts_are_named():
    one, two = Journal(), Journal()
    one.record(5, "alice", "paid", amount=1, to="bob")
    two.record(5, "alice", "paid", to="bob", amount=1)
    assert one.ndjson() == two.ndjson()
    assert one.sha256() == two.sha256()


def test_sha256_is_that_of_the_bytes():
    journal = filled(3)
    assert journal.sha256() == hashlib.sha256(journal.ndjson()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"at_ms": 6},
        {"actor": "bob"},
        {"event": "asked"},
        {"amount": 2},
        {"more": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_sha256_changes_with_whatever_happened(change):
    def run(**told: object) -> str:
        journal = Journal()
        journal.record(**{"at_ms": 5, "actor": "alice", "event": "paid", "amount": 1} | told)
        return journal.sha256()

    assert run() == run()
    assert run(**change) != run()


def test_sha256_changes_with_one_more_event():
    journal = filled(2)
    before = journal.sha256()
    journal.record(9, "service", "answered")
    assert journal.sha256() != before
