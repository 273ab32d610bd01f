"""Judges the forms of independent implementations; their matrix says which defects are seen, by whose demands."""

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tests import verdicts as verdicts_of
from tests.independent.implementation import Defect, World, implementations, running
from tests.verdicts import Verdict
from x402sim.clock import stopwatch
from x402sim.suite.case import matching
from x402sim.suite.command import judge
from x402sim.suite.service.case import IDS_BEGIN
from x402sim.suite.service.engine import all_checks, folder
from x402sim.suite.service.options import Options
from x402sim.suite.service.subject import SERVICE

FILE = folder("service") / "independent_matrix.csv"
"""The matrix of all forms of all of them, kept beside the checks."""
FIRST = ("service", "form", "kind", "section", "breaks", "seen_by_text", "seen_by_us", "why_not")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One form of one implementation: with some of its legal choices, or with one of its defects."""

    implementation: str
    choices: tuple[str, ...] = ()
    defect: str = ""

    @property
    def name(self) -> str:
        return f"{self.implementation}/{self.defect or '+'.join(self.choices) or 'as it is'}"


def try_one(trial: Trial, ids: Sequence[str] = (), *, within: World) -> Verdict:
    """Start an implementation within a world, and run the suite, or the checks of some ids."""
    implementation, checks, elapsed = (
        implementations()[trial.implementation],
        all_checks(),
        stopwatch(),
    )
    if ids:
        checks = [check for each in ids for check in matching(checks, each, IDS_BEGIN)]
    with running(implementation, trial.choices, trial.defect, within=within) as place:
        options = Options(
            base_url=place.url,
            target=implementation.target_for(trial.choices),
            world_url=place.world,
            restart=place.restart,
        )
        results, _ = judge(SERVICE, options, checks)
    return Verdict(trial.name, {each.id: each for each in results}, elapsed())


def defect_of(name: str) -> Defect | None:
    """Return the defect of a form, named "implementation/form"; None if the service is correct."""
    service, _, form = name.partition("/")
    return implementations()[service].defects.get(form)


def complaint(verdict: Verdict) -> str:
    """Say what is wrong with the suite, given its verdict; empty if nothing is."""
    defect = defect_of(verdict.name)
    if defect is None:
        is_loose = implementations()[verdict.name.partition("/")[0]].is_loose
        return "" if is_loose else verdict.alarms()
    if verdict.ids:
        return ""  # its row holds
    is_beyond = not defect.breaks or bool(defect.beyond)
    if defect.unseen or verdict.by_the_text or (verdict.by_us and is_beyond):
        return ""
    return f"{verdict.name} is missed: {defect.does}"


def look(trial: Trial, within: World) -> Verdict:
    """Run the suite against a trial; against a defect, the checks of its section first."""
    if ids := _of_its_section(defect_of(trial.name)):
        verdict = try_one(trial, ids, within=within)
        if not complaint(verdict):
            return verdict
    return try_one(trial, within=within)


def look_again(trial: Trial, ids: Collection[str], within: World) -> Verdict:
    """Look by some ids only; and in full if one of them finds other than what is kept of the trial.

    A row names the kit's ids only if none of the specification's found anything, and those of other
    sections only if a defect's own found nothing: such ids are left out. The verdict has `ids` if
    the row holds.
    """
    if lacking([trial.name]):
        return look(trial, within)
    before = {_name(row): row for row in kept()}[trial.name]
    found = _found(before)
    section = tuple(_of_its_section(defect_of(trial.name)))
    if found and section and all(each.startswith(section) for each in found):
        ids = [each for each in ids if each.startswith(section)]
    if before["seen_by_text"]:
        ids = [each for each in ids if each.startswith("spec/")]
    if not ids:
        return Verdict(trial.name, {}, 0, ids=("none",))
    verdict = try_one(trial, [*ids], within=within)
    holds = {*verdict.failed} & {*ids} == {*found} & {*ids}
    return replace(verdict, ids=ids) if holds else look(trial, within)


def lacking(names: Iterable[str]) -> list[str]:
    """Return those of these forms that the kept matrix lacks; a row with an id that is gone counts."""
    ids = {check.id for check in all_checks()}
    have = {_name(row) for row in kept() if ids.issuperset(_found(row))}
    return [name for name in names if name not in have]


def kept() -> list[dict[str, str]]:
    return list(csv.DictReader(FILE.read_text("utf-8").splitlines()))


def _found(row: Mapping[str, str]) -> list[str]:
    return f"{row['seen_by_text']} {row['seen_by_us']}".split()


def _name(row: Mapping[str, str]) -> str:
    return f"{row['service']}/{row['form']}"


def _of_its_section(defect: Defect | None) -> list[str]:
    """Return how the ids of a defect's section begin; none for a correct service."""
    if defect is None or not defect.section:
        return []
    chapter = defect.section.split(".")[0]
    return [f"{document}/{chapter}{end}" for document in ("spec", "kit") for end in "./"]


def sum_up(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the score in some lines; a defect counts if it was judged in full."""
    defects = [(v, defect) for v in verdicts if (defect := defect_of(v.name)) and not v.ids]
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
    """Write a row for each form that was judged in full; the others that are in the file stay."""
    rows = (dict(zip(FIRST, row(each), strict=True)) for each in verdicts if not each.ids)
    verdicts_of.write(file, FIRST, rows, order)


def row(verdict: Verdict) -> tuple[str, ...]:
    service, form = verdict.name.split("/", 1)
    defect, seen = defect_of(verdict.name), " ".join(verdict.by_the_text)
    ours = "" if seen else " ".join(verdict.by_us)
    if defect is None:
        return (service, form, "correct", "", "", seen, ours, "")
    why = defect.unseen or defect.beyond
    return (service, form, "defect", defect.section, defect.breaks, seen, ours, why)
