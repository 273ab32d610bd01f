"""The reports keep their formats, and match the results."""

import html
import json
from contextlib import redirect_stdout
from importlib.resources import files
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import html5lib
import pytest
from junitparser import JUnitXml
from msgspec.structs import replace

from x402sim import World
from x402sim.spec.ground import TITLES, Ground, GroundType, sentence
from x402sim.suite.command import conclude
from x402sim.suite.printing import show_results
from x402sim.suite.redact import impersonal
from x402sim.suite.report import conformance as report
from x402sim.suite.report.conformance import About, as_html
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.suite.report.results import CaseResult, DemandKey, Evidence, Outcome, Result
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge
from x402sim.suite.service.subject import SERVICE

HERE = Path(__file__).parent
SCHEMA = files("x402sim.suite.report").joinpath("conformance.schema.json")
STARTED = "2026-01-02T03:04:05+00:00"
URL = "http://service.example:4020"
ABOUT = About("service", URL, STARTED, TITLES)
NASTY = "<script>alert('1')</script> & \"x\" ]]> \x00\x1b \u2028 é"


def result(check_id: str, outcome: str, level: str = "MUST", **more: Any) -> Result:
    section, told = check_id.split("/")[1], {"title": "t", **more}
    return Result(id=check_id, level=level, section=section, outcome=Outcome(outcome), **told)


def of_each_kind() -> list[Result]:
    return [
        result("spec/2.2/body", "failed", title=f"title {NASTY}", expected=NASTY,
               actual=f"not {NASTY}", rerun="again", exchanges=(Exchange(NASTY, Message("POST /")),), seconds=0.5,
               evidence=Evidence(DemandKey.FORM)),
        result("spec/2.2/payment-id", "failed", "SHOULD", expected="1", actual="2",
               evidence=Evidence(DemandKey.FORM)),
        result("spec/5/window", "inconclusive", reason=NASTY),
        result("spec/5/nonce-once", "skipped", reason="it needs money"),
        result("spec/7/invalid-signature", "passed", seconds=0.25),
        result("silent/5/reuse", "observed", "SHOULD", actual="it is reused"),
    ]  # fmt: skip


def of_our_service() -> list[Result]:
    return judge(World(seed=1), checks=all_checks()[:12])


@pytest.fixture(params=["of_each_kind", "of_our_service", "with_cases", "of_shoulds"])
def results(request: pytest.FixtureRequest) -> list[Result]:
    found: list[Result] = globals()[request.param]()
    return found


def test_the_json_report_keeps_its_schema(results: list[Result]) -> None:
    import jsonschema

    told = json.loads(json.dumps(report.as_json(ABOUT, results)))
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(told, schema, format_checker=jsonschema.FormatChecker())
    assert sum(told["summary"].values()) == len(told["results"]) == len(results)


def test_the_junit_report_keeps_its_schema(results: list[Result]) -> None:
    import xmlschema

    document = report.as_junit(ABOUT, results)
    xmlschema.XMLSchema(HERE / "junit.xsd").validate(BytesIO(document))
    read = JUnitXml.fromstring(document)
    counts = report.summary([each for each in results if each.level == "MUST"])
    assert (read.tests, read.failures, read.errors) == (
        len(results), counts["failed"], counts["inconclusive"],
    )  # fmt: skip
    names = {case.name for suite in read for case in suite}
    assert names == {result.id for result in results}


def test_the_sarif_report_keeps_its_schema(results: list[Result]) -> None:
    from sarif_pydantic import Sarif

    told = report.as_sarif(ABOUT, results)
    log = Sarif.model_validate_json(json.dumps(told))
    (run,) = log.runs
    wrong = [r for r in results if r.outcome in ("failed", "inconclusive")]
    assert [each.rule_id for each in run.results or []] == [r.id for r in wrong]
    assert len(run.tool.driver.rules or []) == len(results)
    for each in told["runs"][0]["results"]:
        assert told["runs"][0]["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
        assert (each["kind"] == "fail") == (each["level"] != "none")


def test_the_page_is_valid_html_and_escapes_its_input(results: list[Result]) -> None:
    text = as_html(ABOUT, results)
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
    sent, answer = Message("POST /pay", body='{"a":{"b":1}}'), Message("200", body='{"cut":"sho')
    must = replace(must, exchanges=(Exchange(request=sent, answer=answer),))
    deep = Message("200", body="[" * 5_000)
    should = replace(should, exchanges=(Exchange(request=sent, answer=deep),))
    unclear = replace(unclear, id="spec/9/a")  # no known defect keeps it from being judged
    text = as_html(ABOUT, [unclear, should, must])
    urgent = text.split("What needs attention")[1].split("<h2>")[0]
    places = [urgent.index(each.id) for each in (must, should, unclear)]
    assert places == sorted(places)
    unfolded = '{\n  "a": {\n    "b": 1\n  }\n}\n-> 200\n  {"cut":"sho</pre>'
    assert unfolded in html.unescape(urgent)


# --- the cases of an id --------------------------------------------------------------


def with_cases() -> list[Result]:
    """A failed id with two failing cases of four, and one that passed in part."""
    failed, clear = (
        Outcome.FAILED,
        {"expected": "1", "actual": NASTY, "exchanges": (Exchange("POST /clear"),)},
    )
    other = {"expected": "3", "actual": "4", "exchanges": (Exchange("POST /other"),)}
    failing = [
        CaseResult(title="the clear one", outcome=failed, **clear),
        CaseResult(title="the other one", outcome=failed, **other),
    ]
    held = CaseResult(title="it holds", outcome=Outcome.PASSED)
    left_out = CaseResult(title="it is left out", outcome=Outcome.SKIPPED, reason="give --world")
    return [
        result("spec/5/window", "failed", title="the clear one", rerun="again", **clear,
               cases=(*failing, held, left_out), in_part="3 of 4 cases"),
        result("spec/7/invalid-signature", "passed", title="it holds", cases=(held, left_out),
               in_part="1 of 2 cases"),
    ]  # fmt: skip


def texts_of_all_formats() -> dict[str, str]:
    results = with_cases()
    sarif = report.as_sarif(ABOUT, results)["runs"][0]["results"][0]["message"]["text"]
    with redirect_stdout(StringIO()) as terminal:
        show_results(SERVICE, results, strict=False)
    return {
        "terminal": terminal.getvalue(),
        "JSON": json.dumps(report.as_json(ABOUT, results)),
        "JUnit": report.as_junit(ABOUT, results).decode(),
        "SARIF": sarif,
        "HTML": html.unescape(as_html(ABOUT, results)),
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
    unsettled = f"a valid payment was not settled: {said % ('y', 'cc')}"
    stopped = Evidence(answer="it stopped at _")
    again = "the control (payment) was not accepted: it stopped at 1795360759177"
    alike = Evidence(DemandKey.ERROR_TEXT, answer=impersonal(said % ("x", "bb")))
    return [
        result("kit/7/a", "failed", "SHOULD", title="one", expected="the error's text: 'No money'",
               actual=said % ("No", "aaaa"), evidence=alike),
        result("spec/7/b", "failed", title="two", actual=said % ("x", "bb"), evidence=alike,
               expected="no bytes: the error's text: 'Invalid signature'"),
        result("spec/7/c", "failed", title="three", expected="the price: 1", actual="2"),
        result("spec/8/d", "inconclusive", reason="it stopped at 1795360731698", evidence=stopped),
        result("spec/8/e", "inconclusive", reason=again, evidence=stopped),
        result("spec/8/f", "inconclusive", reason=unsettled,
               evidence=Evidence(answer=impersonal(unsettled))),
    ]  # fmt: skip


def test_failures_of_one_cause_follow_the_clearest_in_every_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = of_one_cause()
    told = report.as_json(ABOUT, results)["results"]
    assert {each["id"]: each["like"] for each in told} == {
        "kit/7/a": "spec/7/b", "spec/7/b": "", "spec/7/c": "", "spec/8/d": "", "spec/8/e": "spec/8/d",
        "spec/8/f": "spec/7/b",
    }  # fmt: skip
    assert "like spec/7/b: expected" in report.as_junit(ABOUT, results, strict=True).decode()
    shown = as_html(ABOUT, results)
    assert "2 more, probably for the same cause: <code>kit/7/a</code>, <code>spec/8/f" in shown
    assert '<a href="#spec/7/b"><code>spec/7/b</code></a>' in shown
    assert '<summary id="kit/7/a">' in shown
    show_results(SERVICE, results, strict=False)
    shown = capsys.readouterr().out
    assert shown.index("spec/7/b MUST") < shown.index("kit/7/a SHOULD, failed (does not")
    assert shown.count("expected  ") == 2, "only the first of a cause is shown in full"
    assert shown.index("kit/7/a") < shown.index("spec/8/f MUST, inconclusive") < shown.index("/7/c")
    assert "inconclusive 2: it stopped at 1795360731698\n  spec/8/d, spec/8/e\n" in shown


def test_a_demand_of_ours_says_so_and_a_group_says_once_that_it_does_not_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = Ground(kind=GroundType.OURS, sentences=(), why="bread")
    alike = Evidence(DemandKey.ERROR_TEXT, answer="400")
    results = [
        result(f"kit/7/{name}", "failed", "SHOULD", title=name, evidence=alike, ground=ours)
        for name in ("one", "two")
    ]
    assert "ours, as no text demands it:\nbread" in as_html(ABOUT, results)
    show_results(SERVICE, results, strict=False)
    shown = capsys.readouterr().out
    assert "  ours      bread\n" in shown
    assert shown.count("does not count") == 1
    assert "2 failed (0 count for the verdict)" in shown


# --- money first, and what to do ------------------------------------------------------


SENTENCE = sentence("5: X-Payment-Id")
GROUND = Ground(kind=GroundType.EXPLICIT, sentences=(SENTENCE,))


ASKED = Exchange(request=Message("POST /"), answer=Message("200"))


def of_money() -> list[Result]:
    """In the order of the sections: of form, of form, of sales, of payers, of goods."""
    twice = [
        CaseResult(title=f"case {n}", outcome=Outcome.FAILED, expected="one receipt", actual="2",
                   ground=GROUND, exchanges=(replace(ASKED, again=f"curl -i 'http://a/{n}'"),))
        for n in (1, 2)
    ]  # fmt: skip
    return [
        result("spec/1/indexer", "failed", expected="a query", actual="none"),
        result("spec/2.1/scheme", "failed", expected="scheme: exact", actual="upto",
               evidence=Evidence(DemandKey.FORM)),
        result("spec/2.3/window", "failed", expected="a valid payment: a receipt", actual="400"),
        result("spec/3/expiry-refund", "failed", expected="refunds of one payer", actual="none"),
        result("spec/5/nonce-once", "failed", expected="one receipt", actual="2", ground=GROUND,
               cases=tuple(twice), rerun="again"),
        result("kit/7/malformed-body", "failed", "SHOULD", expected="no protected content for x",
               actual="200", evidence=Evidence(DemandKey.WITHHELD)),
    ]  # fmt: skip


def test_a_report_begins_with_a_must_and_the_greatest_loss_and_not_with_the_first_section() -> None:
    told = report.as_json(ABOUT, of_money())["causes"]
    assert [(each["id"], each["loss"]) for each in told] == [
        ("spec/5/nonce-once", "goods"),
        ("spec/3/expiry-refund", "payers"),
        ("spec/2.3/window", "sales"),
        ("spec/1/indexer", "words"),
        ("spec/2.1/scheme", "words"),
        ("kit/7/malformed-body", "goods"),
    ], "a form that is wrong costs nobody money, and gives nothing away"


def test_every_report_says_how_to_repair_and_to_send_again_and_quotes_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = of_money()
    show_results(SERVICE, results, strict=False)
    urgent = as_html(ABOUT, results).partition("<h2>Every check</h2>")[0]
    texts = {
        "terminal": capsys.readouterr().out,
        "html": html.unescape(urgent),
        "junit": html.unescape(report.as_junit(ABOUT, results).decode()),
        "sarif": report.as_sarif(ABOUT, results)["runs"][0]["results"][4]["message"]["text"],
    }
    assert "the service gives away what it sells" in texts["terminal"]
    for name, text in texts.items():
        words = " ".join(text.split())
        assert "lock by payer and nonce while a settlement runs" in words, name
        assert words.count(SENTENCE.text) == 1, f"{name}: two cases have one ground"
        assert "curl -i 'http://a/1'" in words, name
    assert "to repair" in texts["terminal"]


# --- what counts for the exit code ---------------------------------------------------


def of_shoulds() -> list[Result]:
    return [
        result("kit/7/a", "failed", "SHOULD", expected="1", actual="2", rerun="again"),
        result("kit/7/b", "inconclusive", "SHOULD", reason="no answer"),
        result("spec/7/c", "passed"),
        result("kit/7/d", "skipped", "SHOULD"),
    ]


def test_what_does_not_count_is_no_failure_and_no_error_in_junit() -> None:
    document = report.as_junit(ABOUT, of_shoulds())
    read = JUnitXml.fromstring(document)
    assert (read.tests, read.failures, read.errors, read.skipped) == (4, 0, 0, 3)
    text = document.decode()
    assert "failed SHOULD (does not count without --strict): expected 1, got 2" in text
    assert "inconclusive SHOULD (does not count without --strict): no answer" in text
    assert "run it again: again" in text
    strict = JUnitXml.fromstring(report.as_junit(ABOUT, of_shoulds(), strict=True))
    assert (strict.failures, strict.errors, strict.skipped) == (1, 1, 1)


@pytest.mark.parametrize(
    ("found", "strict", "code", "why"),
    [
        ("MUST passed", False, 0, "No MUST demand failed: 1 held, 0 skipped."),
        ("MUST passed, MUST failed", False, 1, "Failed MUST demands: 1."),
        ("MUST passed, MUST inconclusive", False, 2, "No verdict. Inconclusive MUST checks: 1."),
        ("MUST failed, MUST inconclusive", False, 1, "Failed MUST demands: 1."),
        ("MUST passed, SHOULD failed", False, 0, "No MUST demand failed: 1 held, 0 skipped."),
        ("MUST passed, SHOULD failed", True, 1, "Failed MUST and SHOULD demands: 1."),
        ("MUST passed, MUST skipped, MUST observed", False, 0,
         "No MUST demand failed: 1 held, 1 observed, 1 skipped."),
        ("MUST skipped", False, 2, "No verdict: nothing could be checked (1 skipped)."),
        ("MUST skipped, SHOULD passed", False, 2,
         "No verdict: nothing could be checked (1 skipped)."),
        ("MUST observed", False, 0, "No MUST demand failed: 0 held, 1 observed, 0 skipped."),
        ("SHOULD inconclusive, SHOULD inconclusive", False, 2,
         "No verdict: nothing could be checked (2 inconclusive)."),
        ("SHOULD inconclusive, SHOULD passed", True, 2,
         "No verdict. Inconclusive MUST and SHOULD checks: 1."),
        ("SHOULD failed, SHOULD skipped", False, 0,
         "No MUST demand was asked for (1 failed, 1 skipped)."),
        ("SHOULD skipped", False, 2, "No verdict: nothing could be checked (1 skipped)."),
        ("", False, 2, "No verdict: nothing could be checked ()."),
    ],
)  # fmt: skip
def test_the_verdict_and_the_exit_code(found: str, strict: bool, code: int, why: str) -> None:
    each = [told.split() for told in found.split(", ") if told]
    results = [result(f"spec/7/{n}", outcome, level) for n, (level, outcome) in enumerate(each)]
    assert report.verdict(results, strict)[1] == why
    assert why in as_html(ABOUT, results, strict=strict)
    assert conclude(results, strict) == code
