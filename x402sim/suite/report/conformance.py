"""The reports of a judgement: JSON, JUnit XML, SARIF, annotations, Markdown and HTML.

`conformance.schema.json` is the schema of the JSON report; the markup of the HTML page is in
`templates/conformance.html.j2`. A subject's answers are text of other parties, so every report
escapes them (`printable_lines`). Annotations are workflow commands of GitHub Actions: their text is
escaped a second time, as the runner unescapes it, so that it begins no command. In Markdown,
answers stand in code, without markup and mentions.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import msgspec

from x402sim.protocol.money import to_decimal
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.ground import Ground, GroundType
from x402sim.suite.report import exchange
from x402sim.suite.report.causes import LOSSES, by_cause, cause, causes, loss, repair
from x402sim.suite.report.results import (
    INTERRUPTED,
    NOT_JUDGED,
    OF_CASES,
    RARE,
    CaseResult,
    Outcome,
    Result,
    Results,
    by_dialect,
    failures,
)
from x402sim.text.templates import render
from x402sim.text.words import counted, printable, printable_lines, unknown
from x402sim.version import VERSION

SERVICE = "service"
"""The subject of a report without a subject's name."""
AnyResult = TypeVar("AnyResult", Result, CaseResult)


@dataclass(frozen=True, slots=True)
class About:
    """The subject of a report: its kind, the target's name, and the begin of the run."""

    subject: str
    target: str
    started: str
    sections: Mapping[str, str]
    """The title of each section."""
    unspoken: Mapping[str, str] = field(default_factory=dict)
    """The dialects that the target does not speak, with the reasons."""
    battery: str = ""
    """The id of all demands on this kind of subject, of which `--only` may choose some."""


def summary(results: Results) -> dict[Outcome, int]:
    """Return how many results have each outcome."""
    counts = Counter(result.outcome for result in results)
    return {outcome: counts[outcome] for outcome in Outcome}


def tally(results: Results, strict: bool = False) -> list[tuple[Outcome, str]]:
    """Return the number of ids with each outcome in words: "39 failed (12 count for the verdict)".

    Those that count make the verdict, and are the failures and errors of JUnit.
    """
    every = summary(results)
    counting = summary([each for each in results if counts_for_exit(each, strict)])
    return [
        (each, f"{every[each]} {each}{_of(counting[each], every[each], each)}")
        for each in Outcome
        if every[each]
    ]


def _of(counting: int, every: int, outcome: Outcome) -> str:
    is_bad = outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)
    return f" ({counting} count for the verdict)" if is_bad and counting < every else ""


def readable(results: Results) -> list[Result]:
    """Return the results as reports show them: every text escaped (a body keeps its newlines),
    and `like` set to the id of the probable cause."""
    escaped = [
        msgspec.structs.replace(_escaped(result), cases=tuple(map(_escaped, result.cases)))
        for result in results
    ]
    first = {each: cause.id for cause in causes(escaped) for each in cause.follows}
    return [msgspec.structs.replace(each, like=first.get(each.id, "")) for each in escaped]


def _escaped(result: AnyResult) -> AnyResult:
    fields = msgspec.structs.asdict(result).items()
    texts = {name: printable(value) for name, value in fields if type(value) is str}
    exchanges = tuple(each.changed(printable, printable_lines) for each in result.exchanges)
    return msgspec.structs.replace(result, **texts, exchanges=exchanges)


def counts_for_exit(result: Result, strict: bool) -> bool:
    """Tell whether an id counts for the exit code: a MUST, or a SHOULD if `strict`.

    An id in the baseline report does not count.
    """
    return not result.is_known and (result.level == "MUST" or (strict and result.level == "SHOULD"))


def why_uncounted(result: Result) -> str:
    """Return why a result does not count for the exit code."""
    if result.is_known and (why := result.known_because or result.known_of):
        return f"known: {why}" if result.known_because else f"known of {why}"
    return "in the baseline report, too" if result.is_known else "does not count without --strict"


def verdict(results: Results, strict: bool = False) -> tuple[Outcome, str]:
    """Return the verdict (passed, failed or inconclusive), and a sentence with the reason.

    Only MUST counts, and SHOULD if `strict`. Without any judged id, the verdict is inconclusive.
    """
    what = "MUST and SHOULD" if strict else "MUST"
    counting = [each for each in results if counts_for_exit(each, strict)]
    of, every = summary(counting), summary(results)
    known = sum(each.is_known for each in results)
    known_note = f" Known from the baseline: {known}." if known else ""
    levels = ("MUST", "SHOULD") if strict else ("MUST",)
    failures_of = [e for e in results if e.outcome is Outcome.FAILED and e.level in levels]
    for version, count in Counter(e.known_of for e in failures_of if e.known_of).items():
        known_note += f" Known of {version}: {count} of {len(failures_of)}."
    if left := sum(each.reason == INTERRUPTED for each in results):
        known_note += f" Interrupted before {left} of {len(results)} ids were certain."
    if failed := of[Outcome.FAILED]:
        new = "New failed" if known else "Failed"
        return Outcome.FAILED, f"{new} {what} demands: {failed}.{known_note}"
    if unclear := of[Outcome.INCONCLUSIVE]:
        checks = "" if left else f" Inconclusive {what} checks: {unclear}."
        return Outcome.INCONCLUSIVE, f"No verdict.{checks}{known_note}"
    asked = of if counting else every
    rest = ", ".join(f"{count} {outcome}" for outcome, count in asked.items() if count)
    if all(each.outcome in NOT_JUDGED and not each.in_part for each in counting or results):
        return Outcome.INCONCLUSIVE, f"No verdict: nothing could be checked ({rest})."
    if not any(each.level in levels for each in results):
        return Outcome.PASSED, f"No {what} demand was asked for ({rest}).{known_note}"
    seen = f", {of[Outcome.OBSERVED]} observed" if of[Outcome.OBSERVED] else ""
    part = sum(each.outcome is Outcome.SKIPPED and bool(each.in_part) for each in counting)
    in_part = f" ({part} judged in part)" if part else ""
    held = f"{of[Outcome.PASSED]} held{seen}, {of[Outcome.SKIPPED]} skipped{in_part}"
    new = "new " if known else ""
    return Outcome.PASSED, f"No {new}{what} demand failed: {held}.{known_note}{_untold(counting)}"


NAMED = 4
"""The most untold ids that a verdict names."""


def _untold(counting: Results) -> str:
    """Return a line on played ids without an answer, with reasons; empty without such ids."""
    reasons: dict[str, list[str]] = {}
    for each in counting:
        if each.outcome is Outcome.SKIPPED and any(case.is_untold for case in each.cases):
            reasons.setdefault(each.reason, []).append(each.id)
    lines = [
        f" Could not be judged: {', '.join(ids[:NAMED])}"
        f"{f' and {len(ids) - NAMED} more' if len(ids) > NAMED else ''}, since {reason}."
        for reason, ids in reasons.items()
    ]
    return "".join(lines)


def headline(result: Result) -> str:
    """Return the outcome of an id, its dialects, and the number of cases with the outcome.

    "failed (2 of 7 cases, 1 not judged)", "passed (6 of 7 cases, 1 not judged)"; or, if a decisive
    case was not judged, "inconclusive (3 of 7 cases passed)". With dialects: "failed in v1, v2".
    """
    outcome, cases = str(result.outcome), result.cases
    dialects = [case.dialect for case in cases if case.outcome is result.outcome]
    if any(dialects) and result.outcome is not Outcome.PASSED:
        return f"{outcome} in {', '.join(dict.fromkeys(dialects))}"
    if result.outcome in NOT_JUDGED and result.in_part:
        passed = sum(case.outcome not in NOT_JUDGED for case in cases)
        return f"{outcome} ({passed} of {len(cases)} cases passed)"
    alike = sum(case.outcome is result.outcome for case in cases)
    left = len(not_judged(result))
    if len(cases) < 2 or alike in (0, len(cases)):
        return outcome
    return f"{outcome} ({alike} of {len(cases)} cases{f', {left} not judged' if left else ''})"


def not_judged(result: Result) -> list[CaseResult]:
    """Return the cases of a judged id that were skipped or inconclusive."""
    if result.outcome in NOT_JUDGED and not result.in_part:
        return []
    return [case for case in result.cases if case.outcome in NOT_JUDGED]


def ground_lines(case: CaseResult | Result, before: Iterable[Ground | None] = ()) -> list[str]:
    """Return the ground of a case in lines: its sentences in quotation marks, then the reason.

    Lines in the grounds `before` are left out.
    """
    ground = case.ground
    if ground is None:
        return []
    known = [each for other in before if other for each in (*other.sentences, other.why)]
    said = [each for each in (*ground.sentences, ground.why) if each and each not in known]
    of_us = ", as no text demands it" if ground.kind is GroundType.OURS else ""
    return [f"{ground.kind}{of_us}:", *map(str, said)] if said else []


def shown(result: Result) -> list[tuple[CaseResult | Result, list[str]]]:
    """Return the failed cases of an id, each with the lines of its ground that are new.

    If a demand fails in several dialects, only the first has its exchange.
    """
    cases = failures(result)
    found = list[tuple[CaseResult | Result, list[str]]]()
    for place, case in enumerate(cases):
        before = cases[:place]
        lines = ground_lines(case, (each.ground for each in before))
        if any((each.title, each.expected) == (case.title, case.expected) for each in before):
            case = msgspec.structs.replace(case, exchanges=())
        found.append((case, lines))
    return found


def named(case: CaseResult | Result) -> str:
    """Return the title of a case, and its dialect: "HEAD without payment is no success [v2]"."""
    dialect = case.dialect if isinstance(case, CaseResult) else ""
    return f"{case.title} [{dialect}]" if dialect else case.title


def grounds(result: Result) -> list[str]:
    """Return the grounds of all cases of an id in lines, each once."""
    every = [ground_lines(case) for case in result.cases] or [ground_lines(result)]
    return list(dict.fromkeys("\n".join(lines) for lines in every if lines))


def texts_of(grounds: Iterable[Ground | None]) -> tuple[str, ...]:
    """Return the public texts in grounds, with revisions: "EIP-3009 (draft of 2020-09-28)"."""
    sources = (str(each.section) for ground in grounds if ground for each in ground.sentences)
    found = (re.match(r"(?P<name>[^,]+),.*?(?P<revision> \([^()]+\))?$", each) for each in sources)
    return tuple(sorted({f"{each['name']}{each['revision'] or ''}" for each in found if each}))


def _texts(results: Results) -> tuple[str, ...]:
    own = (each.ground for each in results)
    return texts_of([*own, *(case.ground for each in results for case in each.cases)])


def total_loss(results: Results) -> list[str]:
    """Return the losses of the failed ids, by token; empty if no money was counted.

    A failure in two dialects loses twice: "0.02 USDC in 2 dialects".
    """
    sums: Counter[tuple[str, int]] = Counter()
    dialects = defaultdict[tuple[str, int], set[str]](set)
    for dialect, each in (its for whole in results for its in by_dialect(whole).items()):
        if each.loss is not None:
            token = each.loss.symbol, each.loss.decimals
            sums[token] += each.loss.base
            dialects[token].add(dialect)
    return [
        f"{to_decimal(base, token[1])} {token[0]}"
        + (f" in {its} dialects" if (its := len(dialects[token])) > 1 else "")
        for token, base in sums.items()
    ]


def as_json(about: About, results: Results) -> dict[str, Any]:
    """Return the report as one JSON object: target, started (ISO 8601), summary, results.

    A subject other than a service is named first.
    """
    results = readable(results)
    plain = msgspec.to_builtins(results)
    for result in plain:
        for each in (result, *result["cases"]):
            for name in RARE:
                if not each.get(name):
                    each.pop(name, None)
            del each["evidence"]
        for case in result["cases"]:
            for name in OF_CASES:
                del case[name]
    return {
        **({} if about.subject == SERVICE else {"subject": about.subject}),
        "target": about.target,
        "started": about.started,
        **({"unspoken": dict(about.unspoken)} if about.unspoken else {}),
        **({"battery": about.battery} if about.battery else {}),
        "texts": _texts(results),
        "summary": summary(results),
        "causes": msgspec.to_builtins(causes(results)),
        "results": plain,
    }


def as_junit(about: About, results: Results, *, strict: bool = False) -> bytes:
    """Return the report as JUnit XML: a suite for each section, a case for each id.

    A failed id becomes a failure, an inconclusive id an error; skipped and observed ids become
    skipped. Ids without weight for the exit code become skipped, too, with details in system-out:
    a CI that reads the report fails when the command does.
    """
    results = readable(results)
    root = ET.Element("testsuites", {"name": "x402sim conformance", **_numbers(results, strict)})
    for section in sorted({result.section for result in results}):
        mine = [result for result in results if result.section == section]
        fields = {
            "name": f"section {section}",
            "hostname": printable(about.target),
            "timestamp": about.started[:19],
            "skipped": str(sum(_junit_kind(r, strict) == "skipped" for r in mine)),
        }
        suite = ET.SubElement(root, "testsuite", {**fields, **_numbers(mine, strict)})
        for result in mine:
            _case(suite, result, strict)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _numbers(results: Results, strict: bool) -> dict[str, str]:
    kinds = Counter(_junit_kind(result, strict) for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _junit_kind(result: Result, strict: bool) -> str:
    """Return the JUnit element of an id; empty for a passed id."""
    if result.outcome is Outcome.PASSED:
        return ""
    if not counts_for_exit(result, strict):
        return "skipped"
    kinds = {Outcome.FAILED: "failure", Outcome.INCONCLUSIVE: "error"}
    return kinds.get(result.outcome, "skipped")


def _case(suite: ET.Element, result: Result, strict: bool) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        name=result.id,
        classname=f"conformance.section_{result.section.replace('.', '_')}",
        time=f"{result.seconds:.3f}",
    )
    detail = f"expected {result.expected}, got {result.actual}"
    detail = f"like {result.like}: {detail}" if result.like else detail
    uncounted = f"{result.outcome} {result.level} ({why_uncounted(result)}): "
    match result.outcome, _junit_kind(result, strict):
        case Outcome.FAILED, "failure":
            failure = ET.SubElement(case, "failure", message=detail, type=result.level)
            failure.text = explained(result)
        case Outcome.FAILED, _:
            ET.SubElement(case, "skipped", message=uncounted + detail)
            ET.SubElement(case, "system-out").text = explained(result)
        case Outcome.INCONCLUSIVE, "error":
            ET.SubElement(case, "error", message=result.reason, type="inconclusive")
        case Outcome.INCONCLUSIVE, _:
            ET.SubElement(case, "skipped", message=uncounted + result.reason)
        case Outcome.SKIPPED, _:
            ET.SubElement(case, "skipped", message=result.reason)
        case Outcome.OBSERVED, _:
            ET.SubElement(case, "skipped", message=f"observed: {result.actual}")
        case Outcome.PASSED, _:
            if left := left_out(not_judged(result)):
                ET.SubElement(case, "system-out").text = "\n".join([headline(result), *left])


def left_out(cases: list[CaseResult]) -> list[str]:
    """Return a line for each case that was not judged, with its reason."""
    return [f"not judged: {named(case).rstrip('.')}: {case.reason}" for case in cases]


def explained(result: Result, *, is_short: bool = False) -> str:
    """Return a whole failure as text: its cases, their exchanges, the command to repeat them."""
    parts = [f"{result.id} ({result.level}): {headline(result)}", f"cause: {cause(result)}"]
    parts += [f"to repair: {repair(result)}"] if repair(result) else []
    parts += [f"known of: {result.known_of}"] if result.known_of else []
    for case, ground in shown(result):
        parts += ["", named(case), *ground]
        parts += [f"expected: {case.expected}", f"actual:   {case.actual}"]
        parts += [f"loss:     {case.loss}"] if case.loss else []
        if case.exchanges:
            parts += ["", *exchange.written(case.exchanges, is_short=is_short)]
    if left := not_judged(result):
        parts += ["", *left_out(left)]
    return "\n".join([*parts, "", f"run it again: {result.rerun}"])


PAGE = "x402sim/guide/conformance.md"
"""The place of SARIF results, in a checkout of this package: GitHub shows no result without one."""
_SARIF_LEVELS = {"MUST": "error", "SHOULD": "warning", "MAY": "note"}


def as_sarif(about: About, results: Results) -> dict[str, Any]:
    """Return the report as SARIF 2.1.0: failures as results, every id as a rule."""
    results = readable(results)
    found = [
        _sarif_result(number, about, result)
        for number, result in enumerate(results)
        if result.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)
    ]
    driver = {
        "name": "x402sim conformance",
        "version": VERSION,
        "rules": [_sarif_rule(result) for result in results],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": found}],
    }


def _sarif_rule(result: Result) -> dict[str, Any]:
    kind = str(result.ground.kind) if result.ground else "unknown"
    return {
        "id": result.id,
        "name": result.id,
        "shortDescription": {"text": result.title},
        "help": {"text": "\n\n".join(grounds(result)) or result.title},
        "defaultConfiguration": {"level": _SARIF_LEVELS[result.level]},
        "properties": {
            "section": result.section,
            "level": result.level,
            "ground": kind,
            "tags": [result.level, kind],
        },
    }


def _sarif_result(number: int, about: About, result: Result) -> dict[str, Any]:
    failed = result.outcome is Outcome.FAILED
    return {
        "ruleId": result.id,
        "ruleIndex": number,
        "kind": "fail" if failed else "open",
        "level": _SARIF_LEVELS[result.level] if failed else "none",
        "message": {"text": explained(result) if failed else f"inconclusive: {result.reason}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": PAGE},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"fullyQualifiedName": about.target, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"check/v1": result.id},
    }


# --- as texts ------------------------------------------------------------------------------


SUFFIXES = (".html", ".json", ".md", ".sarif", ".txt", ".xml")
"""The suffix of a report's file: the form of the report."""


def written(suffix: str, about: About, results: Results, *, strict: bool = False) -> str:
    """Return the report for a suffix of `SUFFIXES`; with `strict`, SHOULD counts for the verdict.

    Raises `ValueError` for another suffix.
    """
    match suffix:
        case ".json":
            return json.dumps(as_json(about, results), indent=2) + "\n"
        case ".xml":
            return as_junit(about, results, strict=strict).decode()
        case ".sarif":
            return json.dumps(as_sarif(about, results), indent=2) + "\n"
        case ".md":
            return as_markdown(about, results, strict=strict)
        case ".txt":
            return as_annotations(results, about.subject, strict=strict)
        case ".html":
            return as_html(about, results, strict=strict)
        case _:
            raise ValueError(unknown("report", suffix, SUFFIXES))


# --- annotations ------------------------------------------------------------------------


def as_annotations(results: Results, subject: str, *, strict: bool = False) -> str:
    """Return the lines, empty if nothing failed; with `strict`, SHOULD counts for the verdict.

    An id that counts is an error, and a failed SHOULD a warning; ids in the baseline report
    are left out. No annotation names a file: the page of demands is not in the user's repository.
    A run without a judged id is an error.
    """
    outcome, why = verdict(results, strict)
    groups = by_cause(readable(results))
    in_order = [group[0] for group in groups] + [each for group in groups for each in group[1:]]
    shown = [_annotation(each, strict) for each in in_order]
    if outcome is Outcome.INCONCLUSIVE and not any(each.startswith("::error") for each in shown):
        shown.append(unready(subject, why))
    return "".join(shown)


def unready(subject: str, why: str) -> str:
    """Return the annotation for a subject that could not be judged, with the reason."""
    title = f"x402sim conformance {subject}: no verdict"
    return f"::error title={_escaped_property(title)}::{_message(printable(why))}\n"


def _annotation(result: Result, strict: bool) -> str:
    counts = counts_for_exit(result, strict)
    if not counts and (result.is_known or result.outcome is not Outcome.FAILED):
        return ""
    command = "error" if counts else "warning"
    title = f"{result.level} {headline(result)}: {result.id}"
    text = [f"like {result.like}: {cause(result)}" if result.like else cause(result)]
    if result.outcome is Outcome.FAILED:
        text.append(f"expected {result.expected}, got {result.actual}")
    text += [f"loss: {result.loss}"] if result.loss else []
    text += [f"to repair: {repair(result)}"] if repair(result) else []
    text += [f"known of {result.known_of}"] if result.known_of else []
    text += [f"run it again: {result.rerun}"] if result.rerun else []
    said = _message("\n".join(text))
    return f"::{command} title={_escaped_property(title)}::{said}\n"


def _message(text: str) -> str:
    """Escape the message of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


# --- Markdown ---------------------------------------------------------------------------

MOST_CAUSES, MOST_EXCHANGE = 20, 3000
"""Causes, and characters of an exchange, that a report shows: a comment has 65,536 characters."""
MARKS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.INCONCLUSIVE: "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@-])")


def as_markdown(about: About, results: Results, *, strict: bool = False) -> str:
    """Return the report as Markdown; with `strict`, SHOULD counts for the verdict."""
    results = readable(results)
    outcome, why = verdict(results, strict)
    lines = [
        f"## {MARKS[outcome]} x402sim conformance: {about.subject} {_code(about.target)}",
        "",
        _plain(why),
        "",
    ]
    told = ", ".join(text for _, text in tally(results, strict))
    lines += [f"{counted(len(results), 'id')}: {told}", ""]
    for dialect, reason in about.unspoken.items():
        lines += [f"Not judged: {_plain(dialect)}: {_plain(printable(reason))}", ""]
    if texts := _texts(results):
        lines += [f"Texts: {_plain('; '.join(texts))}", ""]
    if losses := total_loss(results):
        lines += [
            f"**Lost (transfers, or the price of unpaid goods): {_plain(', '.join(losses))}**",
            "",
        ]
    groups = by_cause(results)
    for first, *rest in groups[:MOST_CAUSES]:
        lines += _folded(first, rest, strict)
    if (left := len(groups) - MOST_CAUSES) > 0:
        lines += [f"And {left} more causes: see the other reports.", ""]
    return "\n".join(lines)


def _folded(first: Result, rest: Results, strict: bool) -> Iterator[str]:
    """Yield the lines of one cause: the defect, and folded, the evidence."""
    lost = LOSSES.get(loss([first, *rest]), "")
    counts = counts_for_exit(first, strict)
    notes = [first.level, headline(first), lost, str(first.loss or "")]
    notes += [] if counts else [why_uncounted(first)]
    details = "; ".join(_plain(each) for each in notes if each)
    what = cause(first) if first.outcome is Outcome.FAILED else "not judged"
    yield f"- **{_plain(what)}** ({_code(first.id)}: {details})"
    if todo := repair(first):
        yield f"  To repair: {_plain(todo)}"
    if rest:
        yield f"  With it: {', '.join(_code(each.id) for each in rest)}"
    yield ""
    yield "  <details><summary>Evidence</summary>"
    yield ""
    if first.outcome is Outcome.FAILED:
        for case, ground in shown(first):
            yield f"  {_plain(named(case))}"
            yield ""
            yield from (f"  > {_plain(line)}" for line in ground)
            yield ""
            yield f"  - expected {_code(str(case.expected))}"
            yield f"  - actual {_code(str(case.actual))}"
            if case.loss is not None:
                yield f"  - loss {_plain(str(case.loss))}"
            yield ""
            if case.exchanges:
                yield from _block("\n".join(exchange.written(case.exchanges, is_short=True)))
    else:
        yield f"  {_code(first.reason)}"
        yield ""
    if first.rerun:
        yield "  Run it again:"
        yield ""
        yield from _block(first.rerun)
    yield "  </details>"
    yield ""


def _plain(text: str) -> str:
    """Return our own text in one line, with Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Return text of other parties as code, in one line."""
    line = " ".join(text.split()) or "nothing"
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def _block(text: str) -> Iterator[str]:
    """Yield the lines of a block of code, in a list's item."""
    shown = text if len(text) <= MOST_EXCHANGE else f"{text[:MOST_EXCHANGE]}…"
    fence = "`" * max(3, max(map(len, re.findall("`+", shown)), default=0) + 1)
    yield from (f"  {line}" for line in (fence, *shown.split("\n"), fence))
    yield ""


# --- HTML -------------------------------------------------------------------------------

HTML_MARKS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.SKIPPED: "·",
    Outcome.INCONCLUSIVE: "?",
    Outcome.OBSERVED: "○",
}
_MEANINGS = {
    Outcome.PASSED: "the target keeps the clause, as far as the check can tell",
    Outcome.FAILED: "the target breaks the clause",
    Outcome.SKIPPED: "the target or the environment lacks something the check needs",
    Outcome.INCONCLUSIVE: "the check was interrupted before it could decide; this is not a pass",
    Outcome.OBSERVED: "the specification does not say; this is what the target does",
}


def as_html(about: About, results: Results, *, strict: bool = False) -> str:
    """Return the HTML page: first the failed and inconclusive ids, then every section.

    With `strict`, SHOULD counts for the verdict.
    """
    results = readable(results)
    groups = groupby(results, key=lambda result: result.section)
    return render(
        __package__,
        "conformance.html.j2",
        target=about.target,
        started=about.started,
        total=len(results),
        verdict=verdict(results, strict),
        losses=total_loss(results),
        unspoken={dialect: printable(why) for dialect, why in about.unspoken.items()},
        battery=about.battery,
        texts=_texts(results),
        counts=tally(results, strict),
        urgent=[
            (first, rest, LOSSES.get(loss([first, *rest]))) for first, *rest in by_cause(results)
        ],
        sections=[
            _section(name, about.sections.get(name, ""), list(found)) for name, found in groups
        ],
        marks=HTML_MARKS,
        meanings=_MEANINGS,
        clauses={f"spec/{clause.id}": clause.text for clause in CLAUSES},
        cause=cause,
        repair=repair,
        cases=lambda result: [_html_case(case, ground) for case, ground in shown(result)],
        grounds=grounds,
        headline=headline,
        left_out=lambda result: left_out(not_judged(result)),
    )


def _section(
    section: str, title: str, results: Results
) -> tuple[str, str, list[tuple[Outcome, str]], Results]:
    """Return a section's number and title, the counts of its outcomes, and its results."""
    counts = summary(results).items()
    tally = [(outcome, f"{count} {outcome}") for outcome, count in counts if count]
    return section, title, tally, results


def _html_case(case: CaseResult | Result, ground: list[str]) -> dict[str, object]:
    lines = [line for each in case.exchanges for line in each.whole]
    facts = {
        "check": named(case),
        "ground": "\n".join(ground),
        "expected": case.expected,
        "actual": case.actual,
        "loss": case.loss and str(case.loss),
        "reason": case.reason,
    }
    return {
        "facts": {name: value for name, value in facts.items() if value},
        "exchange": "\n".join(map(_indented, lines)),
        "raw": "\n".join(exchange.commands(case.exchanges)),
        "began": case.exchanges[0].head if case.exchanges else "",
    }


def _indented(line: str) -> str:
    """Return a line of an exchange; JSON in several lines."""
    if not line.startswith(("  {", "  [")):
        return line
    try:
        return json.dumps(json.loads(line), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # truncated, nested too deeply, or not JSON
        return line
