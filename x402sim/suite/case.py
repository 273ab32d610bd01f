"""What the engine knows of a case, of whatever subject; and an id's result, out of its cases.

Several cases may have the same id; the worst outcome is the id's.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from x402sim.report.results import CaseResult, Outcome, Result, as_of_id
from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground
from x402sim.spec.needs import Need
from x402sim.text.words import unknown

HOLDS = (Outcome.PASSED, Outcome.OBSERVED)
"""The outcomes that a control makes doubtful, if it does not work."""
_WORST = (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.OBSERVED, Outcome.PASSED, Outcome.SKIPPED)
"""The order of outcomes: the first one among an id's cases is the id's outcome."""


class Case(Protocol):
    """One case of one id, "document/section/slug": what it demands, and why.

    `decides` are the questions that it decides: a MUST of which one was not decided by any case has
    not passed. `controls` are the ids of controls: without them, that it holds proves nothing.
    """

    @property
    def id(self) -> str:
        """The id: document, section and slug, with slashes between them."""

    @property
    def level(self) -> Level:
        """MUST, SHOULD or MAY."""

    @property
    def ground(self) -> Ground:
        """Where the demand comes from."""

    @property
    def title(self) -> str:
        """What it demands, in a sentence."""

    @property
    def name(self) -> str:
        """The id and the case, which is unique."""

    @property
    def dialect(self) -> str:
        """The dialect in which it is played; empty for a subject with only one."""

    @property
    def section(self) -> str:
        """The section of the document."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """What must be there to judge it."""

    @property
    def decides(self) -> tuple[str, ...]:
        """The questions that it decides."""

    @property
    def controls(self) -> tuple[str, ...]:
        """The ids of the controls that it depends on."""

    @property
    def is_control(self) -> bool:
        """Whether every subject that is worth judging must pass it."""


AnyCase = TypeVar("AnyCase", bound=Case)


# --- which ones ---------------------------------------------------------------------------


def by_id(cases: Iterable[AnyCase]) -> dict[str, list[AnyCase]]:
    """Return the cases of each id."""
    found: dict[str, list[AnyCase]] = {}
    for case in cases:
        found.setdefault(case.id, []).append(case)
    return found


def by_ground(cases: Iterable[AnyCase]) -> list[tuple[Ground, list[AnyCase]]]:
    """Return the cases of one id that have the same ground, together."""
    found: dict[Ground, list[AnyCase]] = {}
    for case in cases:
        found.setdefault(case.ground, []).append(case)
    return list(found.items())


def matching(cases: Iterable[AnyCase], prefix: str, documents: Sequence[str]) -> list[AnyCase]:
    """Return the cases whose id is `prefix`, or else those whose id starts with it.

    The document may be left out of it: then it is the first document that has such a case.
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
    """Return the cases whose ids an option gives the beginning of; raises `ValueError`."""
    if found := matching(cases, prefix, documents):
        return found
    clauses = dict.fromkeys(case.id.removeprefix(f"{documents[0]}/") for case in cases)
    raise ValueError(f"{option}: {unknown('id', prefix, near(clauses, prefix, documents))}")


def near(clauses: Iterable[str], prefix: str, documents: Sequence[str]) -> list[str]:
    """Return the clauses of the section that a prefix names; the beginnings, if there is none."""
    section = prefix.removeprefix(f"{documents[0]}/").split("/")[0]
    ids = dict.fromkeys(clauses)
    sections = sorted({each.split("/")[0] for each in ids} - set(documents))
    return [each for each in ids if each.startswith(f"{section}/")] or [*sections, *documents]


def select(
    prefixes: Iterable[str], cases: Sequence[AnyCase], documents: Sequence[str]
) -> list[AnyCase]:
    """Return the cases whose ids start with any of these; all without any.

    Several may stand in one text, separated by commas. Raises `ValueError` for a prefix that no
    id has.
    """
    wanted: set[str] = set()
    for prefix in (part.strip() for text in prefixes for part in text.split(",")):
        wanted |= {case.id for case in named("--only", prefix, cases, documents)}
    return [case for case in cases if not wanted or case.id in wanted]


def skipped(
    cases: Sequence[AnyCase], options: Iterable[str], documents: Sequence[str]
) -> dict[str, str]:
    """Return the cases that --skip ID=REASON names, with the reason.

    Raises `ValueError` for a prefix that no id has, and for a missing reason.
    """
    left_out: dict[str, str] = {}
    for text in options:
        prefix, _, reason = (part.strip() for part in text.partition("="))
        if not reason:
            raise ValueError(f"--skip {prefix}: give a reason, as in --skip '{prefix}=REASON'")
        found = named("--skip", prefix, cases, documents)
        left_out |= {case.name: f"--skip: {reason}" for case in found}
    return left_out


# --- what came of them --------------------------------------------------------------------

ONLY = " --only ID"
"""Stands in the command that repeats a run where the option must come before other words."""


def repeating(rerun: str, check_id: str) -> str:
    """Return the command that repeats one id, given the one that repeats the run."""
    only = f" --only {check_id}"
    return rerun.replace(ONLY, only, 1) if ONLY in rerun else f"{rerun}{only}".strip()


def in_order(results: Iterable[Result], cases: Iterable[Case]) -> list[Result]:
    """Return results in the order of the cases: what waits ends last, and belongs elsewhere."""
    places = {check_id: place for place, check_id in enumerate(dict.fromkeys(c.id for c in cases))}
    return sorted(results, key=lambda result: places.get(result.id, -1))  # controls come first


def unfinished(
    results: Sequence[Result], cases: Sequence[Case], rerun: str, why: str
) -> list[Result]:
    """Return the results of a run that ended too early, and why: the rest is inconclusive."""
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
    in_order = sorted(cases, key=lambda case: place(case, done))
    first, worst = in_order[0], done[in_order[0]]
    observed = [done[case] for case in cases if done[case].outcome is Outcome.OBSERVED]
    judged = sum(done[case].outcome is not Outcome.SKIPPED for case in cases)
    fields = as_of_id(worst)
    if worst.outcome is Outcome.OBSERVED:
        fields["actual"] = _all_observed(observed)
    fields["seconds"] = round(sum(done[case].seconds for case in cases), 3)
    losses = [loss for case in cases if (loss := done[case].loss) is not None]
    fields["loss"] = max(losses, key=lambda loss: loss.base, default=None)
    result = Result(
        id=first.id,
        level=first.level,
        section=first.section,
        rerun=repeating(rerun, first.id),
        cases=tuple(done[case] for case in in_order),
        in_part=f"{judged} of {len(cases)} cases" if 0 < judged < len(cases) else "",
        is_control=any(case.is_control for case in cases),
        **fields,
    )
    if first.level == "MUST" and result.outcome in HOLDS:
        return _decided(result, {case: done[case] for case in cases})
    return result


def _all_observed(cases: Sequence[CaseResult]) -> str:
    """Return what was observed, each text once; texts of several dialects name theirs."""
    texts: dict[str, list[str]] = {}
    for case in cases:
        if case.actual:
            texts.setdefault(case.actual, []).append(case.dialect)
    if len(texts) < 2:
        return "".join(texts)
    named = {text: ", ".join(dict.fromkeys(filter(None, its))) for text, its in texts.items()}
    return "; ".join(f"{its}: {text}" if its else text for text, its in named.items())


def place(case: AnyCase, done: Mapping[AnyCase, CaseResult]) -> tuple[int, int, int]:
    """Return the key by which the cases of an id are sorted: the worst outcome first.

    Of failures, the one that needs least comes first, and then the one whose text is shortest; of
    cases that were skipped, the one that needs least.
    """
    result = done[case]
    if result.outcome is Outcome.SKIPPED:
        return _WORST.index(result.outcome), Need.CLOCK in case.needs, len(case.needs)
    if result.outcome is not Outcome.FAILED:
        return _WORST.index(result.outcome), 0, 0
    length = len(f"{result.expected}{result.actual}")
    return _WORST.index(result.outcome), len(case.needs), length


def _decided(result: Result, done: Mapping[AnyCase, CaseResult]) -> Result:
    """Return a result that holds; if a question was not decided, it is skipped or inconclusive.

    A question is decided by any of the cases with its name. It is left out where none of them
    applies; where the run lacks what they need, the id is skipped.
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


def unclear(result: Result, why: str) -> Result:
    """Return a result that is inconclusive after all."""
    return msgspec.structs.replace(result, outcome=Outcome.INCONCLUSIVE, reason=why, evidence=None)


def doubted(
    result: Result,
    controls: Collection[str],
    broken: Mapping[str, str | None],
    why: str = "the control did not work, so this proves nothing",
) -> Result:
    """Return a result that holds as inconclusive, if a control that it depends on is `broken`.

    `broken` has what came of each control that failed, by its id. A failure stays a failure.
    """
    met = [f"{name}: {broken[name]}" for name in sorted(controls) if broken.get(name)]
    if result.outcome not in HOLDS or result.is_control or not met:
        return result
    return unclear(result, f"{why} ({'; '.join(met)})")
