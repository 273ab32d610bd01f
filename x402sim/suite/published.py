"""Known failures of published versions: the verdicts in the `published.json` of each subject.

A shop behind a published middleware fails as the middleware does: a report says which failures are
known of the package, and `--baseline known` accepts them.
"""

import json
from dataclasses import dataclass
from functools import cache

import msgspec

from x402sim.report.results import NOT_JUDGED, Outcome, Result, Results, by_dialect
from x402sim.spec.ground import folder

FILE, OWN = "published.json", "x402sim"


@dataclass(frozen=True, slots=True)
class Version:
    """A published version, such as "x402 2.25.0 (FastAPI)", and its failed (id, dialect)."""

    name: str
    failed: frozenset[tuple[str, str]]


@cache
def versions(subject: str) -> tuple[Version, ...]:
    """Return the versions judged before; empty for a subject without published programs."""
    file = folder(subject) / FILE
    if not file.is_file():
        return ()
    found = []
    for program, verdict in json.loads(file.read_text(encoding="utf-8")).items():
        package = " ".join(filter(None, (verdict.get("package"), verdict["version"])))
        if not package.startswith(OWN):
            failed = frozenset((each["id"], each["dialect"]) for each in verdict["failed"])
            found.append(Version(f"{package} ({program})", failed))
    return tuple(found)


def closest(results: Results, subject: str) -> Version | None:
    """Return the version with most of these failures, and fewest others; None below a half."""
    every = [(each, name) for each in results for name in by_dialect(each).items()]
    failed = {(it.id, name) for it, (name, each) in every if each.outcome is Outcome.FAILED}
    judged = {(it.id, name) for it, (name, each) in every if each.outcome not in NOT_JUDGED}

    def likeness(version: Version) -> tuple[int, int]:
        return len(version.failed & failed), -len(version.failed & judged - failed)

    best = max(versions(subject), key=likeness, default=None)
    return best if best and 0 < len(failed) <= 2 * likeness(best)[0] else None


def marked(results: Results, version: Version) -> list[Result]:
    """Return results; the failures that the version has in the same dialects name the version."""
    return [
        msgspec.structs.replace(each, known_of=version.name)
        if each.outcome is Outcome.FAILED and _dialects(each) <= version.failed
        else each
        for each in results
    ]


def _dialects(result: Result) -> set[tuple[str, str]]:
    found = by_dialect(result).items()
    return {(result.id, name) for name, each in found if each.outcome is Outcome.FAILED}


def mended(results: Results, version: Version) -> list[str]:
    """Return the ids that the version fails, and that hold here."""
    holds = (Outcome.PASSED, Outcome.OBSERVED)
    every = [(each.id, name, it) for each in results for name, it in by_dialect(each).items()]
    return list(
        dict.fromkeys(
            id_ for id_, name, it in every if it.outcome in holds and (id_, name) in version.failed
        )
    )
