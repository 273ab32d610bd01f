"""What happened, in words: the trace of a request, and where two runs first differ."""

import json

import pytest

from tests.report.stories import exchange, journal_of, run
from x402sim import events
from x402sim.journal import Journal
from x402sim.report import diff, trace
from x402sim.report.reading import Reading


def traced(what: str | Journal, exchange: int | None) -> list[str]:
    reading = Reading(run(what).journal if isinstance(what, str) else what)
    return trace.trace(reading, trace.lines(reading), exchange)


def test_a_trace_goes_from_the_request_to_its_end() -> None:
    told = traced("replayed", 2)
    assert "alice → service" in told[0]
    assert "POST /api/pay" in told[0]
    assert "alice ← service" in told[-1]
    whole = "\n".join(told)
    for words in ("service → facilitator    verify", "0.01 alice → merchant, block 2", "settled"):
        assert words in whole
    lines = "\n".join(str(line) for line in trace.lines(Reading(run("replayed").journal)))
    assert "mint" not in lines, "what is obvious is left out"
    assert "failed" not in lines, "no check did"


def test_every_action_of_a_story_has_a_text() -> None:
    lines = list(trace.lines(Reading(run("meddled").journal)))
    told = [line.text for line in lines if line.left == "world"]
    assert told.pop(2).startswith("fault at explorer: delay answer (times unlimited")
    assert told == [
        "clock of facilitator: -30 s", "explorer lags 90 s",
        "service crashes and starts again", "reorganisation, 1 deep",
        "the token's next calls revert: 2", "mine on demand only", "mempool dropped", "mine at once",
        "something else colour=green",
    ]  # fmt: skip
    chain = [line.text for line in lines if line.left == "chain"]
    assert "undone: 0.01 alice → merchant" in chain
    assert chain[-1].startswith("reverted: ")


def test_a_trace_says_why_something_was_refused_or_lost() -> None:
    refused = "\n".join(traced("lost", 2))
    assert "service ✗ facilitator    connection lost" in refused
    assert "refused: Facilitator unreachable" in refused
    assert traced("lost", 5)[-1].endswith("connection lost")


def test_a_failed_check_has_the_trace_of_its_request() -> None:
    found = trace.failed_checks(run("failing").journal)
    assert [check.clause for check, _ in found] == ["4.1/receipt", "5/nonce-once"]
    for check, told in found:
        assert told == traced("failing", check.exchange)
    assert trace.failed_checks(run("replayed").journal) == []
    assert traced("replayed", 10_000) == [], "no such exchange"


def test_a_long_trace_is_cut_in_the_middle() -> None:
    asked, answered = exchange()
    mined = events.TransactionMined(
        tx_hash="0x1", block=1, block_time_s=1, sender="0x1", call="", gas=1,
        gas_price_wei="1", revert_reason="no",
    )  # fmt: skip
    told = traced(journal_of(asked, *[mined] * 100, answered), 1)
    assert len(told) == trace.LONGEST_TRACE + 1
    assert told[30] == "… 42 more …"
    assert told[-1].endswith("200")


def answered(status: object) -> list[events.Event]:
    return [events.AnswerReceived("alice", 1, "service", status)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        *(
            (answered(200), answered(after), [f"    status: a 200, b {json.dumps(after)}"])
            for after in (201, True, 200.0, "200", None)
        ),
        (
            [events.SessionsExpired(count=1)],
            [events.PaymentFailed(payment_id="pay_1")],
            [
                '    event: a "sessions expired", b "payment failed"',
                "    count: a 1, b (not there)",
                '    payment_id: a (not there), b "pay_1"',
            ],
        ),
        (answered(200), [], ["  b (the journal ends here)"]),
    ],
)
def test_the_first_difference_is_found_and_named_after_what_came_before(one, other, says) -> None:
    same = [events.Note(name=str(number)) for number in range(10)]
    a, b = (journal_of(*same, *more, took_ms=5) for more in (one, other))
    told = diff.describe(a, b)
    assert told[0] == "10 events are equal, and then the runs differ:"
    assert [line.split()[0] for line in told[1:5]] == ["7", "8", "9", "a"]
    assert told[4].startswith("  a 10 at 50 ms: ")
    assert told[6 - (not other) :] == says
    assert diff.describe(a, a) == []
