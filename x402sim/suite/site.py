"""Makes a static site of a file of verdicts: cases, versions, badges, vectors, and the drift.

The pages need no script and no server. A case has its sentences from this package; what failed, and
what a battery asked, comes from the file.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import msgspec

from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground, GroundType, Sentence
from x402sim.suite import texts
from x402sim.suite.case import ONLY, Case, by_ground, by_id, by_play, repeating
from x402sim.suite.published import SILENT, Battery, Failure, Record, Verdicts, unfolded
from x402sim.suite.report.causes import repairs
from x402sim.suite.report.conformance import HTML_MARKS, texts_of
from x402sim.suite.report.results import Outcome
from x402sim.suite.sdk import Recipe, recipes
from x402sim.suite.subject import Subject, subject as subject_of
from x402sim.suite.vectors.differing import counts, differences
from x402sim.suite.vectors.vector import OPERATIONS, files as vector_files
from x402sim.text.templates import render
from x402sim.text.words import counted
from x402sim.version import VERSION

SUBJECTS = {
    "facilitator": "The judge starts the facilitator beside a node of a simulated chain, sends "
    "payments to /verify and /settle, and reads the transfers off the chain.",
    "server": "The judge starts the server between a payer and a facilitator on a simulated chain; "
    "both, and the chain, act as the case says.",
    "payer": "The judge starts the payer with a task (goods for 0.01 tokens, 0.05 at most in all, "
    "the token, the network, the host to pay, a wallet on a simulated chain) at a shop that "
    "answers as the case says, and starts it again after a failure, three times at most.",
}
"""The subjects, and what is done with each."""
CALLS = (
    "The program makes one call of the client at each start, and the judge starts it again after a "
    "failure. No text demands of a client to know that two calls are for one purchase, or to keep "
    "a bound that its interface does not take. What was seen is told to its callers: it does not "
    "count."
)
"""What is said of bounds that a client cannot be told."""
Drift = dict[str, dict[Sentence, list[tuple[str, list["Column"]]]]]
"""By text: the sentences, each with the failed MUSTs and the failing versions."""
NEW = ""
"""The mark of an id that a version was not asked: the case is newer than the verdict."""
WITHDRAWN = "withdrawn"
"""The mark of a failure that is no longer maintained."""
_TEMPLATES = "x402sim.suite.report"
_CHAR_PX, _PAD_PX = 6.6, 12


def slug(text: str) -> str:
    """Return a text as the name of a file: "x402-fastapi-2.25.0", "at-x402-express-2.27.0"."""
    text = text.replace("@", " at ")  # x402-express is another package than @x402/express
    words = "".join(each if each.isalnum() or each == "." else " " for each in text).split()
    return "-".join(words).lower()


@dataclass(frozen=True, slots=True)
class Column:
    """A version: the record, and the outcome of each id, in its worst dialect."""

    record: Record
    battery: Battery
    failures: Mapping[str, list[Failure]]
    outcomes: Mapping[str, str]

    @property
    def is_judged(self) -> bool:
        """Whether the version's good payments hold; else most cases could not be judged."""
        counts = self.record.counts
        return counts.get(Outcome.INCONCLUSIVE, 0) * 2 < sum(counts.values())

    @property
    def fails_control(self) -> bool:
        """Whether a good payment failed, and the failure is maintained."""
        return any("/control/" in check_id for check_id in self.failures)

    @property
    def recipe(self) -> str:
        """The program that starts the version, from the root of a checkout, and its words; ""
        without a recipe.
        """
        return "".join(f"conformance/recipes/{each.program}" for each in self._recipes)

    @property
    def installed(self) -> str:
        """The packages that a recipe installs: "x402-fetch@1.2.0, viem@2"."""
        every = (it for each in self._recipes for it in each.install)
        return ", ".join(it.format(self.record.version) for it in every)

    @property
    def note(self) -> str:
        """What a maintainer should know of the program."""
        return "".join(each.note for each in self._recipes)

    @property
    def _recipes(self) -> list[Recipe]:
        name = self.record.implementation
        return [each for each in recipes(self.record.subject) if each.name == name]

    @property
    def page(self) -> str:
        """The name of the version's page, without its ending."""
        return slug(f"{self.record.subject} {self.record.name}")

    def seen(self, check_id: str) -> list[str]:
        """Return what was observed of an id of a public text, in each dialect."""
        return [its[check_id] for its in self.record.observed.values() if check_id in its]

    def failed(self, level: Level) -> int:
        """Return how many ids of a level failed."""
        return sum(each[0].level == level for each in self.failures.values())

    @property
    def causes(self) -> int:
        """How many probable causes the failed MUSTs have."""
        found = chain.from_iterable(self.failures.values())
        return len({each.cause for each in found if each.level == "MUST"})

    @property
    def musts(self) -> int:
        """How many MUSTs were judged."""
        return sum(
            each.startswith(f"{self.record.subject}/") and its in _JUDGED
            for each, its in self.outcomes.items()
        )


_JUDGED = (Outcome.PASSED, Outcome.FAILED)


def lowered(failed: Iterable[Failure], levels: Mapping[str, str]) -> tuple[Failure, ...]:
    """Return failures, those of today's SHOULDs as such: a verdict has the levels of its day."""
    return tuple(
        msgspec.structs.replace(each, level="SHOULD")
        if each.level == "MUST" and levels.get(each.id) == "SHOULD"
        else each
        for each in failed
    )


def _names_by_ids(ids_of: Mapping[str, list[str]]) -> dict[tuple[str, ...], list[str]]:
    """Return the versions by their ids: versions of a package mostly have the same."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, ids in ids_of.items():
        found.setdefault(tuple(sorted(ids)), []).append(name)
    return found


def column(record: Record, battery: Battery, withdrawn: Iterable[tuple[str, str]]) -> Column:
    """Return a version's column; withdrawn failures, (id, version), are marked."""
    failed = {check_id for check_id, _ in record.failures}
    gone = failed & {check_id for check_id, name in withdrawn if name == record.name}
    failures: dict[str, list[Failure]] = {}
    for each in record.failed:
        if each.id not in gone:
            failures.setdefault(each.id, []).append(each)
    seen = {check_id for its in record.observed.values() for check_id in its}
    left = {dialect: {*unfolded(ids)} for dialect, ids in record.not_judged.items()}
    outcomes: dict[str, str] = {}
    for dialects, ids in battery.cases.items():
        mine = [each for each in dialects.split() if each in record.dialects]
        for check_id in unfolded(ids) if mine else ():
            if check_id in failures:
                outcomes[check_id] = Outcome.FAILED
            elif check_id in gone:
                outcomes[check_id] = WITHDRAWN
            elif all(check_id in left.get(each, ()) for each in mine):
                outcomes[check_id] = Outcome.SKIPPED
            else:
                is_seen = check_id in seen or check_id.startswith(SILENT)
                outcomes[check_id] = Outcome.OBSERVED if is_seen else Outcome.PASSED
    return Column(record, battery, failures, outcomes)


@dataclass(slots=True)
class Site:
    """The pages of a file of verdicts, by path."""

    verdicts: Verdicts
    contact: str = ""
    """The address that takes objections."""
    pages: dict[str, str] = field(default_factory=dict)

    def made(self) -> dict[str, str]:
        """Return every page; raises `ValueError` for a withdrawn id of no case or version.

        A version may have been judged again since, and pass; the demand may be an observation now.
        """
        columns = {name: self._columns(name) for name in SUBJECTS}
        names = {each.name for each in self.verdicts.records}
        asked = [ids for each in self.verdicts.batteries.values() for ids in each.cases.values()]
        ids = {check_id.partition("/")[2] for each in asked for check_id in unfolded(each)}
        for gone in self.verdicts.withdrawn:
            if gone.id.partition("/")[2] not in ids or gone.name not in names:
                raise ValueError(f"withdrawn: {gone.id} of {gone.name} is no failure")
        http = (files("x402sim.http") / "page.css").read_text("utf-8")
        own = (files(_TEMPLATES) / "templates" / "site.css").read_text("utf-8")
        self.pages["style.css"] = http + own
        drift: Drift = {}
        for name, its in columns.items():
            subject = subject_of(name)
            cases = by_id(subject.cases())
            self._matrix(subject, cases, its)
            plays = _beside(subject.cases())
            for check_id, group in cases.items():
                self._case(subject, check_id, group, its, plays[check_id])
                _add_drift(drift, check_id, group, its)
            for each in its:
                self._version(subject, cases, each)
        self._page("index.html", "index", subjects=columns)
        self._page(
            "drift.html",
            "drift",
            drift=dict(sorted(drift.items())),
            summary=_summary,
            judged=len(self.verdicts.records),
        )
        by_why: dict[tuple[str, str], dict[str, list[str]]] = {}
        for it in self.verdicts.withdrawn:
            by_why.setdefault((it.day, it.why), {}).setdefault(it.name, []).append(it.id)
        withdrawn = {why: _names_by_ids(its) for why, its in by_why.items()}
        self._page("object.html", "object", withdrawn=withdrawn, contact=self.contact)
        self._vectors()
        return self.pages

    def _columns(self, subject: str) -> list[Column]:
        gone = [(each.id, each.name) for each in self.verdicts.withdrawn]
        levels = {name: its[0].level for name, its in by_id(subject_of(subject).cases()).items()}
        records = [
            msgspec.structs.replace(each, failed=lowered(each.failed, levels))
            for each in self.verdicts.of(subject)
        ]
        return [column(each, self.verdicts.batteries[each.battery], gone) for each in records]

    def _page(self, path: str, template: str, **values: Any) -> None:
        self.pages[path] = render(
            _TEMPLATES,
            f"site_{template}.html.j2",
            up="../" * path.count("/"),
            subjects_=SUBJECTS,
            kit=VERSION,
            slug=slug,
            repairs=repairs(),
            counted=counted,
            calls=CALLS,
            url_of=texts.url_of,
            marks={**HTML_MARKS, NEW: "", WITHDRAWN: "↩"},
            **values,
        )

    def _matrix(
        self, subject: Subject[Any], cases: Mapping[str, list[Case]], columns: list[Column]
    ) -> None:
        rows = [(check_id, its[0]) for check_id, its in cases.items()]
        sections = [
            (subject.sections[name], list(group))
            for name, group in groupby(rows, key=lambda row: row[1].section)
        ]
        self._page(
            f"{subject.name}.html",
            "matrix",
            subject=subject.name,
            sections=sections,
            columns=columns,
            implementations=[
                (name, list(its))
                for name, its in groupby(columns, lambda each: each.record.implementation)
            ],
            outcome=lambda each, check_id: each.outcomes.get(check_id, NEW),
        )

    def _case(
        self,
        subject: Subject[Any],
        check_id: str,
        cases: list[Case],
        columns: list[Column],
        beside: Mapping[str, str],
    ) -> None:
        by_outcome: dict[str, list[Column]] = {}
        for each in columns:
            by_outcome.setdefault(each.outcomes.get(check_id, NEW), []).append(each)
        inputs = dict.fromkeys(case.variant for case in cases if case.variant)
        self._page(
            f"case/{slug(check_id)}.html",
            "case",
            subject=subject.name,
            id=check_id,
            level=cases[0].level,
            does=SUBJECTS[subject.name],
            beside=beside,
            section=subject.sections[cases[0].section],
            titles=dict.fromkeys(case.title for case in cases),
            inputs=inputs,
            steps=_steps(cases),
            dialects=dict.fromkeys(str(case.dialect) for case in cases),
            grounds=list(_grounds(cases)),
            failing=by_outcome.get(Outcome.FAILED, []),
            seen=[each for each in by_outcome.get(Outcome.OBSERVED, []) if each.seen(check_id)],
            others={name: by_outcome.get(name, []) for name in _OTHERS},
            words=_OTHERS,
            repeat=lambda each: repeating(each.record.repeat, check_id),
        )

    def _version(
        self, subject: Subject[Any], cases: Mapping[str, list[Case]], each: Column
    ) -> None:
        groups: dict[tuple[str, str, str], list[Failure]] = {}
        for it in chain.from_iterable(each.failures.values()):
            groups.setdefault((it.level, it.cause, it.dialect), []).append(it)
        self._page(
            f"version/{each.page}.html",
            "version",
            subject=subject.name,
            column=each,
            record=each.record,
            groups=sorted(groups.values(), key=lambda its: its[0].level),
            cases=cases,
            repeat=lambda check_id: repeating(each.record.repeat, check_id),
            whole=each.record.repeat.replace(ONLY, ""),
            links=_links(),
            words={name: _OTHERS[name] for name in (Outcome.OBSERVED, Outcome.SKIPPED)},
        )
        self.pages[f"badge/{each.page}.svg"] = badge(each)

    def _vectors(self) -> None:
        files = vector_files()
        names = dict(pair for file in files for pair in file.implementations.items())
        families = [(file, counts(file.vectors)) for file in files]
        found = sorted(differences(files), key=lambda each: each.implementation)
        self._page(
            "vectors.html",
            "vectors",
            total=sum(len(file.vectors) for file in files),
            names=names,
            families=[
                (file, its, {name: its[name] for name in names if its[name]})
                for file, its in families
            ],
            operations=OPERATIONS,
            differing=[
                (who, list(rows)) for who, rows in groupby(found, lambda each: each.implementation)
            ],
        )


_OTHERS = {
    Outcome.PASSED: "Passed",
    Outcome.OBSERVED: "Observed: no text decides",
    WITHDRAWN: "Withdrawn: the failure is no longer maintained",
    Outcome.SKIPPED: "Not judged: a need is missing, or the play could not end",
    NEW: "Not asked: the case is newer than the verdict, or of another dialect",
}


def _grounds(cases: list[Case]) -> Iterator[tuple[str, GroundType, list[Sentence], str]]:
    """Yield the dialects of each ground, with its kind, its sentences, and the reason if new.

    No dialects stand with a ground of all.
    """
    before, grounds = set[str](), by_ground(cases)
    for ground, its in grounds:
        dialects = ", ".join(dict.fromkeys(str(each.dialect) for each in its if each.dialect))
        why = "" if ground.why in before else ground.why
        before.add(ground.why)
        yield dialects if len(grounds) > 1 else "", ground.kind, [*ground.sentences], why


def _steps(cases: Iterable[Case]) -> dict[str, None]:
    """Return what the plays say of themselves: the first paragraphs of their docstrings."""
    plays = (getattr(case, "play", None) for case in cases)
    texts_of_plays = (inspect.getdoc(play) if inspect.isfunction(play) else None for play in plays)
    return dict.fromkeys(" ".join(each.split("\n\n")[0].split()) for each in texts_of_plays if each)


def _beside(cases: Iterable[Case]) -> dict[str, dict[str, str]]:
    """Return for each id the other ids of the same plays, with the demands."""
    found: dict[str, dict[str, str]] = {}
    for play in by_play(cases):
        for case in play:
            others = {each.id: each.title for each in play if each.id != case.id}
            found.setdefault(case.id, {}).update(others)
    return found


def _text(sentence: Sentence) -> str:
    """Return the name of the text that a sentence is from: "RFC 9110"."""
    return "".join(texts_of([Ground(GroundType.EXPLICIT, (sentence,))]))


@cache
def _links() -> dict[str, str]:
    """Return the address of each text, by its name."""
    every = texts.SENTENCES.values()
    return {_text(each): texts.url_of(each).partition("#")[0] for each in every}


def _add_drift(drift: Drift, check_id: str, cases: list[Case], columns: list[Column]) -> None:
    """Add a failed MUST to the sentences that demand it in the dialects of its failures."""
    if cases[0].level != "MUST":
        return
    sentences: dict[Sentence, list[Column]] = {}
    for each in columns:
        spoken = {failure.dialect for failure in each.failures.get(check_id, ())}
        grounds = (case.ground.sentences for case in cases if str(case.dialect) in spoken)
        for sentence in dict.fromkeys(chain.from_iterable(grounds)):
            sentences.setdefault(sentence, []).append(each)
    for sentence, failing in sentences.items():
        its = drift.setdefault(_text(sentence), {})
        its.setdefault(sentence, []).append((check_id, failing))


def _summary(sentences: Mapping[Sentence, list[tuple[str, list[Column]]]]) -> tuple[int, int]:
    """Return the number of failed ids of a text, and the number of versions that fail one."""
    found = [pair for its in sentences.values() for pair in its]
    versions = {(each.record.subject, each.record.name) for _, its in found for each in its}
    return len({check_id for check_id, _ in found}), len(versions)


def badge(each: Column) -> str:
    """Return a badge as SVG: how many judged MUSTs the version fails."""
    failed, left = each.failed("MUST"), f"x402 {each.record.subject}"
    causes = f"{each.causes} cause{'s' * (each.causes > 1)}"
    right = f"{each.record.version}: {failed} of {each.musts} MUST fail, {causes}"
    if not each.is_judged:
        why = ", its control fails" if each.fails_control else ""
        right = f"{each.record.version}: not judged{why}"
    elif not failed:
        right = f"{each.record.version}: all {each.musts} MUST hold"
    first, second = (len(text) * _CHAR_PX + _PAD_PX for text in (left, right))
    color = "#b3300a" if failed else "#00734f"
    title = escape(f"{each.record.name} as a {each.record.subject}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second:.0f}" height="20" '
        f'role="img" aria-label="{title}"><title>{title}</title>'
        f'<rect width="{first:.0f}" height="20" fill="#3b434d"/>'
        f'<rect x="{first:.0f}" width="{second:.0f}" height="20" fill="{color}"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="6" y="14">{escape(left)}</text>'
        f'<text x="{first + 6:.0f}" y="14">{escape(right)}</text></g></svg>\n'
    )


def write(verdicts: Verdicts, out: Path, contact: str = "") -> int:
    """Write the site into a folder, or into an archive, `out` being a .zip; return the number of
    its files. The same verdicts give the same bytes. Raises `OSError`.
    """
    pages = Site(verdicts, contact).made()
    if out.suffix == ".zip":
        with ZipFile(out, "w", ZIP_DEFLATED) as archive:
            for path, text in pages.items():
                archive.writestr(ZipInfo(f"{out.stem}/{path}"), text, ZIP_DEFLATED)
        return len(pages)
    for path, text in pages.items():
        file = out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return len(pages)
