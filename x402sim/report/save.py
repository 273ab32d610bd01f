"""Saves a run as files: its journal, frames as CSV and Parquet, plots, report.html.

Plots are PNG; a run that is saved alone also has plots as SVG and PDF, for papers. The same run
gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api.types import is_object_dtype

from x402sim.events import Begin
from x402sim.journal import BUNDLE, write_maker
from x402sim.report import bundle, html, plots
from x402sim.report.bundle import frame_sha256
from x402sim.report.frames import TABLES
from x402sim.report.page import of_run
from x402sim.report.plots.figure import keep_layout, png, vectors
from x402sim.report.reading import LAST, Summary

JOURNAL, PAGE = "journal.ndjson", "page.html"
_ARROW_TYPES = {
    "float64": pa.float64(),
    "Int64": pa.int64(),
    "bool": pa.bool_(),
    "datetime64[ms, UTC]": pa.timestamp("ms", "UTC"),
}


def save_run(run: Summary, folder: Path, hashes: dict[str, str] | None = None) -> Path:
    """Write a run's journal, frames, plots and report.html into a folder; return the folder.

    `hashes` receives the hash of each frame.
    """
    drawn = {run.sha256: _save_one(run, folder, for_papers=True, hashes=hashes)}
    _write_text(folder / "report.html", html.page([run], drawn=drawn, pages=[PAGE]))
    return folder


def save_bundle(run: Summary, folder: Path, *, wrong: str) -> Path:
    """Write the files of `save_run`, and a bundle to repeat the run; return the folder.

    If `wrong` says why the run cannot be repeated, raise `NotRepeatable` and write nothing.
    """
    calls = bundle.begin(folder)
    if wrong:
        raise bundle.NotRepeatable(f"bundle: {run.name!r} cannot be repeated: {wrong}")
    program = bundle.running()
    hashes: dict[str, str] = {}
    save_run(run, folder, hashes)
    write_maker(folder / JOURNAL, None)  # bundle.json says it
    found = bundle.OfRun(
        scenario=run.name,
        seed=run.seed,
        world=next(run.journal.events(Begin)).options,
        versions={**bundle.own_versions(), **bundle.required()},
        source=run.journal.maker.source if run.journal.maker else None,
        journal=run.sha256,
        frames=hashes,
        origin=bundle.carry(calls, folder, program),
        files={
            name: bundle.file_sha256(folder / name)
            for each in hashes
            for name in bundle.frame_files(each)
        },
    )
    text = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    (folder / BUNDLE).write_bytes(text)
    return folder


def save_runs(
    runs: Sequence[Summary], folder: Path, *, stories: Mapping[str, str] | None = None
) -> Path:
    """Write each run into its own folder, and report.html and outcomes.png beside the folders.

    `stories` are the scenarios' stories by name, for the report. Returns the folder.
    """
    names = html.anchors(runs)
    drawn = {
        run.sha256: _save_one(run, folder / name) for run, name in zip(runs, names, strict=True)
    }
    (folder / "outcomes.png").write_bytes(png(plots.outcomes(runs).figure))
    pages = [f"{name}/{PAGE}" for name in names]
    text = html.page(runs, stories=stories, drawn=drawn, pages=pages)
    _write_text(folder / "report.html", text)
    return folder


def _save_one(
    run: Summary, folder: Path, *, for_papers: bool = False, hashes: dict[str, str] | None = None
) -> dict[str, bytes]:
    """Write a run's files; return the plots as PNG. With `for_papers`, write SVG and PDF, too.

    `hashes` receives the hash of each frame.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BUNDLE).unlink(missing_ok=True)  # of a run saved here before
    run.journal.save(folder / JOURNAL)
    _write_text(folder / PAGE, of_run(run.journal, run.name, LAST))
    for name, table in TABLES.items():  # one frame in memory at a time
        frame = table(run.journal)
        if hashes is not None:
            hashes[name] = frame_sha256(frame)
        as_text, as_parquet = (folder / each for each in bundle.frame_files(name))
        frame.to_csv(as_text, index=False, lineterminator="\n")
        pq.write_table(_arrow(frame), as_parquet)
    drawn: dict[str, bytes] = {}
    for name, figure in plots.figures(run.journal).items():
        drawn[name] = png(figure)
        (folder / f"{name}.png").write_bytes(drawn[name])
        keep_layout(figure)  # SVG and PDF reuse the layout: a new one takes an eighth of `save`
        for form in ("svg", "pdf") if for_papers else ():
            (folder / f"{name}.{form}").write_bytes(vectors(figure, form))
    return drawn


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="\n")


def _arrow(frame: pd.DataFrame) -> pa.Table:
    """Return a frame for Parquet.

    A column's type does not depend on the values, except for amounts too large for 64-bit integers,
    which are written as text.
    """
    fields: list[tuple[str, Any]] = [
        (name, pa.dictionary(pa.int32(), pa.string()))
        if isinstance(dtype, pd.CategoricalDtype)
        else (name, _ARROW_TYPES.get(str(dtype), pa.string()))
        for name, dtype in frame.dtypes.items()
    ]
    texts = [name for name, kind in fields if kind == pa.string() and is_object_dtype(frame[name])]
    frame = frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in texts})
    return pa.Table.from_pandas(frame, schema=pa.schema(fields), preserve_index=False)
