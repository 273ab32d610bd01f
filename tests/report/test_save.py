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
from x402sim.events import Transfer
from x402sim.report import save
from x402sim.report.frames import TABLES
from x402sim.report.plots import PLOTS
from x402sim.report.summary import Summary


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run("sessions").save(tmp_path_factory.mktemp("saved") / "deep" / "er")


def test_a_run_has_all_its_files(saved: Path) -> None:
    frames = {f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")}
    shown = [each.name for each in PLOTS if each.has_content(run("sessions").journal)]
    drawn = {f"{name}.{kind}" for name in shown for kind in ("png", "svg", "pdf")}
    assert len(shown) >= 5
    assert {*contents(saved)} == frames | drawn | {"journal.ndjson", "page.html", "report.html"}
    assert Run.load(saved / "journal.ndjson").sha256 == run("sessions").sha256


def test_the_same_run_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    loaded = Run.load(saved / "journal.ndjson")
    assert contents(loaded.save(tmp_path)) == contents(saved)


@pytest.mark.parametrize("table", TABLES)
def test_parquet_round_trips(table: str, saved: Path) -> None:
    assert_frame_equal(
        pd.read_parquet(saved / f"{table}.parquet"), TABLES[table](run("sessions").journal),
        check_categorical=False, check_dtype=False,
    )  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_parquet_types_do_not_depend_on_the_run(table: str, saved: Path, tmp_path: Path) -> None:
    save.save_run(skipped(), tmp_path)
    empty, full = (
        pq.read_schema(f / f"{table}.parquet").remove_metadata() for f in (tmp_path, saved)
    )
    assert empty == full
    for field in full:
        if f"{field.name}_base" in full.names:
            assert field.type == pa.float64()


@pytest.mark.parametrize("table", TABLES)
def test_csv_has_the_columns_and_the_rows(table: str, saved: Path) -> None:
    frame = TABLES[table](run("sessions").journal)
    read = pd.read_csv(saved / f"{table}.csv", dtype="string", keep_default_na=False)
    assert list(read.columns) == list(frame.columns)
    assert len(read) == len(frame)
    for name in frame.columns:
        if name.endswith("_base"):
            assert list(read[name]) == [
                "" if pd.isna(value) else str(value) for value in frame[name]
            ]


def test_amounts_beyond_64_bits_are_texts_in_parquet(tmp_path: Path) -> None:
    huge = 2**200
    moved = Transfer(tx_hash="0x1", block=1, sender="0x1", to="0x2", amount_base=str(huge))
    begin, end = (entry.event for entry in skipped().journal)
    save.save_run(Summary(journal_of(begin, moved, end)), tmp_path)
    (row,) = pd.read_parquet(tmp_path / "transfers.parquet").itertuples()
    assert row.amount_base == str(huge)
    assert row.amount == huge / 10**6


def test_many_runs_get_a_folder_each_and_one_report(tmp_path: Path) -> None:
    runs = [skipped(), run("lost"), skipped()]
    save.save_runs(runs, tmp_path, stories={"lost": "The answer is lost."})
    assert {file.name for file in tmp_path.iterdir()} == {
        "elsewhere-1", "elsewhere-2", "lost", "outcomes.png", "report.html",
    }  # fmt: skip
    assert not (tmp_path / "lost" / "report.html").exists()
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The answer is lost." in report
    assert report.count("<details") == 3


def test_a_hostile_name_stays_inside_the_folder(tmp_path: Path) -> None:
    save.save_runs([skipped("../evil")], tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"out"}


def test_the_error_names_the_missing_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = r"reports need pandas, pyarrow: pip install 'x402sim\[report\]'"
    for use in (
        lambda: run("lost").steps,
        lambda: run("lost").save(tmp_path),
        run("lost")._repr_html_,
    ):
        with pytest.raises(ModuleNotFoundError, match=message):
            use()


def test_plots_for_papers_are_vectors_with_text_that_can_be_selected(saved: Path) -> None:
    for file in saved.glob("*.pdf"):
        assert file.read_bytes().startswith(b"%PDF-")
        assert b"/Type3" not in file.read_bytes(), "TrueType, as journals ask"
    svgs = list(saved.glob("*.svg"))
    assert len(svgs) == len(list(saved.glob("*.pdf"))) >= 5
    assert all(b"<svg" in file.read_bytes() for file in svgs)
