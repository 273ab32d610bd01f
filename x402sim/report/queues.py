"""The requests to parts that serve so many at a time: how long each waited and was served."""

import numpy as np
import pandas as pd
import pyarrow as pa

from x402sim.events import RequestArrived, RequestEnded, RequestStarted
from x402sim.journal import Journal
from x402sim.report.columns import Table, since, tables, words
from x402sim.report.frame import Column, Form, frame
from x402sim.report.reading import reading_of

OUTCOMES = ("served", "left", "refused", "lost", "open")


@frame(
    """One row for each request to a part with `servers`, in the order of arrival.

Of a request that still waits, or is still served, when the journal ends, what is not known yet is
NaN. Near saturation these have waited longest: without them, waiting looks shorter than it is.""",
    Column("request", "Int64", "its number, unique in the run"),
    Column("part", "category", "who was asked"),
    Column("path", "category", "the path"),
    Column("arrived_s", "float64", "when it arrived at the part", "s"),
    Column("started_s", "float64", "when a server began with it", "s"),
    Column("ended_s", "float64", "when the server was done with it, or it was refused or lost", "s"),
    Column("waited_s", "float64", "from its arrival until a server began", "s"),
    Column("service_s", "float64", "how long the server was busy with it: the service time that was drawn, and the work", "s"),
    Column("ahead", "Int64", "how many requests were waiting or being served when it arrived"),
    Column("outcome", "category", "served; left (served, but the client had gone, or the answer was lost); refused (too many waited); lost (the part crashed); open (none of these yet)", among=OUTCOMES),
)  # fmt: skip
def queues(journal: Journal, form: Form) -> pd.DataFrame:
    arrived, started, ended = tables(journal, RequestArrived, RequestStarted, RequestEnded)
    reading, numbers = reading_of(journal), arrived["request"]
    arrived_ms, start_ms = arrived.arrow("at_ms"), reading.start_ms
    started_ms, ended_ms = (_by_number(each, "at_ms", numbers) for each in (started, ended))
    outcome = words(_by_number(ended, "outcome", numbers).fill_null(0), ended.texts)
    given = {
        "part": arrived.arrow("actor"),
        "arrived_s": since(arrived_ms, start_ms),
        "started_s": since(started_ms, start_ms),
        "ended_s": since(ended_ms, start_ms),
        "waited_s": since(started_ms, arrived_ms),
        "service_s": since(ended_ms, started_ms),
        "outcome": outcome.cast(pa.string()).fill_null("open"),
    }
    return form.of_columns(given, reading, arrived)


def _by_number(events: Table, name: str, numbers: np.ndarray) -> pa.Array:
    """Return a field of the event of each request; null if it has none."""
    found = pd.Series(events[name], events["request"], dtype="Int64").reindex(numbers)
    return pa.array(found)
