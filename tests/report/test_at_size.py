"""A view of a large run costs what it shows: counted are the entries that are read for it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from pandas.testing import assert_frame_equal

from tests.report.stories import NAMES, exchange, run
from x402sim import LiveWorld, Run, World
from x402sim.events import (
    AnswerReceived,
    Begin,
    Check,
    End,
    Event,
    Note,
    PayerJoined,
    RequestSent,
    Transfer,
)
from x402sim.journal import EVERY, Entry, Journal, _OnDisk, read_line
from x402sim.report.frames import TABLES
from x402sim.report.page import Payments
from x402sim.report.plots import diagram
from x402sim.report.plots.diagram import Row, chosen, excerpt, rows
from x402sim.report.reading import LARGE, reading_of

PAYERS, COUNT = 12_000, 12
FAILED = 11_000
"""The exchange that a failed check is about."""


def happened() -> Iterator[Event]:
    """Yield a long run: payers join, each sends a request, and tokens move at its end."""
    yield Begin(
        scenario="long", title="long", seed=1, start_ms=0, network="n", decimals=6, symbol="t",
    )  # fmt: skip
    for number in range(PAYERS):
        yield PayerJoined(name=f"payer {number}", address=f"0x{number + 1:040x}")
    yield Note(name="early")
    for number in range(1, PAYERS + 1):
        yield from exchange(number, actor=f"payer {number}", path=f"/{number}")
        if number == FAILED:
            yield Check(clause="5/nonce-once", ok=False, expected=1, actual=2, exchange=number)
    last, other = f"0x{PAYERS:040x}", f"0x{PAYERS - 1:040x}"
    yield Transfer(tx_hash="0x1", block=1, sender=last, to=other, amount_base="5")
    yield End(outcome="failed", reason="a check failed")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("size") / "run.ndjson"
    journal = Journal(file=found)
    for at_ms, event in enumerate(happened()):
        journal.record(at_ms, event)
    journal.close()
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lines that are decoded, as they are."""
    numbers: list[int] = []

    def counted(number: int, text: bytes):
        numbers.append(number)
        return read_line(number, text)

    monkeypatch.setattr("x402sim.journal.read_line", counted)
    return numbers


def texts(found: list[Row]) -> list[str]:
    return [row.text for row in found]


def of(journal: Journal, exchange: int, count: int = COUNT) -> list[Row]:
    return chosen(reading_of(journal), exchange, count, fold=True, words=str)


def test_rows_of_a_large_run_are_read_where_they_are(file: Path, read: list[int]) -> None:
    journal = Journal.open(file)
    assert len(journal) > LARGE
    names = [each for each in texts(of(journal, FAILED)) if "payer" in each]
    assert names == ["0.000005 payer 11999 → payer 11998, block 1"], "who joined long before"
    read.clear()
    found = of(journal, FAILED)
    assert f"GET /{FAILED}" in texts(found)
    assert len(found) == COUNT
    assert len(read) < 20 * EVERY, "of 36,000, some blocks to find the exchange"
    begin, *_ = found
    assert begin.text == f"… {found[1].line.seq:,} events left out …"
    second = next(n for n, row in enumerate(found) if n and "left out" in row.text)
    assert found[second].text == (
        f"… {found[second + 1].line.seq - found[second].line.seq:,} events left out …"
    )
    assert found[second].line.seq == found[second - 1].line.seq + 1, "right after the row above"


def test_an_exchange_after_the_last_one_is_at_the_end(file: Path) -> None:
    assert texts(of(Journal.open(file), 10 * PAYERS))[-3].startswith(f"GET /{PAYERS}")


@pytest.mark.parametrize(("number", "in_file"), [(1, False), (300, True)])
def test_the_rows_are_those_of_any_other_run(
    number: int, in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is read first: rows that stand for more than that are whole, or not shown."""
    journal = run("indexed").journal
    if in_file:
        journal.save(tmp_path / "run.ndjson")
        journal = Journal.open(tmp_path / "run.ndjson")
    every = rows(reading_of(journal))
    looks = {row.line.seq: (row.line.kind, row.times, row.are_reads, row.name) for row in every}
    monkeypatch.setattr(diagram, "LARGE", 10)
    for events_a_row in 1, 16:
        monkeypatch.setattr(diagram, "_EVENTS_A_ROW", events_a_row)
        found = [row for row in of(journal, number, 40) if "left out" not in row.text]
        wanted = excerpt(every, number, 40)
        assert {looks[row.line.seq] for row in found} == {
            (row.line.kind, row.times, row.are_reads, row.name) for row in found
        }
        ends, ended = ([row.line.seq for row in each[-9:]] for each in (found, wanted))
        assert ends == ended
        assert number in {row.line.exchange for row in found}


def test_a_cell_of_a_large_run_reads_what_it_shows(file: Path, read: list[int]) -> None:
    found = Run(journal=Journal.open(file))
    html = found._repr_html_()
    assert "5/nonce-once" in html
    assert f"GET /{FAILED}" in html, "the trace"
    assert len(read) < PAYERS + 25 * EVERY, "each name once, and some blocks"
    assert f"{file.name}</code>; <code>run.sha256</code> reads it all" in html
    assert found.sha256 not in html, "a hash would read all of it"


# --- the newest payments --------------------------------------------------------------


def on_the_page(run: Run, last: int | None) -> tuple[list[Entry], str]:
    """Return the entries on the page of a run, and what is above them."""
    page = run.show(last).page
    (tape,) = re.findall(r'id="tape">(.*?)</script>', page, re.DOTALL)
    ((name, lines),) = json.loads(tape)["messages"]
    assert name == "journal"
    texts = [json.dumps(each).encode() for each in lines]
    return [read_line(0, text) for text in texts], page.partition('id="came-to"')[2][:2000]


@pytest.mark.parametrize("name", [*NAMES, "one step"])
def test_the_newest_payments_are_whole_and_there_is_nothing_of_the_others(name: str) -> None:
    found = run_in_one_step() if name == "one step" else run(name)
    answers = [each for each in found.journal.events(AnswerReceived) if each.status == 402]
    ids = list(dict.fromkeys(each.payment_id for each in answers if each.payment_id))
    every = Payments(found.journal)
    for last in {1, 2, 3, 17, 27} & {*range(1, len(ids))}:  # of "indexed", some are under way
        shown, above = on_the_page(found, last)
        assert f"{len(ids) - last:,} older payments are left out" in above
        about = Counter(map(every.payment_of, (each.event for each in shown)))
        wanted = Counter(map(every.payment_of, (each.event for each in found.journal)))
        assert {each: count for each, count in about.items() if each} == {
            each: count for each, count in wanted.items() if each in ids[-last:]
        }
    shown, above = on_the_page(found, len(ids) or 1)
    assert shown == list(found.journal)
    assert "left out" not in above


def run_in_one_step() -> Run:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="5.00")
        for _ in range(3):
            first = await alice.ask()
            await alice.ask(header=alice.sign(first, steps=1))

    return World().play(story)


def test_a_page_of_a_large_run_has_the_newest_lanes_only(file: Path, read: list[int]) -> None:
    journal = Journal(file=file.parent / "paid.ndjson")
    journal.record(0, next(happened()))
    for number in range(6000):
        name, payment_id = f"payer {number}", f"pay_{number}"
        journal.record(number, PayerJoined(name=name, address=f"0x{number:040x}"))
        first, again = exchange(2 * number, actor=name), exchange(2 * number + 1, actor=name)
        refused = replace(first[1], status=402, payment_id=payment_id)
        for event in first[0], refused, replace(again[0], payment_id=payment_id), again[1]:
            journal.record(number, event)
    journal.record(6000, End(outcome="passed", reason=""))
    journal.close()
    found = Run(journal=journal)
    page = found.show().page
    assert "5,500 older payments are left out" in page
    assert "pay_5499" not in page
    assert "pay_5500" in page
    assert len(page) < 1_000_000
    assert len(read) < 6000 * 2 + 10 * EVERY, "each 402, each name, and what is shown"
    with pytest.raises(ValueError, match="last: expected a number of payments above 0, or None"):
        found.show(0)


# --- frames from a file ---------------------------------------------------------------


async def strange(world: LiveWorld) -> None:
    """A payer has the name of a service that this world lacks, another pays the facilitator's."""
    second = await world.payer("service 2", balance="1.00")
    await second.buy()
    alice = await world.payer("alice", balance="1.00")
    await alice.submit(alice.sign(await alice.ask()))
    await world.reorg(1)


@pytest.mark.parametrize("name", ["lost", "sessions", "meddled", "strange"])
def test_a_frame_from_a_file_is_the_same_whichever_is_the_first(name: str, tmp_path: Path) -> None:
    found = World().play(strange) if name == "strange" else run(name)
    wanted = {each: table(found.journal) for each, table in TABLES.items()}
    found.journal.save(tmp_path / "run.ndjson")
    for first in TABLES:
        journal = Journal.open(tmp_path / "run.ndjson")
        assert_frame_equal(TABLES[first](journal), wanted[first])
    for each in reversed(TABLES):  # the file is read while frames are made
        assert_frame_equal(TABLES[each](journal), wanted[each])


def test_the_steps_after_the_orders_read_nothing_and_services_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("indexed").journal.save(tmp_path / "run.ndjson")
    found, read = Run(journal=Journal.open(tmp_path / "run.ndjson")), list[bytes]()
    actors = frozenset({("request sent", "actor")})
    _, batches = found.journal.columns(actors, without=frozenset({"service"}))
    requests = list(found.journal.events(RequestSent))
    sent = len(requests)
    kept = sum(len(each["request sent"]["actor"]) for each in batches if "request sent" in each)
    of_service = [each for each in requests if each.actor == "service"]
    assert kept == sent - len(of_service) < sent / 2
    assert len(found.orders)
    whole = _OnDisk.columns
    monkeypatch.setattr(_OnDisk, "columns", lambda *given: read.append(b"") or whole(*given))
    assert len(found.steps)
    assert read == []
    assert len(found.latency) == sent
    assert len(read) == 1
