"""Annotations of GitHub Actions: what a runner reads is what failed, and nothing that anybody answered."""

from pathlib import Path

from tests.suite.duo import conformance, refused
from tests.suite.hostile import NASTY, assert_harmless
from tests.suite.runner import Command, commands
from x402sim.report import conformance as report
from x402sim.report.conformance_reports import About, unready, written
from x402sim.report.results import Loss, Outcome, Result
from x402sim.suite.subjects import SUBJECTS, subject as subject_of

ROOT = Path(__file__).parents[2]
URL = "http://service.example:4020"
ATTACK = f"{NASTY} 50%0A::error::pwned%3A, file=x,line=1::pwned"


def result(check_id: str, outcome: str, level: str = "MUST", **more: str | bool | Loss) -> Result:
    fields = {"title": "t", "expected": "1", "actual": "2", "reason": "why", **more}
    section = check_id.split("/")[1]
    return Result(id=check_id, level=level, section=section, outcome=Outcome(outcome), **fields)


def annotations(*results: Result, subject: str = "service", strict: bool = False) -> list[Command]:
    about = About(subject, URL, "2026-01-02T03:04:05+00:00", {})
    text = written("annotations", about, results, strict=strict)
    assert_harmless(text.replace("::error ", "").replace("::warning ", ""))
    found = commands(text)
    assert len(found) == len(text.splitlines()), "every line is a command"
    return found


def test_a_must_is_an_error_and_a_should_a_warning_with_how_to_repair_it() -> None:
    must = result("spec/5/nonce-once", "failed", loss=Loss(base=20_000), rerun="again --only x")
    should = result("kit/7/malformed-body", "failed", "SHOULD")
    held = result("spec/2.2/body", "passed")
    known = result("spec/2.3/window", "failed", is_known=True)
    skipped = result("spec/3/expiry-refund", "skipped")
    error, warning = annotations(held, should, must, known, skipped)
    assert (error.name, warning.name) == ("error", "warning")
    assert error.properties["title"] == "MUST failed: spec/5/nonce-once"
    assert "expected 1, got 2\nloss: 0.02 tokens\nto repair: " in error.message
    assert error.message.endswith("run it again: again --only x")
    assert {each.name for each in annotations(should, must, strict=True)} == {"error"}


def test_what_is_inconclusive_is_an_error_where_it_counts() -> None:
    must = result("spec/5/window", "inconclusive")
    should = result("kit/7/malformed-body", "inconclusive", "SHOULD")
    (error,) = annotations(must, should)
    assert (error.name, error.message) == ("error", "not judged: why")


def test_that_nothing_was_judged_is_an_error() -> None:
    (error,) = annotations(result("spec/5/window", "skipped"))
    assert error.message == "No verdict: nothing could be checked (1 skipped)."
    assert error.properties == {"title": "x402sim conformance service: no verdict"}


def test_the_first_of_each_cause_comes_before_what_follows_from_it() -> None:
    """GitHub shows ten errors of a step."""
    names = ("spec/8/a", "spec/8/b", "spec/8/c")
    same = [result(name, "inconclusive", reason="it stopped") for name in names]
    other = result("spec/9/a", "inconclusive", reason="no payment")
    titles = [each.properties["title"].split(": ")[1] for each in annotations(*same, other)]
    assert titles == ["spec/8/a", "spec/9/a", "spec/8/b", "spec/8/c"]


def test_nothing_that_a_subject_answers_becomes_a_command_or_a_property() -> None:
    hostile = result("spec/5/window", "failed", title=ATTACK, actual=ATTACK, rerun=ATTACK)
    (found,) = annotations(hostile)
    assert found.name == "error"
    assert found.properties.keys() == {"file", "line", "title"}
    assert "50%0A" in found.message, "what looks escaped is shown as it was"
    assert "pwned%3A, file=x" in found.message
    (unclear,) = annotations(result("spec/5/window", "inconclusive", reason=ATTACK))
    assert unclear.properties.keys() == {"file", "line", "title"}
    line = unready("service", ATTACK)
    assert len(commands(line)) == line.count("\n") == 1
    assert_harmless(line.replace("::error ", ""))


def test_each_subject_has_a_page_where_its_ids_or_sections_are() -> None:
    for name in SUBJECTS:
        cases = subject_of(name).cases()
        page = ROOT / report.demands_page(name)
        lines = page.read_text("utf-8").splitlines()
        for each in {case.section: case for case in cases}.values():
            (found,) = annotations(result(each.id, "failed"), subject=name)
            assert found.properties["file"] == str(page.relative_to(ROOT))
            heading = lines[int(found.properties["line"]) - 1]
            assert heading.startswith((f"### {each.id}", f"## {each.section}:")), each.id


def test_a_subject_that_cannot_be_judged_has_one_error(tmp_path: Path) -> None:
    file = tmp_path / "annotations"
    nobody = "http://127.0.0.1:9"
    said = refused(nobody, "--annotations", str(file))
    (error,) = commands(file.read_text())
    assert error.properties == {"title": "x402sim conformance service: no verdict"}
    assert said == f"x402sim: {error.message}\n"
    done = conformance("payer", "--annotations", "-", "--", "false")
    assert done.returncode == 2
    (error,) = commands(done.stdout)
    assert "buys nothing at an honest shop" in error.message
