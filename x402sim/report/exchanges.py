"""All exchanges of a journal as Arrow columns, for the frames `steps` and `latency`.

It says of many exchanges at once what `reading.Exchange` says of one.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from x402sim.events import AnswerReceived, NoAnswer, RequestSent
from x402sim.report.columns import since, table
from x402sim.report.reading import PAY, Reading

_IDS = ("payment_id", "session_id")


def exchanges(reading: Reading) -> dict[str, Any]:
    """Return the columns: those of `RequestSent`, and what came of it."""
    asked = table(reading.journal, RequestSent, *RequestSent.__struct_fields__)
    answer, ends = _ends(reading)
    answered = {name: column.take(ends) for name, column in answer.items()}
    sent_ms, ended_ms = asked.pop("at_ms"), answered["at_ms"]
    took_s = since(ended_ms, sent_ms)
    return asked | {
        "sent_ms": sent_ms,
        "sent_s": since(sent_ms, reading.start_ms),
        "ended_s": since(ended_ms, reading.start_ms),
        "latency_s": pc.if_else(
            answered["status"].is_valid(), took_s, pa.scalar(None, took_s.type)
        ),
        "status": answered["status"],
        "error": answered["error"],
        "outcome": _outcome(asked["path"], answered),
        **{name: pc.coalesce(_not_empty(asked[name]), answered[name]) for name in _IDS},
    }


def _ends(reading: Reading) -> tuple[dict[str, Any], pa.Array]:
    """Return the ends of exchanges, and which of them ended each request; null is none."""
    names = ("exchange", "status", "error", "payment_id", "session_id", "ok")
    answers = table(reading.journal, AnswerReceived, *names)
    losses = table(reading.journal, NoAnswer, "exchange", "reason")
    losses["error"] = losses.pop("reason")
    count = len(losses["exchange"])
    columns = {
        name: pa.concat_arrays([column, losses.get(name, pa.nulls(count, column.type))])
        for name, column in answers.items()
    }
    place = {number: at for at, number in enumerate(columns["exchange"].to_pylist())}
    asked = table(reading.journal, RequestSent, "exchange")["exchange"].to_pylist()
    return columns, pa.array(list(map(place.get, asked)), pa.int64())


def _outcome(path: Any, answered: dict[str, Any]) -> Any:
    """Return which of `OUTCOMES` each exchange came to, as `Exchange.outcome`."""
    status, is_pay = answered["status"], pc.ends_with(path, PAY)
    asks = pc.and_(pc.equal(status, 402), answered["payment_id"].is_valid())
    says_no = pc.or_kleene(answered["error"].is_valid(), pc.equal(answered["ok"], False))
    cases = {
        "open": answered["at_ms"].is_null(),
        "lost": status.is_null(),
        "error": pc.greater_equal(status, 500),
        "payment required": pc.and_not(asks, is_pay),
        "refused": pc.or_kleene(pc.greater_equal(status, 400), says_no),
        "paid": is_pay,
    }
    return pc.case_when(
        pc.make_struct(*cases.values()), *map(pa.scalar, cases), pa.scalar("served")
    )


def _not_empty(texts: Any) -> Any:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
