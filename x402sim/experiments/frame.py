"""Joins the tables of the tasks to one frame, in the order of the cells and the seeds.

Nothing in the frame depends on which tasks there were, or on who played them when.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim.experiments.grid import RESERVED, Cell, Label, labels_of
from x402sim.experiments.tables import Done, joined
from x402sim.journal import OURS

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
    """Return what labels are ordered by: numbers as numbers, then texts and None."""
    return (False, label, "") if isinstance(label, int | float) else (True, 0, str(label))


def frame_of(
    tables: Sequence[Done], cells: Sequence[Cell], wanted: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return the rows of the wanted points; `wanted` are the seeds of each cell, by its key."""
    numbers = {cell.key: number for number, cell in enumerate(cells)}
    positions = {key: {seed: at for at, seed in enumerate(seeds)} for key, seeds in wanted.items()}
    # A point that did not fail counts more than one that did; of equals, the first counts.
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
    # The first point's table comes first, so that columns are in the order of its results.
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
    frame.attrs["parameters"] = list(cells[0].labels)  # `summarize` takes none for a result
    frame.attrs["made by"] = str(OURS)  # for `plots.caption`; a folder has one version's results
    return frame
