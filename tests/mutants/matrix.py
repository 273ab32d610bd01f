"""The matrix of services and checks, as a table: what the suite says of each mutant."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from tests import verdicts as verdicts_of
from tests.mutants.honest import HONEST
from tests.mutants.judging import check_ids
from tests.mutants.rows import MUTANTS
from tests.verdicts import Verdict
from x402sim.suite.report.results import Outcome
from x402sim.suite.service.engine import folder

FILE = folder("service") / "mutation_matrix.csv"
"""The matrix of all services, kept beside the checks."""


def write(file: Path, verdicts: Sequence[Verdict]) -> None:
    """Write a row for each service and a column for each check; what was not judged stays.

    The first columns are its name, its class of defect ("honest" if it has none), and the
    ids that must fail, with spaces between them. A cell is the outcome; it is empty for
    what is no news: passed, and observed. All keep their places.
    """
    before = [row[0] for row in verdicts_of.kept(file)[1:]]
    names = [name for name in before if name in {**MUTANTS, **HONEST}]
    order = sorted(dict.fromkeys([*names, *MUTANTS, *HONEST]), key=lambda name: name in HONEST)
    header = [*FIRST, *check_ids()]
    rows = (
        {
            name: value
            for name, value in zip(header, row(verdict), strict=True)
            if not verdict.ids or name in (*FIRST, *verdict.ids)
        }
        for verdict in verdicts
    )
    verdicts_of.write(file, header, rows, order)


def row(verdict: Verdict) -> list[str]:
    found = (verdict.results.get(check) for check in check_ids())
    outcomes = [result.outcome if result else Outcome.INCONCLUSIVE for result in found]
    news = ["" if each in NO_NEWS else str(each) for each in outcomes]
    return [*_first(verdict.name), *news]


def _first(name: str) -> list[str]:
    """Return the first columns of a service: what it is called, what is wrong, what must fail."""
    mutant = MUTANTS.get(name)
    if mutant is None:
        return [name, "honest", ""]
    return [name, mutant.kind, " ".join(sorted(mutant.check_ids))]


def lacking() -> tuple[list[str], list[str]]:
    """Return the services and the ids that the kept matrix lacks; a row of another defect counts."""
    header, *rows = kept()
    have = {row[0]: row[: len(FIRST)] for row in rows}
    names = [name for name in (*MUTANTS, *HONEST) if have.get(name) != _first(name)]
    return names, [each for each in check_ids() if each not in header]


def need_all_checks() -> list[str]:
    """Return the services in which more than two ids fail that need not, as the kept matrix says.

    In one of them, a check may set off what another sees. A single id is no measure of it.
    """
    header, *rows = kept()
    return [
        name
        for name, _, must_fail, *outcomes in rows
        if len({*compress(header[3:], (it == "failed" for it in outcomes))} - {*must_fail.split()})
        > 2
    ]


def kept() -> list[list[str]]:
    return verdicts_of.kept(FILE)


FIRST = ("service", "class", "must_fail")
NO_NEWS = (Outcome.PASSED, Outcome.OBSERVED)
