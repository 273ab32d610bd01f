"""The matrix of services and checks, as a table: what the suite says of each mutant."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.honest import HONEST
from tests.mutants.jury import Verdict
from tests.mutants.rows import MUTANTS
from x402sim.suite.engine import folder
from x402sim.suite.verdict import Outcome

FILE = folder() / "mutation_matrix.csv"
"""The matrix of all services, kept beside the checks."""


def write(file: Path, verdicts: Sequence[Verdict], checks: Sequence[str]) -> None:
    """Write a row for each service and a column for each check.

    The first columns are its name, its class of defect ("honest" if it has none), and the
    ids that must fail, with spaces between them. A cell is the outcome; it is empty for
    what is no news: passed, and observed. Rows of other services in the file stay, and all
    keep their places; new mutants come before the honest services.
    """
    header, *old = kept(file) if file.exists() else [[]]
    rows = {name: values for name, *values in old}
    new = {name: values for name, *values in (row(verdict, checks) for verdict in verdicts)}
    known = [name for name in {**rows, **new} if name in MUTANTS or name in HONEST]
    if header == [*FIRST, *checks]:
        new = rows | new
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*FIRST, *checks])
    in_order = sorted(known, key=lambda name: name in HONEST)
    table.writerows([name, *new[name]] for name in in_order if name in new)
    file.write_text(text.getvalue(), encoding="utf-8")


def row(verdict: Verdict, checks: Sequence[str]) -> list[str]:
    """Return the row of one service."""
    mutant = MUTANTS.get(verdict.name)
    wanted = sorted(mutant.check_ids) if mutant else []
    outcomes = [_outcome(verdict, check) for check in checks]
    news = ["" if each in NO_NEWS else str(each) for each in outcomes]
    return [verdict.name, mutant.kind if mutant else "honest", " ".join(wanted), *news]


def kept(file: Path = FILE) -> list[list[str]]:
    """Return the rows of a matrix, its header first; by default of the one that is kept."""
    return list(csv.reader(file.read_text(encoding="utf-8").splitlines()))


FIRST = ("service", "class", "must_fail")
NO_NEWS = (Outcome.PASSED, Outcome.OBSERVED)


def _outcome(verdict: Verdict, check: str) -> Outcome:
    result = verdict.results.get(check)
    return result.outcome if result else Outcome.INCONCLUSIVE
