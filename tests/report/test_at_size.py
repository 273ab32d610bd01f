"""A view of a large run costs what it shows: counted are the entries that are read for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.stories import exchange, run
from x402sim import Run
from x402sim.events import Begin, Check, End, Event, Note, PayerJoined, Transfer
from x402sim.journal import EVERY, Journal, read_line
from x402sim.report.plots import diagram
from x402sim.report.plots.diagram import Row, chosen, excerpt, rows
from x402sim.report.reading import LARGE, reading_of
from x402sim.report.trace import failed_checks

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


def test_what_is_not_read_before_the_first_exchange_is_said(file: Path, read: list[int]) -> None:
    first, request = of(Journal.open(file), 1)[:2]
    assert (request.text, request.line.exchange) == ("early", None)
    assert first.text == f"… {request.line.seq:,} events left out …"


def test_an_exchange_after_the_last_one_is_at_the_end(file: Path) -> None:
    assert texts(of(Journal.open(file), 10 * PAYERS))[-3].startswith(f"GET /{PAYERS}")


@pytest.mark.parametrize("number", [1, 40, 300, 500])
@pytest.mark.parametrize("in_file", [False, True])
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
    for events_a_row in 1, 4, 16:
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


def test_the_trace_of_a_failed_check_is_that_of_any_other_run(monkeypatch) -> None:
    journal = run("failing").journal
    wanted = failed_checks(journal)
    monkeypatch.setattr("x402sim.report.trace.LARGE", 0)
    assert failed_checks(journal) == wanted != []


def test_a_kind_is_looked_for_only_in_blocks_that_have_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, seen = Journal.open(file), list[bytes]()
    monkeypatch.setattr("x402sim.journal.tag_of", lambda text: seen.append(text))
    assert len(list(journal.of(Begin))) == len(list(journal.of(End))) == 1
    assert list(journal.of(Check, since=journal.length - 1)) == []
    assert len(seen) <= 2 * EVERY + 1
