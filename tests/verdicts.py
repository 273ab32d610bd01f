"""What the suite says of services of which is known what is wrong: verdicts, and their matrix.

`tests/mutants` and `tests/independent` have such services, and a command each that judges them.
"""

import argparse
import csv
import io
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from x402sim.clock import stopwatch
from x402sim.suite.report.results import Outcome, Result

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the suite said of one service; `crash` is the trace if the suite itself crashed.

    `ids` are those that it was judged by; none if by all.
    """

    name: str
    results: dict[str, Result]
    seconds: float
    crash: str = ""
    ids: Collection[str] = ()

    def of(self, *outcomes: Outcome) -> list[str]:
        """Return the ids with one of these outcomes."""
        return [check_id for check_id, each in self.results.items() if each.outcome in outcomes]

    @property
    def failed(self) -> list[str]:
        return self.of(Outcome.FAILED)

    @property
    def by_the_text(self) -> list[str]:
        """The failed ids whose demand is in the specification, or follows from it."""
        return [name for name in self.failed if name.startswith("spec/")]

    @property
    def by_us(self) -> list[str]:
        """The failed ids whose demand is the kit's own."""
        return [name for name in self.failed if not name.startswith("spec/")]

    def alarms(self) -> str:
        """Say what the suite holds against it, or could not find out."""
        odd = self.of(Outcome.FAILED, Outcome.INCONCLUSIVE)
        return "\n".join(f"{self.name}: false alarm, {self.why(name)}" for name in odd)

    def why(self, check_id: str) -> str:
        result = self.results.get(check_id)
        if result is None:
            return f"there is no check {check_id}"
        said = result.reason or f"expected {result.expected}, got {result.actual}"
        told = "" if said.startswith("expected None") else f" ({said})"
        return f"{check_id} {result.outcome}{told}"


def kept(file: Path) -> list[list[str]]:
    """Return the rows of a matrix, its header first; none if there is no file."""
    return list(csv.reader(file.read_text("utf-8").splitlines())) if file.exists() else []


def write(file: Path, header: Row, rows: Iterable[Mapping[str, str]], order: Iterable[str]) -> None:
    """Write a matrix in this order of names; rows and columns of which none is told stay.

    A name is the first column, or the first two with a slash between them. Raises `SystemExit`,
    and writes nothing, if a row of the file has no value for a new column.
    """
    first, *others = kept(file) or [[]]
    found: dict[str, Mapping[str, str]] = {}
    for row in [*(dict(zip(first, each, strict=True)) for each in others), *rows]:
        values = [*row.values()]
        for name in (values[0], "/".join(values[:2])):
            found[name] = {**found.get(name, {}), **row}
    names = [name for name in order if name in found]
    if lacking := [name for name in names if not {*header} <= {*found[name]}]:
        new = sorted({*header} - {*found[lacking[0]]})
        sys.exit(
            f"{file} is not written: {len(lacking)} of its rows, such as {lacking[0]}, have no value "
            f"for {', '.join(new)}. Judge all by what is new: --new"
        )
    text = io.StringIO()
    table = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(found[name] for name in names)
    file.write_text(text.getvalue(), encoding="utf-8")


def main(
    package: str,
    names: Mapping[str, Collection[str]],
    *,
    lacking: Callable[[], tuple[list[str], list[str]]],
    judge: Callable[[list[str], list[str]], Iterable[Verdict]],
    complaint: Callable[[Verdict], str],
    line: Callable[[Verdict], str],
    score: Callable[[Sequence[Verdict]], list[str]],
    file: Path,
    write: Callable[[Path, Sequence[Verdict]], None],
    check_ids: Collection[str],
) -> NoReturn:
    """`python -m tests.PACKAGE`: judge services, print what was found, and the score.

    `names` has the words by which --only names each of them; `check_ids` are those that --check
    takes, and `judge` is called with the names and those ids. `lacking` says what --new means: the
    names, and the ids, of which the kept matrix, `file`, knows nothing yet. Exit code 1: there was
    a complaint.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.{package}")
    parser.add_argument("--csv", type=Path, metavar="FILE", nargs="?", const=file,
                        help=f"write the matrix [{file.name}]; what was not judged stays in it")  # fmt: skip
    parser.add_argument("--only", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--check", action="append", metavar="ID", default=[],
                        help="judge by this id only, in two minutes; repeatable")  # fmt: skip
    parser.add_argument("--new", action="store_true",
                        help="judge by the ids, and the services, that the matrix lacks")  # fmt: skip
    given, elapsed = parser.parse_args(), stopwatch()
    new_names, new_ids = lacking() if given.new else ([], [])
    ids = [*dict.fromkeys([*given.check, *new_ids])]
    if unknown := {*ids} - {*check_ids}:
        parser.error(f"there is no check {', '.join(sorted(unknown))}")
    wanted = {*(given.only or ())} | {*(new_names if not ids else ())}
    if given.new and not ids and not wanted:
        if given.csv:
            write(given.csv, [])  # rows and columns of what is gone go, too
        print("the matrix lacks nothing")
        sys.exit()
    chosen = [it for it, words in names.items() if not wanted or wanted & {it, *words}]
    if not chosen:
        parser.error(f"there is no {', '.join(sorted(wanted))}")
    verdicts = dict[str, Verdict]()
    for verdict in judge(chosen, ids):
        verdicts[verdict.name] = verdict
        mark = "!" if complaint(verdict) else "+"
        text = f"{mark} {verdict.seconds:4.0f} s  {line(verdict)}"
        print(f"{len(verdicts):3}/{len(chosen)} {text}", flush=True)
    in_order = [verdicts[name] for name in chosen]
    problems = [f"! {problem}" for each in in_order if (problem := complaint(each))]
    print("\n".join([*problems, "", *score(in_order), f"in             {elapsed():.0f} s"]))
    if given.csv:
        write(given.csv, in_order)
    sys.exit(bool(problems))
