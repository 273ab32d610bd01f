"""Says what a figure is from: seeds, sizes and versions, for the text below it."""

from collections.abc import Sequence
from typing import Any

from x402sim.report import frames
from x402sim.report.reading import Reading, Source, journal_of
from x402sim.report.summary import Summary
from x402sim.version import VERSION


def caption(source: Any) -> str:
    """Return what a figure was drawn from: a run, a list of runs, or the table of a sweep.

    "replay, seed 1: 19 requests, 2 payers, 1 s of virtual time (journal 2f1c0a7e55d1); x402sim
    1.0.0". Of a sweep: "25 seeds (0 to 24), 200 rows, 0 failed; x402sim 1.0.0".

    Raises `ValueError` for a table that `sweep` did not return.
    """
    if hasattr(source, "columns"):
        if "seed" not in source.columns:
            raise ValueError("caption needs the table that sweep returned, with a column 'seed'")
        failed = source["error"].notna().sum() if "error" in source else 0
        seeds = source["seed"]
        said = f"{seeds.nunique()} seeds ({seeds.min()} to {seeds.max()})"
        said += f", {len(source)} rows, {failed} failed"
    else:
        said = "; ".join(map(_of_run, source if isinstance(source, Sequence) else [source]))
    return f"{said}; x402sim {VERSION}"


def _of_run(source: Source) -> str:
    run = Summary(journal_of(source))
    steps, length_s = frames.steps(run.journal), Reading(run.journal).length_s
    return (
        f"{run.name}, seed {run.seed}: {len(steps)} requests, {steps['payer'].nunique()} payers, "
        f"{length_s:g} s of virtual time (journal {run.sha256[:12]})"
    )
