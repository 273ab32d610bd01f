"""Verdicts on published software: the records of `conformance/verdicts.json`.

A record is the verdict on one version, by one battery of demands. A shop behind a published
middleware fails as the middleware does: a report names failures known of a version, and `--baseline
known` accepts them. `conformance site` makes pages of the file.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from x402sim.spec.clauses import Level
from x402sim.spec.ground import folder
from x402sim.suite.case import HOLDS, Case
from x402sim.suite.report.causes import cause
from x402sim.suite.report.conformance import About, texts_of, total_loss
from x402sim.suite.report.results import NOT_JUDGED, Outcome, Result, Results, by_dialect
from x402sim.text.words import counted, printable
from x402sim.version import VERSION

FILE, OWN, SILENT = "verdicts.json", "x402sim", "silent/"
SHOWN = 240
"""The most characters kept of what a subject did."""
LONG = 100
"""A longer line of an exchange is shown once."""
MOST_SHOWN = 900
"""The most characters of a line of an exchange."""
_PORT = (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT")
_OF_A_RUN = ((r"0x[0-9a-fA-F]{24,}", "0x…"), _PORT)
"""Texts that differ in each run, and the text that stands for each."""
_SHORTER = ((r"(0x[0-9a-fA-F]{8})[0-9a-fA-F]{16,}", r"\1…"), _PORT)
"""Addresses and hashes of an exchange, which stay apart by their beginning."""
_OF_LOG = ("its last line: ", "it logged no line")
"""What an exchange says of a subject's log, which other plays write to, too."""
Folded = dict[str, str]
"""Ids by their beginning: {"server/order": "refused settled-lost"}."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failed id in one dialect.

    `actual` is the behaviour seen, `expected` the behaviour demanded, `shown` the lines of
    requests, answers and transfers, with an empty line between two exchanges.
    """

    level: Level
    cause: str
    dialect: str
    id: str
    actual: str = ""
    expected: str = ""
    lost: str = ""
    shown: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict on one version of an implementation, as one kind of subject.

    `repeat` is the command that judges it again, with the place of --only; `counts` are ids by
    outcome, in each dialect; `lost` is the money counted on the ledger, by token. `observed` has
    the behaviour seen, by dialect and id, where a demand of a text does not reach the subject.
    `installed` is what the verdict may depend on, with its versions.
    """

    subject: str
    implementation: str
    version: str
    day: str
    battery: str
    repeat: str
    counts: dict[Outcome, int]
    failed: tuple[Failure, ...]
    dialects: tuple[str, ...] = ()
    not_judged: dict[str, Folded] = {}
    lost: tuple[str, ...] = ()
    observed: dict[str, dict[str, str]] = {}
    installed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The implementation and the version: "x402[fastapi] 2.25.0"."""
        return f"{self.implementation} {self.version}"

    @property
    def failures(self) -> dict[tuple[str, str], Failure]:
        """The failures by id and dialect."""
        return {(each.id, each.dialect): each for each in self.failed}


class Battery(msgspec.Struct, frozen=True):
    """What a subject was judged by: the kit's version, the texts, and the ids in each dialect."""

    kit: str
    texts: tuple[str, ...]
    cases: dict[str, Folded]


class Withdrawn(msgspec.Struct, frozen=True):
    """A failure that was published, and is no longer maintained; `why` says what was wrong."""

    id: str
    name: str
    day: str
    why: str


class Verdicts(msgspec.Struct, frozen=True):
    """The file of verdicts."""

    batteries: dict[str, Battery] = {}
    records: tuple[Record, ...] = ()
    withdrawn: tuple[Withdrawn, ...] = ()

    def of(self, subject: str) -> list[Record]:
        """Return the records of a subject, the newest version of each implementation first."""
        return [each for each in self.records if each.subject == subject]


# --- the file --------------------------------------------------------------------------------


class _File(Verdicts, frozen=True):
    """The file: `lines` has each long line of `Failure.shown` once, by a name that stands there."""

    lines: dict[str, str] = {}


def shipped() -> Path:
    """Return the file of verdicts that comes with this package."""
    return folder(FILE)


def read(file: Path) -> Verdicts:
    """Return the verdicts of a file; none if there is no file. Raises `ValueError`."""
    if not file.exists():
        return Verdicts()
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_File)
    except msgspec.MsgspecError as wrong:
        raise ValueError(
            f"{file}: {wrong}; it is no file of verdicts, as --keep makes it"
        ) from wrong

    def whole(failure: Failure) -> Failure:
        shown = tuple(found.lines.get(line, line) for line in failure.shown)
        return msgspec.structs.replace(failure, shown=shown)

    records = tuple(
        msgspec.structs.replace(each, failed=tuple(map(whole, each.failed)))
        for each in found.records
    )
    return Verdicts(found.batteries, records, found.withdrawn)


def keep(file: Path, record: Record, cases: Sequence[Case]) -> None:
    """Put a record by all these cases into a file, in the place of an older one of the version."""
    before = read(file)
    key = (record.subject, record.implementation, record.version)
    others = (
        each for each in before.records if (each.subject, each.implementation, each.version) != key
    )
    records = sorted((record, *others), key=lambda each: _newest_first(each.version))
    records.sort(key=lambda each: (each.subject, each.implementation))
    used = {each.battery for each in records}
    batteries = {**before.batteries, record.battery: battery_of(cases)[1]}
    kept = {name: batteries[name] for name in sorted(batteries) if name in used}
    file.write_text(_written(Verdicts(kept, tuple(records), before.withdrawn)), encoding="utf-8")


def _newest_first(version: str) -> list[int]:
    return [-int(number) for number in re.findall(r"\d+", version)]


def _written(verdicts: Verdicts) -> str:
    """Return the file as text: a line for each battery, record, failure, and shared line."""
    plain = msgspec.to_builtins(verdicts)
    lines: dict[str, str] = {}

    def named(line: str) -> str:
        if len(line) < LONG // 2:
            return line
        name = f"#{sha256(line.encode()).hexdigest()[:8]}"
        return name if lines.setdefault(name, line) == line else line

    for each in plain["records"]:
        each["failed"] = each.pop("failed")  # last, in lines of its own
        for failure in each["failed"]:
            failure["shown"] = [named(line) for line in failure.get("shown", ())]
    plain["lines"] = dict(sorted(lines.items()))
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    begins = r'(\{"(?:subject|level|kit|id)"|"records"|\],"withdrawn"|"#[0-9a-f]{8}":)'
    return re.sub(begins, r"\n\1", text) + "\n"


def folded(ids: Iterable[str]) -> Folded:
    """Return ids by their beginning."""
    found: dict[str, list[str]] = {}
    for each in ids:
        begin, _, end = each.rpartition("/")
        found.setdefault(begin, []).append(end)
    return {begin: " ".join(ends) for begin, ends in found.items()}


def unfolded(ids: Folded) -> Iterator[str]:
    """Yield ids that stand by their beginning."""
    yield from (f"{begin}/{end}" for begin, ends in ids.items() for end in ends.split())


# --- a record of a judgement -----------------------------------------------------------------


def battery_of(cases: Sequence[Case]) -> tuple[str, Battery]:
    """Return the battery that all cases of a subject make, and its id: a digest of the demands."""
    demands = sorted(
        (case.name, case.level, case.title, *map(str, case.ground.lines)) for case in cases
    )
    dialects: dict[str, list[str]] = {}
    for case in cases:
        dialects.setdefault(case.id, []).append(case.dialect)
    by_dialects: dict[str, list[str]] = {}
    for check_id, its in dialects.items():
        by_dialects.setdefault(" ".join(dict.fromkeys(its)), []).append(check_id)
    found = {name: folded(ids) for name, ids in by_dialects.items()}
    digest = sha256(json.dumps(demands).encode()).hexdigest()[:12]
    return digest, Battery(VERSION, texts_of(case.ground for case in cases), found)


def record_of(
    about: About,
    results: Results,
    cases: Sequence[Case],
    implementation: str,
    version: str,
    repeat: str,
    installed: tuple[str, ...] = (),
) -> Record:
    """Return the record of a judgement by all cases of a subject."""
    every = [(name, its) for each in results for name, its in by_dialect(each).items()]
    judged = {(its.id, dialect) for dialect, its in every if its.outcome not in NOT_JUDGED}
    dialects = tuple(dict.fromkeys(dialect for dialect, _ in every))
    left: dict[str, dict[str, None]] = {}
    for case in cases:
        if case.dialect in dialects and (case.id, case.dialect) not in judged:
            left.setdefault(str(case.dialect), {})[case.id] = None
    observed: dict[str, dict[str, str]] = {}
    for dialect, its in every:
        if its.outcome is Outcome.OBSERVED and not its.id.startswith(SILENT):
            seen = _cut(its.actual or "", _OF_A_RUN, SHOWN)
            observed.setdefault(dialect, {})[its.id] = seen
    return Record(
        subject=about.subject,
        implementation=implementation,
        version=version,
        day=about.started[:10],
        battery=battery_of(cases)[0],
        repeat=repeat,
        counts=dict(Counter(its.outcome for _, its in every)),
        failed=tuple(
            Failure(
                level=its.level,
                cause=cause(its),
                dialect=dialect,
                id=its.id,
                lost=str(msgspec.structs.replace(its.loss, why="")) if its.loss else "",
                **evidence(its),
            )
            for dialect, its in every
            if its.outcome is Outcome.FAILED
        ),
        dialects=dialects,
        not_judged={dialect: folded(ids) for dialect, ids in left.items()},
        lost=tuple(total_loss(results)),
        observed=observed,
        installed=installed,
    )


def evidence(result: Result) -> dict[str, Any]:
    """Return the behaviour seen and demanded, and the exchanges: fields of `Failure`."""
    shown = list[str]()
    for exchange in (it for it in result.exchanges if not it.about.startswith(_OF_LOG)):
        shown += [""] if shown else []
        for line in exchange.whole:
            text = _cut(line, _SHORTER, MOST_SHOWN)
            known = len(text) > LONG and text in shown
            name = "  the body" if text.startswith(" ") else text.partition(": ")[0]
            shown.append(f"{name}: as before" if known else text)
    return {
        "actual": _cut(result.actual or "", _OF_A_RUN, SHOWN),
        "expected": _cut(result.expected or "", _OF_A_RUN, SHOWN),
        "shown": tuple(shown),
    }


def _cut(text: str, shorter: Iterable[tuple[str, str]], most: int) -> str:
    """Return a text in a line, without what differs in each run, and cut."""
    begin = text[: len(text) - len(text.lstrip())]
    text = begin + printable(" ".join(text.split()))
    for pattern, word in shorter:
        text = re.sub(pattern, word, text)
    return text if len(text) <= most else f"{text[:most]}…"


# --- known failures of published versions -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Version:
    """A published version, such as "x402[fastapi] 2.25.0", and its failed (id, dialect).

    `command` judges it again.
    """

    name: str
    failed: frozenset[tuple[str, str]]
    command: str = ""

    @property
    def implementation(self) -> str:
        """The name without the version."""
        return self.name.rpartition(" ")[0]


@cache
def versions(subject: str) -> tuple[Version, ...]:
    """Return the versions judged before; empty for a subject without published programs."""
    return tuple(
        Version(each.name, frozenset(each.failures), each.repeat)
        for each in read(shipped()).of(subject)
        if not each.implementation.startswith(OWN)
    )


def closest(results: Results, subject: str, own: str = "") -> Version | None:
    """Return the version with most of these failures, and fewest others; None below a half.

    Of several alike, the newest of the implementation `own`, else the first, named with the others'
    number.
    """
    failed = {*_with(results, Outcome.FAILED)}
    judged = failed.union(_with(results, *HOLDS))

    def likeness(version: Version) -> tuple[int, int]:
        return len(version.failed & failed), -len(version.failed & judged - failed)

    best = max(map(likeness, versions(subject)), default=(0, 0))
    if not 0 < len(failed) <= 2 * best[0]:
        return None
    alike = [each for each in versions(subject) if likeness(each) == best]
    mine = [each for each in alike if each.implementation == own]
    first = next(iter(mine or alike))
    others = sum(each.failed & judged == first.failed & judged for each in alike) - 1
    if mine or not others:
        return first
    return replace(first, name=f"{first.name} and {counted(others, 'other version')}")


def marked(results: Results, version: Version) -> list[Result]:
    """Return results; the failures that the version has in the same dialects name the version."""
    return [
        msgspec.structs.replace(each, known_of=version.name)
        if each.outcome is Outcome.FAILED
        and version.failed.issuperset(_with([each], Outcome.FAILED))
        else each
        for each in results
    ]


def mended(results: Results, version: Version) -> list[str]:
    """Return the ids that the version fails, and that hold here."""
    held = (pair for pair in _with(results, *HOLDS) if pair in version.failed)
    return list(dict.fromkeys(check_id for check_id, _ in held))


def _with(results: Results, *outcomes: Outcome) -> Iterator[tuple[str, str]]:
    """Yield the ids with one of the outcomes, with each dialect of it."""
    for result in results:
        for dialect, each in by_dialect(result).items():
            if each.outcome in outcomes:
                yield result.id, dialect
