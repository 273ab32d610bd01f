"""Conformance reports for machines: JSON, JUnit XML and SARIF.

`conformance.schema.json` is the schema of the JSON report. What the target answered is in them:
every report shows its text escaped (`printable_lines`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import msgspec

from x402sim.protocol.money import to_decimal
from x402sim.report.causes import cause, causes, repair
from x402sim.report.results import (
    NOT_JUDGED,
    OF_CASES,
    RARE,
    CaseResult,
    Outcome,
    Result,
    Results,
    failures,
)
from x402sim.spec.ground import Ground
from x402sim.text.words import printable, printable_lines
from x402sim.version import VERSION

RAW = "send it again: "
"""How the line of an exchange begins that is a command: it sends the same request, unchanged."""
FULL = "in full: "
"""How the line of an exchange begins that no terminal and no comment shows: the line before has it
in short, or leaves it out."""
SERVICE = "service"
"""The subject of a report that names none."""
AnyResult = TypeVar("AnyResult", Result, CaseResult)


def summary(results: Results) -> dict[Outcome, int]:
    """Count the results by outcome."""
    counts = Counter(result.outcome for result in results)
    return {outcome: counts[outcome] for outcome in Outcome}


def readable(results: Results) -> list[Result]:
    """Return the results as reports show them: with every text escaped, but for the newlines of the
    exchange, and with the id that each follows from."""
    escaped = [
        msgspec.structs.replace(_escaped(result), cases=tuple(map(_escaped, result.cases)))
        for result in results
    ]
    first = {each: cause.id for cause in causes(escaped) for each in cause.follows}
    return [msgspec.structs.replace(each, like=first.get(each.id, "")) for each in escaped]


def _escaped(result: AnyResult) -> AnyResult:
    fields = msgspec.structs.asdict(result).items()
    texts = {name: printable(value) for name, value in fields if type(value) is str}
    return msgspec.structs.replace(result, **texts | {"exchange": printable_lines(result.exchange)})


def counts_for_exit(result: Result, strict: bool) -> bool:
    """Tell whether an id counts for the exit code: MUST, and SHOULD if `strict`.

    What the baseline report has found, too, does not.
    """
    return not result.is_known and (result.level == "MUST" or (strict and result.level == "SHOULD"))


def why_uncounted(result: Result) -> str:
    """Return why a result does not count for the exit code, for those that do not."""
    return "in the baseline report, too" if result.is_known else "does not count without --strict"


def verdict(results: Results, strict: bool = False) -> tuple[Outcome, str]:
    """Return the verdict's outcome (passed, failed, inconclusive), and a sentence that says why.

    Only MUST counts, and SHOULD if `strict`; something must have been judged.
    """
    what = "MUST and SHOULD" if strict else "MUST"
    if broken := [each.id for each in results if each.is_control and each.outcome in NO_CONTROL]:
        return Outcome.INCONCLUSIVE, (
            f"Invalid. What any subject that is worth judging can do, it did not: "
            f"{', '.join(broken)}. So what it refused proves nothing."
        )
    counting = [each for each in results if counts_for_exit(each, strict)]
    of, every = summary(counting), summary(results)
    known = sum(each.is_known for each in results)
    known_note = f" Known from the baseline: {known}." if known else ""
    if failed := of[Outcome.FAILED]:
        new = "New failed" if known else "Failed"
        return Outcome.FAILED, f"{new} {what} clauses: {failed}.{known_note}"
    if unclear := of[Outcome.INCONCLUSIVE]:
        return (
            Outcome.INCONCLUSIVE,
            f"No verdict. Inconclusive {what} checks: {unclear}.{known_note}",
        )
    asked = of if counting else every
    rest = ", ".join(f"{count} {outcome}" for outcome, count in asked.items() if count)
    if all(each.outcome in NOT_JUDGED and not each.in_part for each in counting or results):
        return Outcome.INCONCLUSIVE, f"No verdict: nothing could be checked ({rest})."
    if not counting:
        return Outcome.PASSED, f"No {what} clause was asked for ({rest}).{known_note}"
    seen = f", {of[Outcome.OBSERVED]} observed" if of[Outcome.OBSERVED] else ""
    part = sum(each.outcome is Outcome.SKIPPED and bool(each.in_part) for each in counting)
    in_part = f" ({part} judged in part)" if part else ""
    held = f"{of[Outcome.PASSED]} held{seen}, {of[Outcome.SKIPPED]} skipped{in_part}"
    new = "new " if known else ""
    return Outcome.PASSED, f"No {new}{what} clause failed: {held}.{known_note}"


def headline(result: Result) -> str:
    """Return the outcome of an id with several cases, and in how many of them it was found.

    "failed (2 of 7 cases, 1 not judged)", or "passed (6 of 7 cases, 1 not judged)"; where a
    decisive case was not judged, "inconclusive (3 of 7 cases passed)".
    """
    outcome, cases = str(result.outcome), result.cases
    if result.outcome in NOT_JUDGED and result.in_part:
        passed = sum(case.outcome not in NOT_JUDGED for case in cases)
        return f"{outcome} ({passed} of {len(cases)} cases passed)"
    alike = sum(case.outcome is result.outcome for case in cases)
    left = len(not_judged(result))
    if len(cases) < 2 or alike in (0, len(cases)):
        return outcome
    return f"{outcome} ({alike} of {len(cases)} cases{f', {left} not judged' if left else ''})"


def not_judged(result: Result) -> list[CaseResult]:
    """Return the cases of a judged id that were skipped, or could not be completed."""
    if result.outcome in NOT_JUDGED and not result.in_part:
        return []
    return [case for case in result.cases if case.outcome in NOT_JUDGED]


def ground_lines(case: CaseResult | Result, before: Iterable[Ground | None] = ()) -> list[str]:
    """Return the ground of a case in lines: its sentences in quotation marks, then why.

    What the grounds `before` have said is left out.
    """
    ground = case.ground
    if ground is None:
        return []
    known = [each for other in before if other for each in (*other.sentences, other.why)]
    said = [each for each in (*ground.sentences, ground.why) if each and each not in known]
    return [f"{ground.kind}:", *map(str, said)] if said else []


def shown(result: Result) -> list[tuple[CaseResult | Result, list[str]]]:
    """Return the failed cases of an id, each with its ground, in which nothing comes twice."""
    cases = failures(result)
    return [
        (case, ground_lines(case, (it.ground for it in cases[:n]))) for n, case in enumerate(cases)
    ]


def grounds(result: Result) -> list[str]:
    """Return the grounds of all cases of an id in lines, each once."""
    every = [ground_lines(case) for case in result.cases] or [ground_lines(result)]
    return list(dict.fromkeys("\n".join(lines) for lines in every if lines))


NO_CONTROL = (Outcome.FAILED, Outcome.INCONCLUSIVE)
"""What may not come of a control."""


def total_loss(results: Results) -> list[str]:
    """Return what the failed ids of a run cost, by the token; empty if no money was counted."""
    sums: Counter[tuple[str, int]] = Counter()
    for result in results:
        if result.loss is not None:
            sums[result.loss.symbol, result.loss.decimals] += result.loss.base
    return [f"{to_decimal(base, places)} {symbol}" for (symbol, places), base in sums.items()]


def as_json(target: str, started: str, results: Results, subject: str = SERVICE) -> dict[str, Any]:
    """Return the report as one JSON object: target, started (ISO 8601), summary, results.

    A `subject` other than a service is named first.
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
        **({} if subject == SERVICE else {"subject": subject}),
        "target": target,
        "started": started,
        "summary": summary(results),
        "causes": msgspec.to_builtins(causes(results)),
        "results": plain,
    }


def as_junit(target: str, started: str, results: Results, *, strict: bool = False) -> bytes:
    """Return the report as JUnit XML: a suite for each section, a case for each id.

    failed becomes a failure, inconclusive an error; skipped and observed become skipped, and so
    does what failed or was inconclusive and does not count for the exit code, with all of it in
    system-out: a CI that reads the report is red when the command is.
    """
    results = readable(results)
    root = ET.Element("testsuites", {"name": "x402sim conformance", **_numbers(results, strict)})
    for section in sorted({result.section for result in results}):
        mine = [result for result in results if result.section == section]
        about = {
            "name": f"section {section}",
            "hostname": printable(target),
            "timestamp": started[:19],
            "skipped": str(sum(_junit_kind(r, strict) == "skipped" for r in mine)),
        }
        suite = ET.SubElement(root, "testsuite", {**about, **_numbers(mine, strict)})
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
    """Return the element that an id becomes in JUnit; empty if it passed."""
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
    """Return the cases that were not judged in lines, each with its reason."""
    return [f"not judged: {case.title.rstrip('.')}: {case.reason}" for case in cases]


def explained(result: Result) -> str:
    """Return a failure in full: its cases, their exchanges, the command that repeats them."""
    parts = [f"{result.id} ({result.level}): {headline(result)}", f"cause: {cause(result)}"]
    parts += [f"to repair: {repair(result)}"] if repair(result) else []
    for case, ground in shown(result):
        parts += ["", case.title, *ground]
        parts += [f"expected: {case.expected}", f"actual:   {case.actual}"]
        parts += [f"loss:     {case.loss}"] if case.loss else []
        if case.exchange:
            parts += ["", case.exchange]
    if left := not_judged(result):
        parts += ["", *left_out(left)]
    return "\n".join([*parts, "", f"run it again: {result.rerun}"])


def demands_page(subject: str) -> str:
    """Return the path of the page of all demands of a subject, in a checkout of this package."""
    folder = "conformance"
    return f"{folder}/service/demands.md" if subject == SERVICE else f"{folder}/{subject}s.md"


def headings(demands: str) -> dict[str, int]:
    """Return the number of each line of the page of all demands, by what is before its colon."""
    lines = enumerate(demands.splitlines(), start=1)
    return {line.partition(":")[0]: number for number, line in lines}


def place(lines: Mapping[str, int], result: Result) -> int:
    """Return the line of an id's heading, or of its section's, among the `headings`; or 1."""
    return lines.get(f"### {result.id}") or lines.get(f"## {result.section}", 1)


_SARIF_LEVELS = {"MUST": "error", "SHOULD": "warning", "MAY": "note"}


def as_sarif(
    target: str, results: Results, demands: str = "", subject: str = SERVICE
) -> dict[str, Any]:
    """Return the report as SARIF 2.1.0: failures as results, every id as a rule.

    A result is shown at its `place` in `demands`, the text of the page of all demands: GitHub shows
    only what is at a place in a file.
    """
    results = readable(results)
    page, lines = demands_page(subject), headings(demands)
    found = [
        _sarif_result(number, target, result, page, place(lines, result))
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


def _sarif_result(number: int, target: str, result: Result, page: str, line: int) -> dict[str, Any]:
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
                    "artifactLocation": {"uri": page},
                    "region": {"startLine": line},
                },
                "logicalLocations": [{"fullyQualifiedName": target, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"check/v1": result.id},
    }
