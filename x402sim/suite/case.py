"""Cases of any kind of subject: selection, and the result of an id out of its cases.

Several cases may share an id; the worst outcome is the id's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground
from x402sim.spec.needs import Need
from x402sim.suite.report.results import CaseResult, DemandKey, Outcome, Result, as_of_id
from x402sim.text.words import unknown

HOLDS = (Outcome.PASSED, Outcome.OBSERVED)
"""The outcomes that become inconclusive if a control fails."""
_WORST = (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.OBSERVED, Outcome.PASSED, Outcome.SKIPPED)
"""Outcomes, worst first: the id gets the worst outcome of its cases."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One case of one id, "document/section/slug"; each judge adds fields for the play.

    `decides` names the questions the case decides: a MUST passes only if a case has decided each
    question.
    """

    id: str
    level: Level
    ground: Ground
    title: str
    """The demand, in a sentence."""
    played_as: str
    """The name of the play: cases with one name share a play."""
    control: str = ""
    """The id of the control: if the control fails, a pass in this dialect proves nothing."""
    is_control: bool = False
    """Whether every subject worth judging must pass the case."""
    waits_s: float = 0
    """Seconds that the play waits idle, at least."""
    needs: tuple[Need, ...] = ()
    decides: tuple[str, ...] = ()
    dialect: str = ""
    """The dialect of the play; empty for a subject with only one dialect."""
    variant: str = ""
    """The input of the play, where several plays make one demand, each with another input."""

    @property
    def name(self) -> str:
        """A unique name: id, variant and dialect: "facilitator/fields/lacks (from) [v2]"."""
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.id}{variant} [{self.dialect}]" if self.dialect else self.id

    @property
    def section(self) -> str:
        """The section of the document."""
        return self.id.split("/")[1]


AnyCase = TypeVar("AnyCase", bound=Case)
Key = TypeVar("Key")


# --- selection ----------------------------------------------------------------------------


def by_id(cases: Iterable[AnyCase]) -> dict[str, list[AnyCase]]:
    """Return the cases of each id."""
    return _grouped(cases, lambda case: case.id)


def by_play(cases: Iterable[AnyCase]) -> list[list[AnyCase]]:
    """Return the cases in groups that share a play."""
    return list(_grouped(cases, lambda case: case.played_as).values())


def by_ground(cases: Iterable[AnyCase]) -> list[tuple[Ground, list[AnyCase]]]:
    """Return the cases of one id that have the same ground, together."""
    return list(_grouped(cases, lambda case: case.ground).items())


def _grouped(cases: Iterable[AnyCase], key: Callable[[AnyCase], Key]) -> dict[Key, list[AnyCase]]:
    found: dict[Key, list[AnyCase]] = {}
    for case in cases:
        found.setdefault(key(case), []).append(case)
    return found


def matching(cases: Iterable[AnyCase], prefix: str, documents: Sequence[str]) -> list[AnyCase]:
    """Return the cases with the id `prefix`, or else the cases whose id starts with `prefix`.

    A prefix without a document means the first document with such a case.
    """
    cases = list(cases)
    for begin in (prefix, *(f"{document}/{prefix}" for document in documents)):
        if found := [case for case in cases if case.id == begin]:
            return found
        if found := [case for case in cases if case.id.startswith(begin)]:
            return found
    return []


def named(
    option: str, prefix: str, cases: Sequence[AnyCase], documents: Sequence[str]
) -> list[AnyCase]:
    """Return the cases whose ids start with an option's value; raises `ValueError` for no case."""
    if found := matching(cases, prefix, documents):
        return found
    clauses = dict.fromkeys(case.id.removeprefix(f"{documents[0]}/") for case in cases)
    raise ValueError(f"{option}: {unknown('id', prefix, near(clauses, prefix, documents))}")


def near(clauses: Iterable[str], prefix: str, documents: Sequence[str]) -> list[str]:
    """Return the clauses of the section in a prefix; all sections and documents if it has none."""
    section = prefix.removeprefix(f"{documents[0]}/").split("/")[0]
    ids = dict.fromkeys(clauses)
    sections = sorted({each.split("/")[0] for each in ids} - set(documents))
    return [each for each in ids if each.startswith(f"{section}/")] or [*sections, *documents]


def select(
    prefixes: Iterable[str], cases: Sequence[AnyCase], documents: Sequence[str]
) -> list[AnyCase]:
    """Return the cases whose ids start with one of the prefixes; all cases without prefixes.

    Commas separate several prefixes in one text. Raises `ValueError` for a prefix of no id.
    """
    wanted: set[str] = set()
    for prefix in (part.strip() for text in prefixes for part in text.split(",")):
        wanted |= {case.id for case in named("--only", prefix, cases, documents)}
    return [case for case in cases if not wanted or case.id in wanted]


def skipped_by_user(
    cases: Sequence[AnyCase], options: Iterable[str], documents: Sequence[str]
) -> dict[str, str]:
    """Return the names of the cases that --skip ID=REASON leaves out, each with the reason.

    Raises `ValueError` for a prefix of no id, and for a missing reason.
    """
    left_out: dict[str, str] = {}
    for text in options:
        prefix, _, reason = (part.strip() for part in text.partition("="))
        if not reason:
            raise ValueError(f"--skip {prefix}: give a reason, as in --skip '{prefix}=REASON'")
        found = named("--skip", prefix, cases, documents)
        left_out |= {case.name: f"--skip: {reason}" for case in found}
    return left_out


# --- results ------------------------------------------------------------------------------

ONLY = " --only ID"
"""Marks the place of --only in a command that repeats a run and ends in a subject's own words."""


def repeating(rerun: str, check_id: str) -> str:
    """Return the command that repeats one id, or all; `rerun` repeats the whole run."""
    only = f" --only {check_id}" if check_id else ""
    return rerun.replace(ONLY, only, 1) if ONLY in rerun else f"{rerun}{only}".strip()


def in_order(results: Iterable[Result], cases: Iterable[Case]) -> list[Result]:
    """Return results in the order of the cases: a case that waits ends late."""
    places = {check_id: place for place, check_id in enumerate(dict.fromkeys(c.id for c in cases))}
    return sorted(results, key=lambda result: places.get(result.id, -1))  # controls come first


def unfinished(
    results: Sequence[Result], cases: Sequence[Case], rerun: str, why: str
) -> list[Result]:
    """Return all results of a run that ended early: missing ids are inconclusive, with `why`."""
    judged = {result.id for result in results}
    missing = {case.id: case for case in cases if case.id not in judged}
    rest = [
        Result(
            id=case.id,
            level=case.level,
            section=case.section,
            outcome=Outcome.INCONCLUSIVE,
            title=case.title,
            reason=why,
            rerun=repeating(rerun, case.id),
            ground=case.ground,
            is_control=case.is_control,
        )
        for case in missing.values()
    ]
    return in_order([*results, *rest], cases)


def of_id(cases: Sequence[AnyCase], done: Mapping[AnyCase, CaseResult], rerun: str) -> Result:
    """Return the result of an id; `rerun` is the command that repeats the run, without --only."""
    in_order = sorted(cases, key=lambda case: clarity(case, done))
    first, worst = in_order[0], done[in_order[0]]
    observed = [done[case] for case in cases if done[case].outcome is Outcome.OBSERVED]
    judged = sum(done[case].outcome is not Outcome.SKIPPED for case in cases)
    fields = as_of_id(worst)
    if worst.outcome is Outcome.OBSERVED:
        fields["actual"] = _all_observed(observed)
    fields["seconds"] = round(sum(done[case].seconds for case in cases), 3)
    losses = [loss for case in cases if (loss := done[case].loss) is not None]
    fields["loss"] = max(losses, key=lambda loss: loss.base, default=None)
    demand = worst.evidence and worst.evidence.demand
    # The ends of other plays have failed the control: they all are to be repeated.
    by_others = first.is_control and demand is DemandKey.GOES_ON_RUNNING
    result = Result(
        id=first.id,
        level=first.level,
        section=first.section,
        rerun=repeating(rerun, "" if by_others else first.id),
        cases=tuple(done[case] for case in in_order),
        in_part=f"{judged} of {len(cases)} cases" if 0 < judged < len(cases) else "",
        is_control=any(case.is_control for case in cases),
        **fields,
    )
    if first.level == "MUST" and result.outcome in HOLDS:
        return _decided(result, {case: done[case] for case in cases})
    return result


def _all_observed(cases: Sequence[CaseResult]) -> str:
    """Return the observations, each text once; if texts differ, each names its dialects."""
    texts: dict[str, list[str]] = {}
    for case in cases:
        if case.actual:
            texts.setdefault(case.actual, []).append(case.dialect)
    if len(texts) < 2:
        return "".join(texts)
    named = {text: ", ".join(dict.fromkeys(filter(None, its))) for text, its in texts.items()}
    return "; ".join(f"{its}: {text}" if its else text for text, its in named.items())


def clarity(case: AnyCase, done: Mapping[AnyCase, CaseResult]) -> tuple[int, int, int]:
    """Return the sort key of an id's cases: the worst outcome first.

    Among failures, fewest needs come first, then the shortest text; among skipped cases, fewest
    needs.
    """
    result = done[case]
    if result.outcome is Outcome.SKIPPED:
        return _WORST.index(result.outcome), Need.CLOCK in case.needs, len(case.needs)
    if result.outcome is not Outcome.FAILED:
        return _WORST.index(result.outcome), 0, 0
    length = len(f"{result.expected}{result.actual}")
    return _WORST.index(result.outcome), len(case.needs), length


def _decided(result: Result, done: Mapping[AnyCase, CaseResult]) -> Result:
    """Return a result that holds, or a skipped or inconclusive one if a question was not decided.

    Any case that names a question in `decides` decides the question. A question without an
    applicable case does not count. The id is skipped if the run lacks what the cases need.
    """
    deciding: dict[str, list[CaseResult]] = {}
    for case, its in done.items():
        for question in case.decides if its.applies else ():
            deciding.setdefault(question, []).append(its)
    left = [
        each
        for cases in deciding.values()
        if all(its.outcome is Outcome.SKIPPED for its in cases)
        for each in cases
    ]
    if not left:
        return result
    first = min(left, key=lambda its: its.lacks)
    why = f"a decisive case was not judged: {first.title.rstrip('.')}: {first.reason}"
    return msgspec.structs.replace(
        result,
        outcome=Outcome.SKIPPED if first.lacks else Outcome.INCONCLUSIVE,
        title=first.title,
        ground=first.ground,
        reason=first.reason if first.lacks else why,
        actual=None,
        evidence=None,
    )
