"""Says what a figure is from: seeds, sizes and versions, for the text below it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from x402sim.report import frames
from x402sim.report.reading import Reading, Source, journal_of
from x402sim.report.summary import Summary
from x402sim.version import VERSION

if TYPE_CHECKING:
    from pandas import DataFrame


def caption(source: "Source | Sequence[Source] | DataFrame") -> str:
    """Return what a figure was drawn from: a run, several, or the table of a sweep.

    "replay, seed 1: 19 requests of 2 payers in 1 s of virtual time (journal 2f1c0a7e55d1); x402sim
    1.0.0". Of a sweep: "25 seeds (0 to 24), 200 rows; x402sim 1.0.0".

    Raises `ValueError` for a table that `sweep` did not return.
    """
    if hasattr(source, "columns"):
        said = _of_sweep(source)
    else:
        runs = list(source) if isinstance(source, Sequence) else [source]
        said = "; ".join(_of_run(Summary(journal_of(run))) for run in runs)
    return f"{said}; x402sim {VERSION}"


def _of_run(run: Summary) -> str:
    steps, length_s = frames.steps(run.journal), Reading(run.journal).length_s
    payers = steps["payer"].nunique()
    return (
        f"{run.name}, seed {run.seed}: {len(steps)} requests of {payers} payer{'s'[payers == 1 :]} "
        f"in {length_s:g} s of virtual time (journal {run.sha256[:12]})"
    )


def _of_sweep(table: "DataFrame") -> str:
    if "seed" not in table.columns:
        raise ValueError("caption needs the table that sweep returned, which has a column 'seed'")
    seeds = sorted(table["seed"].unique())
    failed = int(table["error"].notna().sum()) if "error" in table.columns else 0
    return f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]}), {len(table)} rows" + (
        f", {failed} points failed" if failed else ""
    )
