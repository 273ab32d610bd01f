"""The matrix of the strangers: which defects the suite sees, and by whose demands."""

import csv
from collections.abc import Sequence
from pathlib import Path

from tests.strangers.judging import Trial, Verdict, try_one
from tests.strangers.stranger import Defect, strangers
from x402sim.suite.engine import folder

FILE = folder() / "strangers_matrix.csv"
"""The matrix of all forms of all strangers, kept beside the checks."""
FIRST = ("service", "form", "kind", "section", "breaks", "seen_by_text", "seen_by_us", "why_not")


DOCUMENTS = ("spec", "kit")


def is_wanted(trial: Trial, only: Sequence[str] | None) -> bool:
    """Tell whether `--only` names a trial."""
    names = {trial.stranger, trial.defect, *trial.choices, trial.name}
    return not only or not names.isdisjoint(only)


def defect_of(trial: Trial) -> Defect | None:
    """Return the defect of a trial; None if the service is correct."""
    return strangers()[trial.stranger].defects[trial.defect] if trial.defect else None


def complaint(verdict: Verdict) -> str:
    """Say what is wrong with the suite, given its verdict; empty if nothing is."""
    defect = defect_of(verdict.trial)
    if defect is None:
        return verdict.alarms() if not strangers()[verdict.trial.stranger].is_loose else ""
    is_beyond = not defect.breaks or bool(defect.beyond)
    if defect.unseen or verdict.by_the_text or (verdict.by_us and is_beyond):
        return ""
    return f"missed: {defect.does}"


def look(trial: Trial) -> Verdict:
    """Run the suite against a trial; against a defect, the checks of its section first."""
    defect = defect_of(trial)
    if defect is not None and defect.section:
        chapter = defect.section.split(".")[0]
        verdict = try_one(
            trial, [f"{document}/{chapter}{end}" for document in DOCUMENTS for end in "./"]
        )
        if not complaint(verdict):
            return verdict
    return try_one(trial)


def line(verdict: Verdict) -> str:
    """Return one line of progress."""
    said = complaint(verdict)
    failed = " ".join([*verdict.by_the_text, *verdict.by_us])
    mark = "!" if said else "+"
    return f"{mark} {verdict.seconds:4.0f} s  {verdict.trial.name}  {failed}\n{said}".rstrip()


def sum_up(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the score in some lines."""
    defects = [(each, defect_of(each.trial)) for each in verdicts if each.trial.defect]
    broken = [each for each, defect in defects if defect and defect.breaks]
    text, ours = sum(bool(v.by_the_text) for v in broken), [v for v, _ in defects if v.by_us]
    correct = [each for each in verdicts if defect_of(each.trial) is None]
    alarms = sum(bool(complaint(each)) for each in correct)
    only_ours = sum(not each.by_the_text for each in ours)
    return [
        f"defects       {len(defects)}, of which {len(broken)} break a sentence",
        f"seen by it    {text} of {len(broken)}",
        f"only by us    {only_ours}",
        f"false alarms  {alarms} of {len(correct)} correct forms",
    ]


def write(file: Path, verdicts: Sequence[Verdict], trials: Sequence[Trial]) -> None:
    """Write a row for each form; rows of other forms that are in the file stay."""
    rows = {tuple(each[:2]): tuple(each) for each in kept(file)[1:]}
    rows |= {each[:2]: each for each in map(row, verdicts)}
    names = [tuple(trial.name.split("/", 1)) for trial in trials]
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(FIRST)
        table.writerows(rows[name] for name in names if name in rows)


def kept(file: Path) -> list[list[str]]:
    """Return the rows of a matrix, its header first; none if there is no file."""
    return list(csv.reader(file.read_text("utf-8").splitlines())) if file.exists() else []


def row(verdict: Verdict) -> tuple[str, ...]:
    """Return the row of one form."""
    service, form = verdict.trial.name.split("/", 1)
    defect, seen = defect_of(verdict.trial), " ".join(verdict.by_the_text)
    ours = "" if seen else " ".join(verdict.by_us)
    if defect is None:
        return (service, form, "correct", "", "", seen, ours, "")
    why = defect.unseen or defect.beyond
    return (service, form, "defect", defect.section, defect.breaks, seen, ours, why)
