"""The reports keep their formats, and match the results."""

import html
import json
from contextlib import redirect_stdout
from importlib.resources import files
from io import BytesIO, StringIO
from pathlib import Path

import html5lib
import pytest
import xmlschema
from junitparser import JUnitXml
from msgspec.structs import replace
from sarif_pydantic import Sarif

from x402sim import TESTNET
from x402sim.report import conformance as report
from x402sim.report.conformance_html import page
from x402sim.report.results import CaseResult, Outcome, Result
from x402sim.suite.engine import all_checks
from x402sim.suite.local import judge
from x402sim.suite.one_step import WHY_NOT
from x402sim.suite.printing import show_results
from x402sim.world.assembly.recipe import Recipe

HERE = Path(__file__).parent
SCHEMA = files("x402sim.report").joinpath("conformance.schema.json")
STARTED = "2026-01-02T03:04:05+00:00"
URL = "http://service.example:4020"
NASTY = "<script>alert('1')</script> & \"x\" ]]> \x00\x1b \u2028 é"


def of_each_kind() -> list[Result]:
    return [
        Result(id="spec/2.2/body", level="MUST", section="2.2", outcome=Outcome.FAILED,
               title=f"title {NASTY}", expected=NASTY, actual=f"not {NASTY}", rerun="again",
               exchange=f"POST /\n{NASTY}", seconds=0.5),
        Result(id="spec/2.2/payment-id", level="SHOULD", section="2.2", outcome=Outcome.FAILED,
               title="t", expected="1", actual="2"),
        Result(id="spec/5/window", level="MUST", section="5", outcome=Outcome.INCONCLUSIVE,
               title="t", reason=NASTY),
        Result(id="spec/5/nonce-once", level="MUST", section="5", outcome=Outcome.SKIPPED,
               title="t", reason="it needs money"),
        Result(id="spec/7/invalid-signature", level="MUST", section="7", outcome=Outcome.PASSED,
               title="t", seconds=0.25),
        Result(id="silent/5/reuse", level="SHOULD", section="5", outcome=Outcome.OBSERVED,
               title="t", actual="it is reused"),
    ]  # fmt: skip


def of_our_service() -> list[Result]:
    return judge(Recipe(network=TESTNET, seed=1), checks=all_checks()[:12])


@pytest.fixture(params=["of_each_kind", "of_our_service", "with_cases", "of_shoulds"])
def results(request: pytest.FixtureRequest) -> list[Result]:
    found: list[Result] = globals()[request.param]()
    return found


def test_the_json_report_keeps_its_schema(results: list[Result]) -> None:
    import jsonschema  # takes two seconds, as it compiles grammars

    told = json.loads(json.dumps(report.as_json(URL, STARTED, results)))
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(told, schema, format_checker=jsonschema.FormatChecker())
    assert sum(told["summary"].values()) == len(told["results"]) == len(results)


def test_the_junit_report_keeps_its_schema(results: list[Result]) -> None:
    document = report.as_junit(URL, STARTED, results)
    xmlschema.XMLSchema(HERE / "junit.xsd").validate(BytesIO(document))
    read = JUnitXml.fromstring(document)
    counts = report.summary([each for each in results if each.level == "MUST"])
    assert (read.tests, read.failures, read.errors) == (
        len(results), counts["failed"], counts["inconclusive"],
    )  # fmt: skip
    names = {case.name for suite in read for case in suite}
    assert names == {result.id for result in results}


def test_the_sarif_report_keeps_its_schema(results: list[Result]) -> None:
    told = report.as_sarif(URL, results)
    log = Sarif.model_validate_json(json.dumps(told))
    (run,) = log.runs
    wrong = [r for r in results if r.outcome in ("failed", "inconclusive")]
    assert [each.rule_id for each in run.results or []] == [r.id for r in wrong]
    assert len(run.tool.driver.rules or []) == len(results)
    for each in told["runs"][0]["results"]:
        assert told["runs"][0]["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
        assert (each["kind"] == "fail") == (each["level"] != "none")


def test_the_page_is_valid_html_and_escapes_its_input(results: list[Result]) -> None:
    text = page(URL, STARTED, results)
    clean = text.replace("\x00", "").replace("\x1b", "")
    parser = html5lib.HTMLParser(strict=False)
    parser.parse(clean)
    problems = [code for _, code, _ in parser.errors if code != "invalid-codepoint"]
    assert problems == []
    assert "<script" not in text
    assert "http" not in text.replace(URL, "")
    for result in results:
        assert result.id in text


def test_failed_musts_come_first_and_json_is_indented() -> None:
    must, should, unclear, *_ = of_each_kind()
    must = replace(must, exchange='POST /pay\n{"a":{"b":1}}\n-> 200\n{"cut":"sho')
    should = replace(should, exchange="[" * 5_000)
    unclear = replace(unclear, id="spec/9/a")  # no known defect keeps it from being judged
    text = page(URL, STARTED, [unclear, should, must])
    urgent = text.split("What needs attention")[1].split("<h2>")[0]
    places = [urgent.index(each.id) for each in (must, should, unclear)]
    assert places == sorted(places)
    unfolded = '{\n  "a": {\n    "b": 1\n  }\n}\n-> 200\n{"cut":"sho</pre>'
    assert unfolded in html.unescape(urgent)


# --- the cases of an id --------------------------------------------------------------


def with_cases() -> list[Result]:
    """A failed id with two failing cases of four, and one that passed in part."""
    failing = [
        CaseResult(title="the clear one", outcome=Outcome.FAILED, expected="1", actual=NASTY,
                   exchange="POST /clear"),
        CaseResult(title="the other one", outcome=Outcome.FAILED, expected="3", actual="4",
                   exchange="POST /other"),
    ]  # fmt: skip
    held = CaseResult(title="it holds", outcome=Outcome.PASSED)
    left_out = CaseResult(title="it is left out", outcome=Outcome.SKIPPED, reason="give --world")
    return [
        Result(id="spec/5/window", level="MUST", section="5", outcome=Outcome.FAILED,
               title="the clear one", expected="1", actual=NASTY, rerun="again",
               exchange="POST /clear", cases=(*failing, held, left_out), in_part="3 of 4 cases"),
        Result(id="spec/7/invalid-signature", level="MUST", section="7", outcome=Outcome.PASSED,
               title="it holds", cases=(held, left_out), in_part="1 of 2 cases"),
    ]  # fmt: skip


def texts_of_all_formats() -> dict[str, str]:
    results = with_cases()
    sarif = report.as_sarif(URL, results)["runs"][0]["results"][0]["message"]["text"]
    with redirect_stdout(StringIO()) as terminal:
        show_results(results, strict=False)
    return {
        "terminal": terminal.getvalue(),
        "JSON": json.dumps(report.as_json(URL, STARTED, results)),
        "JUnit": report.as_junit(URL, STARTED, results).decode(),
        "SARIF": sarif,
        "HTML": html.unescape(page(URL, STARTED, results)),
    }


def test_every_format_shows_all_failing_cases_the_clearest_first() -> None:
    for name, text in texts_of_all_formats().items():
        places = [
            text.index(it)
            for it in ("the clear one", "POST /clear", "the other one", "POST /other")
        ]
        assert places == sorted(places), name


def test_every_format_says_how_much_was_judged() -> None:
    texts = texts_of_all_formats()
    told = json.loads(texts.pop("JSON"))
    outcomes = [case["outcome"] for case in told["results"][1]["cases"]]
    assert outcomes == ["passed", "skipped"]
    for name, text in texts.items():
        assert "failed (2 of 4 cases, 1 not judged)" in text.replace("\n", " "), name
        wanted = "passed (1 of 2 cases, 1 not judged)"
        assert name in ("SARIF", "terminal") or wanted in text, name
        wanted = "not judged: it is left out: give --world"
        assert wanted in text, name
    part = "not judged 1 in part: give --world\n  spec/7/invalid-signature (passed 1 of 2 cases)"
    assert part in texts["terminal"]


def of_one_cause() -> list[Result]:
    said = '200 {"success":false,"error":"%s","paymentId":"pay_%s…"}'
    return [
        Result(id="kit/7/a", level="SHOULD", section="7", outcome=Outcome.FAILED, title="one",
               expected="the settlement: a refusal", actual=said % ("No", "aaaa")),
        Result(id="spec/7/b", level="MUST", section="7", outcome=Outcome.FAILED, title="two",
               expected="no bytes: the settlement: 'Invalid signature'", actual=said % ("x", "bb")),
        Result(id="spec/7/c", level="MUST", section="7", outcome=Outcome.FAILED, title="three",
               expected="the price: 1", actual="2"),
        *(Result(id=f"spec/8/{name}", level="MUST", section="8", outcome=Outcome.INCONCLUSIVE,
                 title="t", reason=reason) for name, reason in (
                     ("d", "it stopped at 1795360731698"),
                     ("e", "the baseline (payment) was not accepted: it stopped at 1795360759177"),
                     ("f", f"a valid payment was not settled: {said % ('y', 'cc')}"))),
    ]  # fmt: skip


def test_failures_of_one_cause_follow_the_clearest_in_every_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = of_one_cause()
    told = report.as_json(URL, STARTED, results)["results"]
    assert {each["id"]: each["like"] for each in told} == {
        "kit/7/a": "spec/7/b", "spec/7/b": "", "spec/7/c": "", "spec/8/d": "", "spec/8/e": "spec/8/d",
        "spec/8/f": "spec/7/b",
    }  # fmt: skip
    assert "like spec/7/b: expected" in report.as_junit(URL, STARTED, results, strict=True).decode()
    shown = page(URL, STARTED, results)
    assert "2 more, probably for the same cause: <code>kit/7/a</code>, <code>spec/8/f" in shown
    assert '<a href="#spec/7/b"><code>spec/7/b</code></a>' in shown
    assert '<summary id="kit/7/a">' in shown
    show_results(results, strict=False)
    shown = capsys.readouterr().out
    assert shown.index("spec/7/b MUST") < shown.index("kit/7/a SHOULD, failed (does not")
    assert shown.count("expected  ") == 2, "only the first of a cause is shown in full"
    assert shown.index("kit/7/a") < shown.index("spec/8/f MUST, inconclusive") < shown.index("/7/c")
    assert "inconclusive 2: it stopped at 1795360731698\n  spec/8/d, spec/8/e\n" in shown


def test_the_terminal_tells_the_causes_before_what_does_not_apply(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = of_one_cause()
    results.append(Result(id="spec/1/indexer", level="MUST", section="1", title="t",
                          outcome=Outcome.SKIPPED, reason=WHY_NOT))  # fmt: skip
    show_results(results, strict=False)
    shown = capsys.readouterr().out
    assert (
        "3 probable causes:\n  1. not so: two\n     spec/7/b MUST failed; with it kit/7/a" in shown
    )
    assert shown.index("3 probable causes") < shown.index("not judged 1 (-v names them): not app")
    assert "spec/1/indexer" not in shown
    show_results(results, strict=False, verbose=True)
    assert "spec/1/indexer" in capsys.readouterr().out


# --- what counts for the exit code ---------------------------------------------------


def of_shoulds() -> list[Result]:
    return [
        Result(id="kit/7/a", level="SHOULD", section="7", outcome=Outcome.FAILED, title="t",
               expected="1", actual="2", rerun="again"),
        Result(id="kit/7/b", level="SHOULD", section="7", outcome=Outcome.INCONCLUSIVE, title="t",
               reason="no answer"),
        Result(id="spec/7/c", level="MUST", section="7", outcome=Outcome.PASSED, title="t"),
        Result(id="kit/7/d", level="SHOULD", section="7", outcome=Outcome.SKIPPED, title="t"),
    ]  # fmt: skip


def test_what_does_not_count_is_no_failure_and_no_error_in_junit() -> None:
    document = report.as_junit(URL, STARTED, of_shoulds())
    read = JUnitXml.fromstring(document)
    assert (read.tests, read.failures, read.errors, read.skipped) == (4, 0, 0, 3)
    text = document.decode()
    assert "failed SHOULD (does not count without --strict): expected 1, got 2" in text
    assert "inconclusive SHOULD (does not count without --strict): no answer" in text
    assert "run it again: again" in text
    strict = JUnitXml.fromstring(report.as_junit(URL, STARTED, of_shoulds(), strict=True))
    assert (strict.failures, strict.errors, strict.skipped) == (1, 1, 1)


@pytest.mark.parametrize(
    ("wanted", "strict", "outcome", "why"),
    [
        ("abc", False, "passed", "No MUST clause failed: 1 held, 0 skipped."),
        ("abc", True, "failed", "Failed MUST and SHOULD clauses: 1."),
        ("bc", True, "inconclusive", "No verdict. Inconclusive MUST and SHOULD checks: 1."),
        ("ab", False, "passed", "No MUST clause was asked for (1 failed, 1 inconclusive)."),
        ("d", False, "inconclusive", "No verdict: nothing could be checked (1 skipped)."),
    ],
)
def test_a_verdict_says_why(wanted: str, strict: bool, outcome: str, why: str) -> None:
    results = [each for each in of_shoulds() if each.id[-1] in wanted]
    assert report.verdict(results, strict) == (outcome, why)
    assert why in page(URL, STARTED, results, strict=strict)
