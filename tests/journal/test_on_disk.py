"""A journal in a file: the same bytes, read when asked, and never held in memory."""

import hashlib
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from x402sim import Fault, LiveWorld, World
from x402sim.events import IndexerRan, Note, PaymentIndexed, name_of
from x402sim.journal import EVERY, HEADER, NUMBERS, Entry, Journal, texts_of
from x402sim.population import Every, Session
from x402sim.report.frames import TABLES

INDEXED = PaymentIndexed(payment_id="pay_1", block=7)
MANY = 3 * EVERY + 5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.ndjson"


def fill(journal: Journal, count: int) -> Journal:
    for number in range(count):
        event = Note(name=f"ü\n{number}") if number % 3 else INDEXED
        journal.record(1000 + number, event)
    return journal


def columns_of(journal: Journal) -> list[dict[str, dict[str, list]]]:
    """Return the columns of some kinds as lists, with the texts themselves, by the name of the event."""
    kinds = {name_of(kind): (*NUMBERS, *kind.__struct_fields__) for kind in (Note, PaymentIndexed)}
    wanted = frozenset((name, field) for name, fields in kinds.items() for field in fields)
    texts, batches = journal.columns(wanted)
    return [
        {
            event: {
                name: [texts.all[each] for each in column]
                if name in texts_of(event)
                else list(column)
                for name, column in columns.items()
            }
            for event, columns in batch.items()
        }
        for batch in batches
    ]


@pytest.fixture
def both(file: Path):
    """Return the same journal in memory and in a file."""
    on_disk = fill(Journal(file=file), MANY)
    yield fill(Journal(), MANY), on_disk
    on_disk.close()


def test_both_hold_the_same_while_it_is_written(both):
    in_memory, on_disk = both
    assert list(on_disk) == list(in_memory)
    assert (len(on_disk), on_disk.length) == (MANY, MANY)
    assert on_disk.sha256() == in_memory.sha256()
    assert list(on_disk.of(PaymentIndexed)) == list(in_memory.of(PaymentIndexed)) != []
    assert list(on_disk.of(IndexerRan)) == []
    for seq in -3, 0, 1, EVERY - 1, EVERY, MANY - 1, MANY, MANY + 9:
        assert on_disk.since(seq) == in_memory.since(seq)
        assert on_disk.ndjson(seq) == in_memory.ndjson(seq)
    on_disk.record(5, INDEXED)
    assert len(list(on_disk)) == MANY + 1


def test_the_file_is_the_journal_and_is_opened_without_reading_its_entries(file, both):
    in_memory, on_disk = both
    on_disk.close()
    assert file.read_bytes() == in_memory.ndjson()
    with pytest.raises(ValueError, match="is closed: nothing more can be recorded"):
        on_disk.record(1, INDEXED)
    opened = Journal.open(file)
    assert (opened.length, len(opened), opened.file) == (MANY, MANY, file.resolve())
    assert list(opened) == list(on_disk) == list(in_memory)
    assert opened.sha256() == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_that_is_no_journal_and_a_line_that_is_no_entry_are_refused(file):
    file.write_bytes(b"a shopping list\n")
    with pytest.raises(ValueError, match="this is no journal"):
        Journal.open(file)
    file.write_bytes(
        HEADER + b'{"seq":0}\n' + b'{"event":"note","at_ms":5,"name":"x","seq":0}\n' * EVERY
    )
    with pytest.raises(ValueError, match="line 2 is no entry of a journal"):
        list(Journal.open(file))


@pytest.mark.parametrize("left", [1, 20])
def test_a_last_line_that_a_kill_cut_off_is_left_out(file, left):
    journal = Journal()
    for number in range(3):
        journal.record(number, INDEXED)
    whole = journal.ndjson()
    file.write_bytes(whole[:-left])
    for journal in Journal.load(file.read_bytes()), Journal.open(file):
        is_torn = left > 1  # the line's end alone is no loss
        assert journal.is_torn == is_torn
        assert [entry.seq for entry in journal] == [0, 1] + [2] * (not is_torn)
        assert journal.length == 3 - is_torn
    first, second, *rest = whole.splitlines(keepends=True)
    file.write_bytes(first + second[:-20] + b"\n" + b"".join(rest))
    with pytest.raises(ValueError, match="line 2 is no entry"):  # that is no kill
        list(Journal.open(file))


def test_lines_that_are_spelled_otherwise_are_read_in_every_way(file):
    otherwise = b'{"name":"x", "data":{"a":[[]]}, "event":"note", "at_ms":7, "seq":1}\n'
    notes = b"".join(b'{"seq":%d,"at_ms":8,"event":"note","name":"y","data":{}}\n' % n
                     for n in range(2, EVERY))  # fmt: skip
    file.write_bytes(
        HEADER + b'{"seq":0,"at_ms":5,"event":"note","name":"x"}\n' + otherwise + notes
    )
    journal = Journal.open(file)
    found = list(journal)
    assert (found[1], len(found)) == (Entry(1, 7, Note(name="x", data={"a": [[]]})), EVERY)
    assert list(journal.of(Note)) == list(journal.of(Note, holding=b'"name":"x"')) == found
    (columns,) = columns_of(journal)
    assert columns["note"]["data"] == [each.event.data for each in found]
    assert columns["note"]["seq"] == list(range(EVERY))


@pytest.mark.parametrize(
    "strange",
    [
        b'{"seq":%d,"at_ms":9000,"x":1,"event":"payment indexed","payment_id":"pay_2","block":8}\n',
        b'{"at_ms":9000,"seq":%d,"event":"payment indexed","payment_id":"pay_2","block":8}\n',
        b'{"seq":%d,"at_ms":90000,"event":"payment indexed","payment_id":"pay_2","block":8}\n',
        b'{"seq":%d,"at_ms":9000,"event": "payment indexed","payment_id":"pay_2","block":8}\n',
        b'{"seq":%d,"at_ms":9000,"event":"payment indexed","actor":"\\u0073","payment_id":"\\u0070","block":8}\n',
    ],
)
def test_a_line_of_another_writer_is_found_among_ours(file, strange):
    """Names are looked for where those of the first line of a block are."""
    lines = [b'{"seq":%d,"at_ms":1000,"event":"note","actor":"world","name":"x","data":{}}\n' % n
             for n in range(1000, 1000 + 2 * EVERY)]  # fmt: skip
    for place in 0, 7, EVERY + 1:
        written = list(lines)
        written[place] = strange % (1000 + place)
        file.write_bytes(HEADER + b"".join(written))
        journal = Journal.open(file)
        (found,) = journal.of(PaymentIndexed)
        assert (found.seq, found.event.block) == (1000 + place, 8)
        assert len(list(journal.of(Note))) == 2 * EVERY - 1
        assert [
            len(batch["payment indexed"]["seq"])
            for batch in columns_of(journal)
            if "payment indexed" in batch
        ] == [1]


@pytest.mark.parametrize(
    "wrong",
    [b"\n", b"{}\n", b'{"seq":1}{"seq":2}\n', b"[" * 9999 + b"\n", b"\xff\n"],
    ids=["blank", "empty", "two", "deep", "no text"],
)
def test_a_frame_names_the_line_that_is_no_entry(file, wrong):
    file.write_bytes(HEADER + b'{"seq":0,"at_ms":5,"event":"note","name":"x"}\n' + wrong)
    with pytest.raises(ValueError, match="line 3 is no entry of a journal"):
        columns_of(Journal.open(file))


def test_merging_writes_the_file_anew(file, both):
    for journal in both:
        journal.merge([Entry(0, 1500, Note(name="them"))])
        journal.record(9, INDEXED)
    both[1].close()
    assert file.read_bytes() == both[0].ndjson()


def test_saving_copies_the_file_but_not_onto_itself(file, both, tmp_path):
    both[1].close()
    both[1].save(file)
    both[1].save(tmp_path / "copy.ndjson")
    both[0].save(tmp_path / "third.ndjson")
    texts = {(tmp_path / name).read_bytes() for name in ("copy.ndjson", "third.ndjson")}
    assert texts == {file.read_bytes()} == {both[0].ndjson()}


# --- a world -------------------------------------------------------------------------


async def story(world: LiveWorld) -> None:
    await world.fault(Fault(victim="service", does="lose answer", probability=0.1, times=None))
    behaviour = Session(deposit="0.05", requests=3, wait=20, duration=300)
    await world.population(6, arrivals=Every(40), behaviour=behaviour, until_s=400)
    await world.advance(900)
    world.expect(world.clock.now() > 0, True, "3/expiry-refund")


def test_a_run_on_disk_has_the_same_bytes_frames_and_outcome(file):
    in_memory, on_disk = World(seed=2).play(story), World(seed=2, journal=file).play(story)
    assert file.read_bytes() == in_memory.journal.ndjson()
    assert on_disk.sha256 == in_memory.sha256
    assert (on_disk.outcome, on_disk.reason) == (in_memory.outcome, "") == ("passed", "")
    assert on_disk.command == in_memory.command
    for table in TABLES.values():
        assert_frame_equal(table(on_disk.journal), table(in_memory.journal))
