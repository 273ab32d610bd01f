"""The frames of a run: documented by column, labelled, and read only."""

import inspect
import pickle
import pydoc

import pandas as pd
import pytest

from tests.report.stories import run
from x402sim import Run
from x402sim.report.frames import TABLES


@pytest.mark.parametrize("name", TABLES)
def test_help_has_the_columns_of_a_frame(name: str) -> None:
    table = vars(Run)[name]
    assert inspect.getdoc(table) == inspect.getdoc(TABLES[name])
    assert "| column |" in pydoc.render_doc(getattr(Run, name), renderer=pydoc.plaintext)


def test_labels_are_the_first_columns_and_tell_runs_apart() -> None:
    runs = [run(name).label(policy=name, seed=7) for name in ("replayed", "lost")]
    both = pd.concat([each.orders for each in runs])
    assert list(both.columns)[:3] == ["policy", "seed", "order"]
    assert set(both["policy"]) == {"replayed", "lost"}
    assert len(both) == sum(len(each.orders) for each in runs)
    assert list(runs[0].label(more=1).checks.columns)[:4] == ["policy", "seed", "more", "clause"]
    assert next(iter(run("lost").checks.columns)) == "clause"
    with pytest.raises(ValueError, match="clause"):
        _ = run("lost").label(clause=1).checks


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_frame_can_be_written_to(name: str) -> None:
    frame = getattr(run("sessions"), name)
    for column in frame.columns:
        if len(frame):
            frame.loc[0, column] = frame[column].iloc[-1]


def test_a_frame_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="orders"):
        run("lost").orders = 1


def test_a_run_that_is_pickled_keeps_its_labels() -> None:
    labelled = run("lost").label(policy="naive")
    assert pickle.loads(pickle.dumps(labelled)).checks.equals(labelled.checks)
    assert len({labelled, labelled, run("lost")}) == 2, "a run has a hash, too"
