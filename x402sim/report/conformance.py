"""Conformance reports for machines: JSON, JUnit XML and SARIF.

Each is made from the results of `x402sim.suite` as plain dictionaries, with the keys
`RESULT_KEYS` and `cases`. `conformance.schema.json` is the schema of the JSON report. What the
target answered is in them: every report shows its text escaped (`printable_lines`).
"""

from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from x402sim.report.causes import Results, cause, causes, failures
from x402sim.text.printable import printable, printable_lines
from x402sim.version import VERSION

OUTCOMES = ("passed", "failed", "skipped", "inconclusive", "observed")
CASE_KEYS = (
    *("title", "ground", "outcome", "expected", "actual", "reason", "exchange", "seconds"),
)
RESULT_KEYS = ("id", "level", "section", "rerun", "in_part", *CASE_KEYS)
RAW = "payment as it was sent: "
"""How the line of an exchange begins that repeats a payment unchanged."""
DEMANDS = "conformance/demands.md"
"""The page of all demands, in a checkout of this package."""


def summary(results: Results) -> dict[str, int]:
    """Count the results by outcome."""
    counts = Counter(str(result["outcome"]) for result in results)
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def readable(results: Results) -> list[dict[str, Any]]:
    """Return the results with every text escaped, but for the newlines of the exchange."""
    return [
        {**_escaped(result), "cases": [_escaped(case) for case in result.get("cases", ())]}
        for result in results
    ]


def _escaped(result: dict[str, Any]) -> dict[str, Any]:
    return {
        key: (printable_lines if key == "exchange" else printable)(value)
        if isinstance(value, str)
        else value
        for key, value in result.items()
    }


def counts_for_exit(level: str, strict: bool) -> bool:
    """Tell whether an id counts for the exit code: MUST, and SHOULD if `strict`."""
    return level == "MUST" or (strict and level == "SHOULD")


def verdict(results: Results, strict: bool = False) -> tuple[str, str]:
    """Return the verdict's outcome (passed, failed, inconclusive), and a sentence that says why.

    Only MUST counts, and SHOULD if `strict`; something must have been judged.
    """
    what = "MUST and SHOULD" if strict else "MUST"
    counting = [each for each in results if counts_for_exit(each["level"], strict)]
    of, every = summary(counting), summary(results)
    if of["failed"]:
        return "failed", f"Failed {what} clauses: {of['failed']}."
    if of["inconclusive"]:
        return "inconclusive", f"No verdict. Inconclusive {what} checks: {of['inconclusive']}."
    asked = of if counting else every
    rest = ", ".join(f"{asked[name]} {name}" for name in OUTCOMES if asked[name])
    if asked["skipped"] + asked["inconclusive"] == sum(asked.values()):
        return "inconclusive", f"No verdict: nothing could be checked ({rest})."
    if not counting:
        return "passed", f"No {what} clause was asked for ({rest})."
    seen = f", {of['observed']} observed" if of["observed"] else ""
    held = f"{of['passed']} held{seen}, {of['skipped']} skipped"
    return "passed", f"No {what} clause failed: {held}."


def headline(result: dict[str, Any]) -> str:
    """Return the outcome of an id with several cases, and in how many of them it was found.

    "failed (2 of 7 cases, 1 not judged)", or "passed (6 of 7 cases, 1 not judged)".
    """
    outcome, cases = str(result["outcome"]), result.get("cases") or ()
    alike = sum(case["outcome"] == outcome for case in cases)
    left = len(not_judged(result))
    if len(cases) < 2 or alike in (0, len(cases)):
        return outcome
    return f"{outcome} ({alike} of {len(cases)} cases{f', {left} not judged' if left else ''})"


def not_judged(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases of a judged id that were skipped, or could not be completed."""
    if result["outcome"] not in ("passed", "failed", "observed"):
        return []
    return [case for case in result["cases"] if case["outcome"] in ("skipped", "inconclusive")]


def told(case: dict[str, Any]) -> list[str]:
    """Return the ground of a case in lines: its sentences in quotation marks, then why."""
    ground = case.get("ground")
    if not ground:
        return []
    quoted = [f"{each['section']}: “{each['text']}”" for each in ground["sentences"]]
    return [f"{ground['kind']}:", *quoted, *filter(None, [ground["why"]])]


def grounds(result: dict[str, Any]) -> list[str]:
    """Return the grounds of all cases of an id in lines, each once."""
    every = [told(case) for case in result["cases"]] or [told(result)]
    return list(dict.fromkeys("\n".join(lines) for lines in every if lines))


def as_json(target: str, started: str, results: Results) -> dict[str, Any]:
    """Return the report as one JSON object: target, started (ISO 8601), summary, results."""
    results = readable(results)
    found = causes(results)
    first = _first(found)
    return {
        "target": target,
        "started": started,
        "summary": summary(results),
        "causes": found,
        "results": [_as_json(each, first.get(each["id"], "")) for each in results],
    }


def _first(found: Results) -> dict[str, str]:
    """Return the ids that follow from another, each with that one."""
    return {each: cause["id"] for cause in found for each in cause["follows"]}


def _as_json(result: dict[str, Any], like: str) -> dict[str, Any]:
    cases = [{key: case[key] for key in CASE_KEYS} for case in result["cases"]]
    return {**{key: result[key] for key in RESULT_KEYS}, "like": like, "cases": cases}


def as_junit(target: str, started: str, results: Results, *, strict: bool = False) -> bytes:
    """Return the report as JUnit XML: a suite for each section, a case for each id.

    failed becomes a failure, inconclusive an error; skipped and observed become skipped, and so
    does what failed or was inconclusive and does not count for the exit code, with all of it in
    system-out: a CI that reads the report is red when the command is.
    """
    results = readable(results)
    first = _first(causes(results))
    root = ET.Element("testsuites", {"name": "x402sim conformance", **_numbers(results, strict)})
    for section in sorted({str(result["section"]) for result in results}):
        mine = [result for result in results if result["section"] == section]
        about = {
            "name": f"section {section}",
            "hostname": printable(target),
            "timestamp": started[:19],
            "skipped": str(sum(_junit_kind(r, strict) == "skipped" for r in mine)),
        }
        suite = ET.SubElement(root, "testsuite", {**about, **_numbers(mine, strict)})
        for result in mine:
            _case(suite, result, strict, first.get(str(result["id"]), ""))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _numbers(results: Results, strict: bool) -> dict[str, str]:
    kinds = Counter(_junit_kind(result, strict) for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "time": f"{sum(float(result['seconds']) for result in results):.3f}",
    }


def _junit_kind(result: dict[str, Any], strict: bool) -> str:
    """Return the element that an id becomes in JUnit; empty if it passed."""
    if result["outcome"] == "passed":
        return ""
    if not counts_for_exit(result["level"], strict):
        return "skipped"
    return {"failed": "failure", "inconclusive": "error"}.get(result["outcome"], "skipped")


def _case(suite: ET.Element, result: dict[str, Any], strict: bool, like: str) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        name=str(result["id"]),
        classname=f"conformance.section_{str(result['section']).replace('.', '_')}",
        time=f"{float(result['seconds']):.3f}",
    )
    detail = f"expected {result['expected']}, got {result['actual']}"
    detail = f"like {like}: {detail}" if like else detail
    uncounted = f"{result['outcome']} {result['level']} (does not count without --strict): "
    match result["outcome"], _junit_kind(result, strict):
        case "failed", "failure":
            failure = ET.SubElement(case, "failure", message=detail, type=str(result["level"]))
            failure.text = explained(result)
        case "failed", _:
            ET.SubElement(case, "skipped", message=uncounted + detail)
            ET.SubElement(case, "system-out").text = explained(result)
        case "inconclusive", "error":
            ET.SubElement(case, "error", message=str(result["reason"]), type="inconclusive")
        case "inconclusive", _:
            ET.SubElement(case, "skipped", message=uncounted + str(result["reason"]))
        case "skipped", _:
            ET.SubElement(case, "skipped", message=str(result["reason"]))
        case "observed", _:
            ET.SubElement(case, "skipped", message=f"observed: {result['actual']}")
        case _:
            assert result["outcome"] == "passed"
            if left := not_judged(result):
                ET.SubElement(case, "system-out").text = "\n".join(
                    [headline(result), *left_out(left)]
                )


def left_out(cases: Results) -> list[str]:
    """Return the cases that were not judged in lines, each with its reason."""
    return [f"not judged: {case['title'].rstrip('.')}: {case['reason']}" for case in cases]


def explained(result: dict[str, Any]) -> str:
    """Return a failure in full: its cases, their exchanges, the command that repeats them."""
    parts = [f"{result['id']} ({result['level']}): {headline(result)}", f"cause: {cause(result)}"]
    for case in failures(result):
        parts += ["", case["title"], *told(case)]
        parts += [f"expected: {case['expected']}", f"actual:   {case['actual']}"]
        if case["exchange"]:
            parts += ["", case["exchange"]]
    if left := not_judged(result):
        parts += ["", *left_out(left)]
    return "\n".join([*parts, "", f"run it again: {result['rerun']}"])


_SARIF_LEVELS = {"MUST": "error", "SHOULD": "warning", "MAY": "note"}


def as_sarif(target: str, results: Results, demands: str = "") -> dict[str, Any]:
    """Return the report as SARIF 2.1.0: failures as results, every id as a rule.

    A result is shown at its id's heading in `demands`, the text of the page of all demands:
    GitHub shows only what is at a place in a file.
    """
    results = readable(results)
    lines = {line: number for number, line in enumerate(demands.splitlines(), start=1)}
    rules = [
        {
            "id": result["id"],
            "name": result["id"],
            "shortDescription": {"text": result["title"]},
            "help": {"text": "\n\n".join(grounds(result)) or result["title"]},
            "defaultConfiguration": {"level": _SARIF_LEVELS[result["level"]]},
            "properties": {
                "section": result["section"],
                "level": result["level"],
                "ground": _kind(result),
                "tags": [result["level"], _kind(result)],
            },
        }
        for result in results
    ]
    found = [
        _sarif_result(number, target, result, lines.get(f"### {result['id']}", 1))
        for number, result in enumerate(results)
        if result["outcome"] in ("failed", "inconclusive")
    ]
    driver = {
        "name": "x402sim conformance",
        "version": VERSION,
        "rules": rules,
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": found}],
    }


def _kind(result: dict[str, Any]) -> str:
    ground = result.get("ground")
    return str(ground["kind"]) if ground else "unknown"


def _sarif_result(number: int, target: str, result: dict[str, Any], line: int) -> dict[str, Any]:
    failed = result["outcome"] == "failed"
    return {
        "ruleId": result["id"],
        "ruleIndex": number,
        "kind": "fail" if failed else "open",
        "level": _SARIF_LEVELS[result["level"]] if failed else "none",
        "message": {"text": explained(result) if failed else f"inconclusive: {result['reason']}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": DEMANDS},
                    "region": {"startLine": line},
                },
                "logicalLocations": [{"fullyQualifiedName": target, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"check/v1": result["id"]},
    }
