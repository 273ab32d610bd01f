"""Saved runs: all files are there and readable, and the same run gives the same bytes."""

import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from tests.report.stories import journal_of, run, skipped
from x402sim import Run
from x402sim.commands.common import load_journal
from x402sim.events import Transfer
from x402sim.journal import Journal, Maker
from x402sim.report import plots, save
from x402sim.report.frames import TABLES
from x402sim.report.plots import PLOTS
from x402sim.report.reading import Summary


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run("sessions").save(tmp_path_factory.mktemp("saved") / "deep" / "er")


@pytest.mark.thorough
def test_a_run_has_all_its_files(saved: Path) -> None:
    frames = {f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")}
    shown = [each.name for each in PLOTS if each.has_content(run("sessions").journal)]
    drawn = {f"{name}.{kind}" for name in shown for kind in ("png", "svg", "pdf")}
    assert len(shown) >= 5
    others = {"journal.ndjson", "journal.ndjson.made.json", "page.html", "report.html"}
    assert {*contents(saved)} == frames | drawn | others
    for place in (saved, saved / "journal.ndjson"):
        assert Run.load(place).sha256 == run("sessions").sha256


@pytest.mark.thorough
def test_the_same_run_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    assert contents(Run.load(saved).save(tmp_path)) == contents(saved)


def test_frames_are_kept_whole_with_types_that_do_not_depend_on_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "figures", lambda journal: {})
    saved, elsewhere = (run("sessions").save(tmp_path / "a"), skipped().save(tmp_path / "b"))
    for table, made in TABLES.items():
        frame = made(run("sessions").journal)
        kept = pd.read_parquet(saved / f"{table}.parquet")
        assert_frame_equal(kept, frame, check_categorical=False, check_dtype=False, obj=table)
        read = pd.read_csv(saved / f"{table}.csv", dtype="string", keep_default_na=False)
        assert list(read.columns) == list(frame.columns)
        assert len(read) == len(frame), table
        for name in frame.columns[frame.columns.str.endswith("_base")]:
            texts = ["" if pd.isna(value) else str(value) for value in frame[name]]
            assert list(read[name]) == texts, (table, name)
        files = (folder / f"{table}.parquet" for folder in (elsewhere, saved))
        empty, full = (pq.read_schema(file).remove_metadata() for file in files)
        assert empty == full, table
        for field in full:
            if f"{field.name}_base" in full.names:
                assert field.type == pa.float64(), (table, field.name)


def test_a_saved_run_keeps_the_versions_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever are installed when it is loaded, drawn, and saved again."""
    monkeypatch.setattr(plots, "figures", lambda journal: {})  # a caption is asserted below
    older = Maker("0.0.9", "3.11.1")
    found = Run(journal=Journal.load(run("replayed").journal.ndjson(), older))
    for folder in (tmp_path / "first", tmp_path / "again"):
        found = Run.load(found.save(folder))
        assert found.journal.maker == older
        assert found.sha256 == run("replayed").sha256
        assert "<dd>x402sim 0.0.9, Python 3.11.1</dd>" in (folder / "report.html").read_text()
    assert "x402sim 0.0.9, Python 3.11.1. Cite as" in plots.caption(found)
    assert load_journal(tmp_path / "again").maker == older, "as `x402sim open` and `diff` read it"


def test_amounts_beyond_64_bits_are_texts_in_parquet(tmp_path: Path) -> None:
    huge = 2**200
    moved = Transfer(tx_hash="0x1", block=1, sender="0x1", to="0x2", amount_base=str(huge))
    begin, end = (entry.event for entry in skipped().journal)
    save.save_run(Summary(journal_of(begin, moved, end)), tmp_path)
    (row,) = pd.read_parquet(tmp_path / "transfers.parquet").itertuples()
    assert row.amount_base == str(huge)
    assert row.amount == huge / 10**6


def test_the_error_names_the_missing_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = r"reports need pandas, pyarrow: pip install 'x402sim\[report\]'"
    found = run("lost")
    for use in lambda: found.steps, lambda: found.save(tmp_path), found._repr_html_:
        with pytest.raises(ModuleNotFoundError, match=message):
            use()
