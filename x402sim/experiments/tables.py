"""The results of a sweep as Arrow tables, one per task and per Parquet file.

A table has the cell's parameters, `seed`, the results, and `error`, `trace` and `replay`, which are
null unless the point failed. The metadata names the cell and the seeds: a point without rows also
counts as done.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from x402sim.experiments.grid import RESERVED, Cell, Label, labels_of
from x402sim.journal import OURS
from x402sim.report.bundle import lines_sha256, row_line

_META, _UNITS = b"x402sim sweep", b"x402sim units"
_SCALARS = str, int, float, bool, Decimal, date, type(None)


class Work(msgspec.Struct, frozen=True):
    """A cell as sent to a worker: key, labels, and pickled values.

    `replay` is the line that replays a point, with "{seed}" in place of its seed.
    """

    key: str
    labels: dict[str, Label]
    values: bytes
    replay: str


@dataclass(frozen=True, slots=True)
class Point:
    """The outcome of one point: a dict of results, a table, or an error."""

    seed: int
    result: "dict[str, Any] | pa.Table | None"
    error: str | None = None
    trace: str | None = None
    journals: str = ""
    """One hash of the journal hashes of the point's runs, one a line."""


class Done(msgspec.Struct, omit_defaults=True):
    """The points of a cell that a task has played, and the table, whose metadata has the rest."""

    cell: str
    seeds: tuple[int, ...]
    failed: frozenset[int]
    units: dict[str, str] = {}
    """The units of columns, if the experiment returned frames with units."""
    journals: tuple[str, ...] = ()
    """The hash of each seed's journals."""
    rows: tuple[str, ...] = ()
    """The hash of each seed's rows."""
    table: Any = None


def result_of(returned: Any, parameters: Sequence[str]) -> "dict[str, Any] | pa.Table":
    """Check the returned value of an experiment; return a dict of scalars, or a table.

    A number becomes the column `value`. Raises `TypeError` for anything else, and `ValueError` for
    a column with the name of a parameter or of a column of every sweep.
    """
    if hasattr(returned, "columns") and hasattr(returned, "to_parquet"):
        named = [level for level in returned.index.names if level is not None]
        frame = returned.reset_index(level=named) if named else returned
        units = msgspec.json.encode(frame.attrs.get("units", {}))
        table = pa.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata({_UNITS: units})
        for number, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):  # points may have different categories
                plain = table.column(number).cast(field.type.value_type)
                table = table.set_column(number, field.name, plain)
        result: Any = table
        names = result.column_names
    else:
        given = returned.to_dict() if hasattr(returned, "to_dict") else returned
        result = given if isinstance(given, dict) else {"value": given}
        result = {str(name): _scalar(str(name), value) for name, value in result.items()}
        names = list(result)
        if returned is None:
            raise TypeError("it returned None; an experiment returns a number, a dict or a frame")
    for name in names:
        if name in parameters or name in RESERVED:
            raise ValueError(f"it returned {name!r}, which is a column already; name it otherwise")
    return result


def _scalar(name: str, value: Any) -> Any:
    value = value.item() if hasattr(value, "item") and not isinstance(value, _SCALARS) else value
    if value is not pd.NA and not isinstance(value, _SCALARS):
        kind = type(value).__name__
        raise TypeError(f"it returned a {kind} as {name!r}; numbers, texts and frames can be kept")
    return None if value is pd.NA else value  # pandas returns NA as the mean of no values


def table_of(points: Sequence[Point], work: Work) -> bytes:
    """Return the table of one task as a Parquet file.

    Raises `TypeError` for a column of several types.
    """
    plain = [each for each in points if not isinstance(each.result, pa.Table)]
    rows = [each.result or {} for each in plain]
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        parts = [(pa.table({name: [row.get(name) for row in rows] for name in names}), plain)]
    except pa.ArrowInvalid as error:
        raise TypeError(f"a column has values of several types: {error}") from error
    parts = parts if plain else []
    units: dict[str, str] = {}
    for each in points:
        if isinstance(each.result, pa.Table):
            parts.append((each.result, [each] * each.result.num_rows))
            named = (each.result.schema.metadata or {}).get(_UNITS, b"{}")
            units |= msgspec.json.decode(named, type=dict[str, str])
    table = joined([_own_columns(part, owners, work.replay) for part, owners in parts])
    for number, (name, label) in enumerate(work.labels.items()):
        table = table.add_column(number, name, pa.array([label] * table.num_rows))
    failed = frozenset(each.seed for each in points if each.error)
    seeds, journals = tuple(each.seed for each in points), tuple(each.journals for each in points)
    lines = rows_of(table)
    rows_sha256 = tuple(lines_sha256(lines.get(seed, ())) for seed in seeds)
    done = Done(work.key, seeds, failed, units, journals, rows_sha256)
    meta = msgspec.json.encode(done, order="deterministic")
    table = table.replace_schema_metadata({_META: meta})
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _own_columns(table: Any, points: Sequence[Point], replay: str) -> Any:
    lines = [replay.replace("{seed}", str(each.seed)) if each.error else None for each in points]
    return pa.table({
        "seed": pa.array([each.seed for each in points], pa.int64()),
        **{name: table.column(name) for name in table.column_names},
        "error": pa.array([each.error for each in points], pa.string()),
        "trace": pa.array([each.trace for each in points], pa.string()),
        "replay": pa.array(lines, pa.string()),
    })  # fmt: skip


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate tables; whole numbers become floats if another table has floats.

    Raises `TypeError` if a column's types do not fit together, such as text and number.
    """
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise TypeError(f"a column has values of several types: {error}") from error


def decoded(parquet: bytes) -> Done:
    """Return the table in a Parquet file of a sweep; raises `ValueError` for any other file."""
    try:
        # A thread of Arrow could free what it read while Python ends; that aborts Python.
        table = pq.ParquetFile(io.BytesIO(parquet), pre_buffer=False).read(use_threads=False)
    except pa.ArrowInvalid as error:
        raise ValueError(f"this is not a Parquet file: {error}") from error
    raw = (table.schema.metadata or {}).get(_META)
    if raw is None:
        raise ValueError("no sweep wrote it")
    done = msgspec.json.decode(raw, type=Done)
    done.table = table
    return done


def rows_of(table: Any) -> dict[int, list[str]]:
    """Return the hash lines of each seed's rows; `report.bundle` defines them."""
    found: dict[int, list[str]] = {}
    # traces and commands differ from machine to machine
    for row in table.drop_columns(["trace", "replay"]).to_pylist():
        found.setdefault(row["seed"], []).append(row_line(row))
    return found


class Played(NamedTuple):
    """The result of a point as hashes: of rows, and of journals."""

    rows: str
    journals: str


def played_in(tables: Iterable[Done]) -> dict[tuple[str, int], tuple[Played, Done]]:
    """Return each point's hashes and table, by cell and seed, sorted."""
    found: dict[tuple[str, int], tuple[Played, Done]] = {}
    for done in tables:
        for seed, rows, journals in zip(done.seeds, done.rows, done.journals, strict=True):
            if seed not in done.failed or (done.cell, seed) not in found:
                found[done.cell, seed] = Played(rows, journals), done
    return dict(sorted(found.items(), key=itemgetter(0)))


def points_sha256(points: Mapping[tuple[str, int], tuple[Played, Done]]) -> str:
    """Return one hash of all points, made of a line for each."""
    return lines_sha256(
        json.dumps([*point, *played], separators=(",", ":"))
        for point, (played, _) in points.items()
    )


_PLACE = "cell", "position"


def whole_frame(tables: Sequence[Done], parameters: Sequence[str]) -> pd.DataFrame:
    """Return the rows of all points of these tables, ordered by the parameters' labels and seeds.

    `parameters` are the names of all parameters, in the order of the columns.
    """
    wanted: dict[str, set[int]] = {}
    for done in tables:
        wanted.setdefault(done.cell, set()).update(done.seeds)
    labels = [labels_of(key) for key in wanted]
    labels.sort(key=lambda each: [_rank(each[name]) for name in parameters])
    cells = [Cell({name: each[name] for name in parameters}, {}) for each in labels]
    return frame_of(tables, cells, {key: sorted(seeds) for key, seeds in wanted.items()})


def _rank(label: Label) -> tuple[bool, float, str]:
    """Return a sort key of a label: numbers by value, then texts and None."""
    return (False, label, "") if isinstance(label, int | float) else (True, 0, str(label))


def frame_of(
    tables: Sequence[Done], cells: Sequence[Cell], wanted: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return the rows of the wanted points; `wanted` are the seeds of each cell, by its key."""
    numbers = {cell.key: number for number, cell in enumerate(cells)}
    positions = {key: {seed: at for at, seed in enumerate(seeds)} for key, seeds in wanted.items()}
    # A success replaces a failure of the same point; otherwise the first table counts.
    owners: dict[tuple[str, int], Done] = {}
    for are_failed in (True, False):
        for done in reversed(tables):
            seeds = done.failed if are_failed else {*done.seeds} - done.failed
            owners |= {(done.cell, seed): done for seed in seeds}
    placed = []
    for done in tables:
        position = positions.get(done.cell, {})
        mine = {each for each in done.seeds if owners[done.cell, each] is done}
        seeds = mine & position.keys()
        if not seeds:
            continue
        number = numbers[done.cell]
        table = done.table.replace_schema_metadata()
        table = table.filter(pc.is_in(table["seed"], pa.array([*seeds], pa.int64())))
        places = [position[seed] for seed in table["seed"].to_pylist()]
        table = table.append_column("cell", pa.array([number] * len(places), pa.int64()))
        table = table.append_column("position", pa.array(places, pa.int64()))
        placed.append((number, min(position[seed] for seed in seeds), table))
    # The first point's table comes first, and with this table the order of the columns.
    placed.sort(key=itemgetter(0, 1))
    whole = joined([table for *_, table in placed]).sort_by(
        [(name, "ascending") for name in _PLACE]
    )
    number = whole.column("cell").to_numpy()
    results = [n for n in whole.column_names if n not in (*_PLACE, *RESERVED, *cells[0].labels)]
    frame = whole.select(["seed", *results, "error", "trace", "replay"]).to_pandas()
    for field in whole.schema:
        if pa.types.is_boolean(field.type) and whole.column(field.name).null_count:
            frame[field.name] = frame[field.name].astype("boolean")  # not Python objects
    for at, name in enumerate(cells[0].labels):
        frame.insert(at, name, pd.Series([c.labels[name] for c in cells]).take(number).array)
    frame.attrs["parameters"] = list(cells[0].labels)  # the other columns are results
    units = {name: unit for done in tables for name, unit in done.units.items()}
    frame.attrs["units"] = {name: units[name] for name in results if name in units}
    frame.attrs["made by"] = msgspec.to_builtins(OURS)  # for `plots.caption`; a folder has one's
    return frame
