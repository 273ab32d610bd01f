"""Groups failures by their probable cause; every report shows these groups.

`conformance/service/mutation_matrix.csv` records joint failures: a row for each service with a
known defect, and the failed checks of the service. The probable causes of a run are the fewest rows
that explain its failures. Causes with a failed MUST come first, then the causes with the greatest
loss. `causes.toml` in each subject's folder has for each id or demand the meaning of a failure, its
repair, who loses, and the other failures that cause it.
"""

import csv
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import msgspec

from x402sim.spec.ground import folder
from x402sim.suite.report.results import (
    CaseResult,
    DemandKey,
    Evidence,
    Outcome,
    Result,
    Results,
    failures,
)

FILE, WORDS = "mutation_matrix.csv", "causes.toml"
ENOUGH = 0.5
"""The share of a known defect's failures that makes it a probable cause."""
_LEAST_ANSWER = 14
"""Characters that identify an answer: its status, and some of its body."""
_GENERAL = (DemandKey.WITHHELD, DemandKey.REFUSED)
"""Demands of many checks: two failures of such a demand need not have one cause."""
_GIVES_AWAY = (DemandKey.WITHHELD, DemandKey.UNPAID_2XX)
_OF_FORM = (
    DemandKey.FORM,
    DemandKey.OFFER,
    DemandKey.STATUS,
    DemandKey.ERROR_TEXT,
    DemandKey.GOES_ON,
)
Loss = Literal["goods", "payers", "gas", "work", "sales", "words"]
LOSSES: dict[str, str] = {
    "goods": "the service gives away what it sells",
    "payers": "payers lose money, or what they paid for",
    "gas": "gas is paid for nothing",
    "work": "it works for who has not paid",
    "sales": "good payments are refused",
    "words": "nobody loses money",
}
"""Who loses by a failure, the greatest loss first."""
_JUDGED = (Outcome.PASSED, Outcome.FAILED, Outcome.OBSERVED)


@dataclass(frozen=True, slots=True)
class _Defect:
    """A known defect: the ids that then fail, and the ids that cannot be judged."""

    breaks: frozenset[str]
    """The clauses that the defect breaks."""
    fails: frozenset[str]
    stops: frozenset[str]


class _Words(msgspec.Struct, frozen=True):
    """The texts of reports about a failed id."""

    cause: str
    repair: str
    loss: Loss
    expected: str = ""
    """The behaviour that keeps the demand; empty where each case words its own."""
    why: str = ""
    """The harm of a failure that moves no money; empty where each case words its own."""
    at: tuple[str, ...] = ()
    """Places with this cause, whatever the cause elsewhere: ids without dialects, each alone or
    with the failed demand, "payer/send/proof-redirected: DEMAND"."""
    follows: tuple[str, ...] = ()
    """Keys of possible causes: the failure follows from the first that has failed, too."""
    gathers: str = ""
    """A demand of an ordinary payment: if it fails here, all that fail nothing else follow."""


class StopCause(msgspec.Struct, frozen=True):
    """A probable cause: the broken id, the defect, its case, and the ids that follow.

    `repair` is the remedy, and `loss` tells who loses; both are empty for an id without a verdict.
    """

    id: str
    outcome: Outcome
    cause: str
    repair: str
    loss: str
    title: str
    follows: list[str]


def by_cause(results: Results) -> list[list[Result]]:
    """Return the failed and inconclusive ids, in groups of one probable cause each.

    Groups with a failed MUST come first, then the groups with the greatest loss. The first id of a
    group is broken; the others follow from it, a MUST first. A failure that no known defect
    explains joins failures with the same answer to the same demand, and the cause that
    `causes.toml` names. An inconclusive id joins the failure whose answer its reason quotes; else
    ids with the same reason are one group.
    """
    failed = {each.id: each for each in results if each.outcome is Outcome.FAILED}
    judged = {each.id for each in results if each.outcome in _JUDGED}
    groups = _alike([failed[name] for name in group] for group in _explained(failed, judged))
    begun = {each.id for each in results if each.outcome is not Outcome.SKIPPED}
    reasons: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome is Outcome.INCONCLUSIVE:
            reasons.setdefault(_evidence(result).answer, []).append(result)
    for reason, stopped in reasons.items():
        stopped.sort(key=_urgency)
        group = next((each for each in groups if _is_behind(each, stopped, reason, begun)), None)
        groups.append(stopped) if group is None else group.extend(stopped)
    places = {each.id: place for place, each in enumerate(results)}
    groups.sort(key=lambda group: (*_rank(group), places[group[0].id]))
    return _gathered(groups)


def causes(results: Results) -> list[StopCause]:
    """Return each probable cause, the most urgent first."""
    return [
        StopCause(
            id=group[0].id,
            outcome=group[0].outcome,
            cause=cause(group[0]),
            repair=repair(group[0]),
            loss=loss(group),
            title=failures(group[0])[0].title,
            follows=[each.id for each in group[1:]],
        )
        for group in by_cause(results)
    ]


def cause(result: Result) -> str:
    """Return the defect of a subject that failed an id, or why the id was not judged."""
    if result.outcome is not Outcome.FAILED:
        return f"not judged: {result.reason}"
    known = _known(result)
    return known.cause if known else f"not so: {failures(result)[0].title}"


def repair(result: Result) -> str:
    """Return the repair of a subject that failed an id; empty if unknown."""
    known = _known(result) if result.outcome is Outcome.FAILED else None
    return known.repair if known else ""


def repairs() -> dict[str, str]:
    """Return the repair of each defect of `causes.toml`, by the text of the defect."""
    return {words.cause: words.repair for words in _words().values()}


def expected(demand: str) -> str:
    """Return the behaviour that a demand of `causes.toml` expects; raises `KeyError`."""
    return _words()[demand].expected


def why(demand: str) -> str:
    """Return the harm of a failed demand, by `causes.toml`; empty if unknown."""
    known = _words().get(demand)
    return known.why if known else ""


def loss(group: Iterable[Result]) -> str:
    """Return who loses by one cause, the greatest loss; empty without a failure."""
    found = {_loss(each) for each in group if each.outcome is Outcome.FAILED}
    return next((each for each in LOSSES if each in found), "")


def _loss(result: Result) -> str:
    """Return who loses by one failure: nobody if only demands of form failed; empty if unknown."""
    demands, known = [_evidence(case).demand for case in failures(result)], _known(result)
    if any(demand in _GIVES_AWAY for demand in demands):
        return "goods"
    if known is None:
        return ""
    return "words" if all(demand in _OF_FORM for demand in demands) else known.loss


def _known(result: Result) -> _Words | None:
    """Return the texts about a failed id, or None."""
    return _words().get(_key(result))


def _key(result: Result) -> str:
    """Return the key of a failed id in `causes.toml`; empty without one."""
    evidence = _evidence(failures(result)[0])
    keys = (
        f"{result.id}: {evidence.demand}",
        _there(evidence),
        *(evidence.demand, evidence.about, result.id),
    )
    return next((key for key in keys if key in _words()), "")


def _there(evidence: Evidence) -> str:
    """Return the key of a failure's cause at the place found; empty without a cause."""
    places = (f"{evidence.place}: {evidence.demand or evidence.about}", evidence.place)
    return next((_places()[each] for each in places if each in _places()), "")


def _evidence(result: CaseResult | Result) -> Evidence:
    """Return the evidence by which failures are compared, or a result's texts instead."""
    answer = result.actual if result.outcome is Outcome.FAILED else result.reason
    return result.evidence or Evidence(DemandKey.OTHER, result.expected or "", answer or "")


@cache
def _words() -> dict[str, _Words]:
    every: dict[str, object] = {}
    for file in sorted(folder("service").parent.glob(f"*/{WORDS}")):
        every |= tomllib.loads(file.read_text("utf-8"))
    return msgspec.convert(every, dict[str, _Words])


@cache
def _places() -> dict[str, str]:
    """Return the key of the cause at each place with a special cause."""
    return {place: key for key, words in _words().items() for place in words.at}


@cache
def _defects() -> tuple[_Defect, ...]:
    found = []
    for row in csv.DictReader((folder("service") / FILE).read_text(encoding="utf-8").splitlines()):
        fails, stops = (
            frozenset(name for name, outcome in row.items() if outcome == wanted)
            for wanted in ("failed", "inconclusive")
        )
        if row["must_fail"]:
            found.append(_Defect(frozenset(row["must_fail"].split()), fails, stops))
    return tuple(dict.fromkeys(found))


def _explained(failed: Collection[str], judged: set[str]) -> Iterator[list[str]]:
    """Yield groups of failed ids that the fewest known defects explain, then the other ids."""
    left = dict.fromkeys(failed)
    known = []
    for each in _defects():
        fails = each.fails & judged
        here = fails.intersection(failed)
        if each.breaks & here and len(here) >= ENOUGH * len(fails):
            known.append((each.breaks, here, (len(fails) - len(here)) / 10))
    while known:
        breaks, here, _ = max(known, key=lambda each: len(each[1] & left.keys()) - each[2])
        together = [name for name in left if name in here]
        if len(together) < 2:
            break
        yield sorted(together, key=lambda name: name not in breaks)
        left = {name: None for name in left if name not in here}
    yield from ([name] for name in left)


def _alike(groups: Iterable[list[Result]]) -> list[list[Result]]:
    """Join single failures to a group with the same demand and answer.

    A demand with its own entry in `causes.toml` is one cause, whatever the answer. Two wrong
    payments that are both served need not have a common cause (`_GENERAL`).
    """
    found: dict[tuple[str, str], list[Result]] = {}
    kept = []
    for group in sorted(groups, key=lambda each: (len(each) == 1, _urgency(each[0]))):
        evidence = _evidence(failures(group[0])[0])
        there = _there(evidence)
        has_words = there or evidence.demand in _words() or evidence.about in _words()
        alike = there or evidence.demand or evidence.about, "" if has_words else evidence.answer
        same = found.setdefault(alike, group)
        is_apart = evidence.demand in _GENERAL
        if same is not group and (has_words or len(group) == 1) and (there or not is_apart):
            same += group
        else:
            kept.append(group)
    return [[group[0], *sorted(group[1:], key=_urgency)] for group in _rooted(kept)]


def _rooted(groups: list[list[Result]]) -> list[list[Result]]:
    """Join groups to their root group in `causes.toml`."""
    first: dict[str, list[Result]] = {}
    for group in groups:
        first.setdefault(_key(group[0]), group)

    def root(group: list[Result]) -> list[Result]:
        known = _known(group[0])
        roots = [first[key] for key in known.follows if key in first] if known else []
        return root(roots[0]) if roots else group

    for group in groups:
        if (its := root(group)) is not group:
            its += group
    return [group for group in groups if root(group) is group]


def _gathered(groups: list[list[Result]]) -> list[list[Result]]:
    """Put first the id with `gathers`, joined by the failures of the named demand.

    A service never settles if it served an ordinary payment that moved nothing.
    """
    head, demand = next((key, each.gathers) for key, each in _words().items() if each.gathers)

    def is_its(case: CaseResult | Result) -> bool:
        return _evidence(case).demand == demand

    failed = [each for group in groups for each in group if each.outcome is Outcome.FAILED]
    if not any(each.id == head and any(map(is_its, failures(each))) for each in failed):
        return groups
    its = {head, *(each.id for each in failed if all(map(is_its, failures(each))))}
    apart = [group for group in groups if its.isdisjoint(each.id for each in group)]
    merged = [each for group in groups if group not in apart for each in group]
    return [sorted(merged, key=lambda each: (each.id != head, _urgency(each))), *apart]


def _is_behind(group: list[Result], stopped: list[Result], reason: str, begun: set[str]) -> bool:
    """Tell whether failures are the reason why other ids could not be judged.

    They are if the reason quotes a failure's answer. They also are if a known defect that breaks a
    failed id stops at least half of the other ids, and the stopped ids among them are at least half
    of all begun ids that the defect stops.
    """
    failed = [each for each in group if each.outcome is Outcome.FAILED]
    answers = [_evidence(failures(each)[0]).answer for each in failed]
    if any(len(answer) >= _LEAST_ANSWER and answer in reason for answer in answers):
        return True
    ids, names = {each.id for each in stopped}, {each.id for each in failed}
    return any(
        len(each.stops & ids) >= ENOUGH * max(len(ids), len(each.stops & begun))
        for each in _defects()
        if each.breaks & names
    )


def _rank(group: list[Result]) -> tuple[bool, bool, int]:
    """Return the rank of a group: a failed MUST first, then by loss; groups not judged last."""
    is_open, is_no_must = min(map(_urgency, group))
    return is_open, is_no_must, [*LOSSES, ""].index(loss(group))


def _urgency(result: Result) -> tuple[bool, bool]:
    return result.outcome is not Outcome.FAILED, result.level != "MUST"
