"""A baseline: known failures, which do not count again.

A baseline is an earlier JSON report of the same subject, or a TOML file of ids with reasons. An id
of the TOML file that holds fails the run.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from x402sim.suite.case import HOLDS
from x402sim.suite.report.results import CaseResult, Outcome, Result, by_dialect
from x402sim.text.words import printable, unknown

WANTED = "a JSON report (--report FILE.json) of an earlier run, or a TOML file of ids with reasons"
AS_TOML = 'a line of it: "facilitator/fields/network" = "repaired in the next release"'
_OPEN = (Outcome.FAILED, Outcome.INCONCLUSIVE)


class _Case(msgspec.Struct, frozen=True):
    """A case in a baseline."""

    title: str
    outcome: Outcome
    dialect: str = ""


class _Found(msgspec.Struct, frozen=True):
    """An id in a baseline."""

    id: str
    outcome: Outcome
    cases: tuple[_Case, ...]


class Baseline(msgspec.Struct, frozen=True):
    """A baseline: the kind of subject, and the results."""

    results: tuple[_Found, ...]
    subject: str = "service"


@dataclass(frozen=True, slots=True)
class Reasons:
    """Known failures: a reason for each id, or for "ID [DIALECT]"."""

    by_id: Mapping[str, str]

    def of(self, result: Result) -> dict[str, str]:
        """Return the entries about the judged dialects of a result, by dialect."""
        entries = {dialect: f"{result.id} [{dialect}]" for dialect in by_dialect(result)}
        named = {name: it if it in self.by_id else result.id for name, it in entries.items()}
        return {name: it for name, it in named.items() if it in self.by_id}


def load(file: Path, subject: str, ids: Collection[str] = ()) -> Baseline | Reasons:
    """Return a baseline; raises `ValueError` for another kind of file, or another subject's.

    `ids` are all ids of the subject: a TOML file of reasons may name no other.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ValueError(f"--baseline {file}: {error.strerror}; it is {WANTED}") from error
    if file.suffix == ".toml":
        return _reasons(file, content, ids)
    try:
        found = msgspec.json.decode(content, type=Baseline)
    except msgspec.MsgspecError as error:
        raise ValueError(f"--baseline {file}: {error}; it is {WANTED}") from error
    if found.subject != subject:
        raise ValueError(f"--baseline {file}: it is about a {found.subject}, not a {subject}")
    return found


def _reasons(file: Path, content: bytes, ids: Collection[str]) -> Reasons:
    try:
        found = tomllib.loads(content.decode())
    except ValueError as error:
        raise ValueError(f"--baseline {file}: {error}; {AS_TOML}") from error
    for name, reason in found.items():
        if not isinstance(reason, str) or not reason:
            raise ValueError(f"--baseline {file}: {name} has no reason; {AS_TOML}")
        if (check_id := re.sub(r" \[[\w-]+\]$", "", name)) not in ids:
            raise ValueError(
                f"--baseline {file}: {unknown('id', check_id, ids, possible='--list')}"
            )
    return Reasons(found)


def known(results: Sequence[Result], baseline: Baseline | Reasons) -> list[Result]:
    """Return results; the findings that the baseline has, too, are marked as known."""
    if isinstance(baseline, Reasons):
        return [_with_reason(each, baseline) for each in results]
    before = {each.id: each for each in baseline.results}
    return [
        msgspec.structs.replace(each, is_known=_is_known(each, before.get(each.id)))
        for each in results
    ]


def _with_reason(result: Result, reasons: Reasons) -> Result:
    entries = reasons.of(result)
    failed = [name for name, it in by_dialect(result).items() if it.outcome is Outcome.FAILED]
    if not failed or not {*failed} <= {*entries}:
        return result
    why = "; ".join(dict.fromkeys(reasons.by_id[entries[name]] for name in failed))
    return msgspec.structs.replace(result, is_known=True, known_because=why)


def _is_known(result: Result, before: _Found | None) -> bool:
    if before is None or result.outcome not in _OPEN or result.outcome is not before.outcome:
        return False
    counts = [Counter(each.dialect for each in it.cases) for it in (result, before)]
    several = {name for count in counts for name in count if count[name] > 1 or not name}

    def keys(cases: Sequence[CaseResult | _Case]) -> set[tuple[str, str]]:
        """Return the dialect of each case with this outcome, and the title where it has several."""
        found = (each for each in cases if each.outcome is result.outcome)
        return {(each.dialect, printable(each.title) * (each.dialect in several)) for each in found}

    if result.outcome is Outcome.INCONCLUSIVE:
        return {name for name, _ in keys(result.cases)} <= {name for name, _ in keys(before.cases)}
    return keys(result.cases) <= keys(before.cases)


def mended(results: Sequence[Result], baseline: Baseline | Reasons) -> list[str]:
    """Return the ids that failed in the baseline, and hold now; of reasons, the entries."""
    if isinstance(baseline, Reasons):
        seen: dict[str, list[Outcome]] = {}
        for result in results:
            for dialect, entry in baseline.of(result).items():
                seen.setdefault(entry, []).append(by_dialect(result)[dialect].outcome)
        return [each for each, found in seen.items() if all(it in HOLDS for it in found)]
    failed = {each.id for each in baseline.results if each.outcome is Outcome.FAILED}
    return [each.id for each in results if each.id in failed and each.outcome in HOLDS]
