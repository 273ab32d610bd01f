"""Judges the forms of strangers; their matrix says which defects are seen, by whose demands."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests import verdicts as verdicts_of
from tests.strangers.stranger import Defect, World, running, strangers
from tests.verdicts import Verdict
from x402sim.clock import stopwatch
from x402sim.suite.case import matching
from x402sim.suite.command import judge
from x402sim.suite.service.check import IDS_BEGIN
from x402sim.suite.service.engine import all_checks, folder
from x402sim.suite.service.options import Options
from x402sim.suite.service.subject import SERVICE

FILE = folder() / "strangers_matrix.csv"
"""The matrix of all forms of all strangers, kept beside the checks."""
FIRST = ("service", "form", "kind", "section", "breaks", "seen_by_text", "seen_by_us", "why_not")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One form of one stranger: with some of its legal choices, or with one of its defects."""

    stranger: str
    choices: tuple[str, ...] = ()
    defect: str = ""

    @property
    def name(self) -> str:
        """Its name in the matrix."""
        return f"{self.stranger}/{self.defect or '+'.join(self.choices) or 'as it is'}"


def try_one(trial: Trial, ids: Sequence[str] = (), *, within: World) -> Verdict:
    """Start a stranger within a world, and run the suite, or the checks of some ids."""
    stranger, checks, elapsed = strangers()[trial.stranger], all_checks(), stopwatch()
    if ids:
        checks = [check for each in ids for check in matching(checks, each, IDS_BEGIN)]
    with running(stranger, trial.choices, trial.defect, within=within) as place:
        options = Options(
            base_url=place.url,
            target=stranger.target_for(trial.choices),
            world_url=place.world,
            restart=place.restart,
        )
        results, _ = judge(SERVICE, options, checks)
    return Verdict(trial.name, {each.id: each for each in results}, elapsed())


def defect_of(name: str) -> Defect | None:
    """Return the defect of a form, named "stranger/form"; None if the service is correct."""
    service, _, form = name.partition("/")
    return strangers()[service].defects.get(form)


def complaint(verdict: Verdict) -> str:
    """Say what is wrong with the suite, given its verdict; empty if nothing is."""
    defect = defect_of(verdict.name)
    if defect is None:
        is_loose = strangers()[verdict.name.partition("/")[0]].is_loose
        return "" if is_loose else verdict.alarms()
    is_beyond = not defect.breaks or bool(defect.beyond)
    if defect.unseen or verdict.by_the_text or (verdict.by_us and is_beyond):
        return ""
    return f"{verdict.name} is missed: {defect.does}"


def look(trial: Trial, within: World) -> Verdict:
    """Run the suite against a trial; against a defect, the checks of its section first."""
    defect = defect_of(trial.name)
    if defect is not None and defect.section:
        chapter = defect.section.split(".")[0]
        ids = [f"{document}/{chapter}{end}" for document in ("spec", "kit") for end in "./"]
        verdict = try_one(trial, ids, within=within)
        if not complaint(verdict):
            return verdict
    return try_one(trial, within=within)


def sum_up(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the score in some lines."""
    defects = [(v, defect) for v in verdicts if (defect := defect_of(v.name))]
    broken = [each for each, defect in defects if defect.breaks]
    text, ours = sum(bool(v.by_the_text) for v in broken), [v for v, _ in defects if v.by_us]
    correct = [each for each in verdicts if defect_of(each.name) is None]
    alarms = sum(bool(complaint(each)) for each in correct)
    only_ours = sum(not each.by_the_text for each in ours)
    return [
        f"defects       {len(defects)}, of which {len(broken)} break a sentence",
        f"seen by it    {text} of {len(broken)}",
        f"only by us    {only_ours}",
        f"false alarms  {alarms} of {len(correct)} correct forms",
    ]


def write(file: Path, verdicts: Sequence[Verdict], order: Iterable[str]) -> None:
    """Write a row for each form; rows of other forms that are in the file stay."""
    rows = (dict(zip(FIRST, row(each), strict=True)) for each in verdicts)
    verdicts_of.write(file, FIRST, rows, order)


def row(verdict: Verdict) -> tuple[str, ...]:
    """Return the row of one form."""
    service, form = verdict.name.split("/", 1)
    defect, seen = defect_of(verdict.name), " ".join(verdict.by_the_text)
    ours = "" if seen else " ".join(verdict.by_us)
    if defect is None:
        return (service, form, "correct", "", "", seen, ours, "")
    why = defect.unseen or defect.beyond
    return (service, form, "defect", defect.section, defect.breaks, seen, ours, why)
