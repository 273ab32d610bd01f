"""What `run` prints: a row for each scenario, and each failure in full, in 80 columns."""

import textwrap
from collections.abc import Iterator, Sequence

from x402sim.commands.common import WIDTH, filled
from x402sim.commands.playing import Played, combined_sha256
from x402sim.events import Check, StoryRaised
from x402sim.report.summary import OUTCOMES, checks_of, why_failed
from x402sim.report.trace import failed_checks
from x402sim.spec.clauses import CLAUSES
from x402sim.text.printable import printable
from x402sim.text.times import duration

MAX_CHECKS = 5
"""How many failed checks of one scenario are printed in full."""
MAX_NAME = 24
_SENTENCES = {clause.id: clause.text for clause in CLAUSES}


def header(names: Sequence[str]) -> str:
    """Return the header of the table."""
    return _cells(names, "scenario", "outcome", "checks", "steps", "virtual time", "real time")


def row(names: Sequence[str], played: Played) -> str:
    """Return the row of one scenario."""
    run = played.run
    held = [check.ok for check in checks_of(run.journal)]
    virtual_s = played.virtual_s
    return _cells(
        names,
        run.name,
        "no checks" if is_unchecked(played) else run.outcome,
        "" if is_unchecked(played) else f"{sum(held)}/{len(held)}",
        str(played.steps),
        f"{virtual_s:.3g} s" if virtual_s < 60 else duration(int(virtual_s)),
        f"{run.real_s or 0:.2f} s",
    )


def _cells(names: Sequence[str], name: str, outcome: str, *numbers: str) -> str:
    size = min(MAX_NAME, max(len("scenario"), *map(len, names)))
    shown = name if len(name) <= size else name[: size - 1] + "…"
    widths = (7, 6, 13, 10)
    cells = [f"{number:>{width}}" for number, width in zip(numbers, widths, strict=True)]
    cells[0] = cells[0][max(0, len(outcome) - 7) :]  # "no checks" is longer, and has no number
    return "  ".join([f"{shown:<{size}}", f"{outcome:<7}", *cells])


def told(seed: int, all_played: Sequence[Played], real_s: float) -> Iterator[str]:
    """Yield what follows the table: the reasons to skip some, the failures, and the last lines."""
    reasons: dict[str, list[str]] = {}
    for played in all_played:
        if played.run.outcome == "skipped":
            reasons.setdefault(played.run.reason, []).append(played.run.name)
    for reason, names in reasons.items():
        yield "\n" + filled(f"skipped, because {reason}:")
        yield filled(", ".join(names), 2)
    for played in all_played:
        if played.run.outcome == "failed":
            yield "\n" + "\n".join(_failure(played))
    if unchecked := [played.run.name for played in all_played if is_unchecked(played)]:
        yield "\n" + filled("no checks, so nothing was shown to hold (--allow-no-checks if meant):")
        yield filled(", ".join(unchecked), 2)
    outcomes = ["no checks" if is_unchecked(it) else it.run.outcome for it in all_played]
    counts = [(outcome, outcomes.count(outcome)) for outcome in (*OUTCOMES, "no checks")]
    numbers = ", ".join(
        f"{count} {'with ' if outcome == 'no checks' else ''}{outcome}"
        for outcome, count in counts
        if count
    )
    yield f"\n{numbers} in {real_s:.2f} s with seed {seed}"
    if len(all_played) == 1:
        yield f"journal sha256 {all_played[0].run.sha256}"
    else:
        yield f"combined sha256 {combined_sha256(all_played)}"


def is_unchecked(played: Played) -> bool:
    """Tell whether a scenario passed without a single check, which shows nothing.

    The invariants of a run do not count: a world without payments keeps them, too.
    """
    return played.run.outcome == "passed" and not checks_of(played.run.journal)


def _failure(played: Played) -> Iterator[str]:
    """Yield a scenario that failed: its failed checks, or its error."""
    run = played.run
    yield filled(f"FAILED {run.name}: {run.title}")
    yield filled(why_failed(run), 2)
    broken = failed_checks(run.journal)
    last_exchange = None
    for check, trace in broken[:MAX_CHECKS]:
        yield from _check(check)
        yield from _exchange(check.exchange, trace, is_repeated=check.exchange == last_exchange)
        last_exchange = check.exchange
    if len(broken) > MAX_CHECKS:
        yield f"\n  and {len(broken) - MAX_CHECKS} more; --json prints them all"
    for entry in run.journal:
        if isinstance(entry.event, StoryRaised) and entry.event.trace:
            yield "\n  the scenario raised it here:"
            yield from (_cut(f"    {frame}") for frame in entry.event.trace)
    yield f"\n  run it again: {played.again}"


def _check(check: Check) -> Iterator[str]:
    sentence = _SENTENCES.get(check.clause, "must hold in every run")
    yield "\n" + filled(f"{check.clause}: {sentence}", 2)
    for name, value in ("expected", check.expected), ("actual", check.actual):
        first, *rest = textwrap.wrap(printable(repr(value)), WIDTH - 14) or [""]
        yield f"    {name:<9} {first}"
        yield from (f"    {'':<9} {line}" for line in rest)


def _exchange(number: int | None, trace: list[str], *, is_repeated: bool) -> Iterator[str]:
    """Yield what happened between the request that a check is about and its answer."""
    if is_repeated:
        yield f"    about exchange {number}, too"
    elif trace:
        yield f"    exchange {number}, from request to answer:"
        yield from (_cut(f"  {line}") for line in trace)
    else:
        yield "    no request had been sent"


def _cut(line: str) -> str:
    line = printable(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
