"""A baseline: an earlier JSON report of the same subject. What it has found does not count again.

A failure is known if each of its failed cases failed then, too; what could not be judged then, and
cannot be now, is known as well.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from x402sim.report.results import Outcome, Result, failures
from x402sim.text.words import printable

WANTED = "a JSON report (--json-file) of an earlier run"
_OPEN = (Outcome.FAILED, Outcome.INCONCLUSIVE)


class _Case(msgspec.Struct, frozen=True):
    """What a baseline says of a case."""

    title: str
    outcome: Outcome


class _Found(msgspec.Struct, frozen=True):
    """What a baseline says of an id."""

    id: str
    outcome: Outcome
    cases: tuple[_Case, ...]


class Baseline(msgspec.Struct, frozen=True):
    """A baseline: what was judged, and what came of it."""

    results: tuple[_Found, ...]
    subject: str = "service"


def load(file: Path, subject: str) -> Baseline:
    """Return a baseline; raises `ValueError` if the file is none, or is about another subject."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Baseline)
    except OSError as error:
        raise ValueError(f"--baseline {file}: {error.strerror}; it is {WANTED}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"--baseline {file}: {error}; it is {WANTED}") from error
    if found.subject != subject:
        raise ValueError(f"--baseline {file}: it is about a {found.subject}, not a {subject}")
    return found


def known(results: Sequence[Result], baseline: Baseline) -> list[Result]:
    """Return results, with a mark at those that the baseline has found, too."""
    before = {each.id: each for each in baseline.results}
    return [
        msgspec.structs.replace(each, is_known=_is_known(each, before.get(each.id)))
        for each in results
    ]


def _is_known(result: Result, before: _Found | None) -> bool:
    if before is None or result.outcome not in _OPEN or result.outcome is not before.outcome:
        return False
    if result.outcome is Outcome.INCONCLUSIVE:
        return True
    failed = {each.title for each in before.cases if each.outcome is Outcome.FAILED}
    return {printable(each.title) for each in failures(result)} <= failed


def mended(results: Sequence[Result], baseline: Baseline) -> list[str]:
    """Return the ids that failed in the baseline, and hold now."""
    failed = {each.id for each in baseline.results if each.outcome is Outcome.FAILED}
    holds = (Outcome.PASSED, Outcome.OBSERVED)
    return [each.id for each in results if each.id in failed and each.outcome in holds]
