"""What the engine does for any subject: its command line, controls, a baseline, losses, Markdown."""

import json
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.suite.deployment import conformance, refused
from tests.suite.test_reports import NASTY, STARTED, URL, result
from x402sim.commands.conformance import judge_command
from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground, ours
from x402sim.spec.needs import Need
from x402sim.suite import published
from x402sim.suite.baseline import Baseline, Reasons, known, load, mended
from x402sim.suite.case import of_id
from x402sim.suite.command import (
    FOUND_SOMETHING,
    HELD,
    NO_VERDICT,
    ReportOptions,
    conclude,
    judge_and_report,
)
from x402sim.suite.engine import Plan
from x402sim.suite.options import again, flag, flags_of, read
from x402sim.suite.printing import show_results
from x402sim.suite.report import conformance as report
from x402sim.suite.report.conformance import as_html as html, as_markdown as markdown
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.suite.report.results import CaseResult, Loss, Outcome, Result, by_dialect
from x402sim.suite.subject import SUBJECTS, Subject, subject
from x402sim.suite.verdict import NotReady
from x402sim.text.program import program

# --- a subject of its own -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OvenOptions:
    heat: int = flag("How hot.", kind=int, metavar="N", default=200, unset=200)
    password: str | None = flag("A secret.", shows=lambda _: "<hidden>")
    shown: str = "an oven"
    rerun: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bread:
    """A case of the subject."""

    id: str
    ends: CaseResult
    level: Level = "MUST"
    needs: tuple[Need, ...] = ()
    decides: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    is_control: bool = False
    dialect: str = ""

    @property
    def ground(self) -> Ground:
        return ours(because="bread")

    @property
    def title(self) -> str:
        return self.ends.title

    @property
    def name(self) -> str:
        return f"{self.id}:{self.title}"

    @property
    def section(self) -> str:
        return self.id.split("/")[1]


def ends(outcome: str, **more: Any) -> CaseResult:
    return CaseResult(title="It bakes.", outcome=Outcome(outcome), **more)


OVEN = report.About("oven", URL, STARTED, {})
LOST = Loss(base=20_000, why="two breads for one")
FAILS = Bread(id="kit/bread/soft", ends=ends("failed", expected="1", actual="2", loss=LOST))
HOLDS = Bread(id="kit/bread/crust", ends=ends("passed"))


@dataclass(frozen=True)
class Baking:
    cases: Sequence[Bread]
    options: OvenOptions
    plan: Plan

    async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        for case in self.cases:
            on_begin(case.id)
            yield of_id([case], {case: case.ends}, self.options.rerun)

    def done(self) -> str:
        return "all baked"

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        return [], []


def oven(*cases: Bread, problem: str = "") -> Subject[OvenOptions]:
    @asynccontextmanager
    async def begin(
        options: OvenOptions, chosen: Sequence[Bread], tell: Callable[[str], None]
    ) -> AsyncIterator[Baking]:
        if problem:
            raise NotReady(problem)
        yield Baking(chosen, options, Plan(cases=chosen, lines=(f"Plan: {len(chosen)} breads",)))

    def choose(words: Sequence[str], values: Mapping[str, Any]) -> OvenOptions:
        if not words:
            raise ValueError("no oven to judge: give its name")
        return OvenOptions(
            **read(OvenOptions, values),
            rerun=again(["oven"], OvenOptions, values, behind=words),
        )

    return Subject(
        name="oven", words="NAME", words_help="Its name.", options=OvenOptions, read=choose,
        cases=lambda: cases, documents=("kit",), sections={"bread": "What is baked"}, begin=begin,
    )  # fmt: skip


def judged(tmp_path: Path, *cases: Bread, **asked: Any) -> tuple[int, dict[str, Any]]:
    """Judge the subject; return the exit code and the JSON report."""
    file = tmp_path / "report.json"
    subject = oven(*cases)
    options = subject.read(["a", "--b c"], {"heat": 300, "password": "x"})
    code = judge_and_report(subject, options, cases, ReportOptions(files=[file], **asked))
    return code, json.loads(file.read_text())


def test_any_subject_is_judged_planned_and_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, told = judged(tmp_path, FAILS, HOLDS)
    said = capfd.readouterr()
    assert (code, told["subject"], told["target"]) == (FOUND_SOMETHING, "oven", "an oven")
    assert "Plan: 2 breads" in said.err
    assert "all baked in" in said.err
    assert "0.02 tokens: two breads for one" in " ".join(said.out.split())
    failed = told["results"][0]
    assert failed["rerun"] == (
        f"{shlex.join(program())} conformance oven --heat 300 --password '<hidden>' "
        "--only kit/bread/soft -- a '--b c'"
    )
    assert failed["loss"] == failed["cases"][0]["loss"] == {
        "base": 20_000, "decimals": 6, "symbol": "tokens", "why": "two breads for one",
    }  # fmt: skip
    assert "loss" not in told["results"][1]


def test_a_failure_is_told_when_it_is_certain_and_progress_counts_what_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An id that begins out of order, or turns out not to apply, moves nothing back."""
    absent = Bread(id="kit/crumb/none", ends=ends("skipped", reason="it has none"))
    last = Bread(id="kit/salt/some", ends=ends("passed"))
    cases = [absent, FAILS, HOLDS, last]
    assert judge_and_report(oven(*cases), OvenOptions(), cases, ReportOptions()) == FOUND_SOMETHING
    said = capfd.readouterr().err.splitlines()
    steps = [line for line in said if " certain  section " in line or line.startswith("failed ")]
    assert steps == [
        "0 of 4 certain  section crumb",
        "0 of 3 certain  section bread",
        f"failed {FAILS.id} MUST: not so: {FAILS.title}",
        "2 of 3 certain  section salt",
    ]


def test_what_cannot_be_judged_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    subject = oven(HOLDS, problem="the oven is cold")
    assert judge_and_report(subject, OvenOptions(), [HOLDS], ReportOptions()) == NO_VERDICT
    assert capfd.readouterr().err.strip() == "x402sim: the oven is cold"


def test_what_was_certain_before_a_subject_was_lost_is_reported(tmp_path: Path) -> None:
    class Lost(Baking):
        async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
            async for each in Baking.run(self, on_begin):
                yield each
                raise NotReady("the oven is gone")

    @asynccontextmanager
    async def begin(options: OvenOptions, chosen: Sequence[Bread], _: object) -> Any:
        yield Lost(chosen, options, Plan(cases=chosen))

    file, cases = tmp_path / "report.json", [FAILS, HOLDS]
    subject = replace(oven(*cases), begin=begin)
    assert (
        judge_and_report(subject, OvenOptions(), cases, ReportOptions(files=[file]))
        == FOUND_SOMETHING
    )
    first, second = json.loads(file.read_text())["results"]
    assert (first["outcome"], second["outcome"]) == ("failed", "inconclusive")
    assert second["reason"] == "the oven is gone"


def test_the_flags_of_options_are_those_of_a_command() -> None:
    import typer
    from typer.testing import CliRunner

    app = typer.Typer()
    app.command()(judge_command(oven(HOLDS)))
    help_of = CliRunner().invoke(app, ["--help"]).output
    assert all(flag.option in help_of for flag in flags_of(OvenOptions))
    done = CliRunner().invoke(app, ["--heat", "7", "--list", "--", "a"])
    assert "kit/bread/crust" in done.output
    assert CliRunner().invoke(app, ["--heat", "7", "--only", "bread", "a", "-b"]).exit_code == 2
    assert CliRunner().invoke(app, ["--heat", "7", "--", "a", "-b"]).exit_code == HELD


# --- which subject ------------------------------------------------------------------------


def test_a_subject_is_named_first_and_a_service_need_not_be() -> None:
    by_name, by_default = conformance("service", "--list"), conformance("--list")
    assert by_name.stdout == by_default.stdout
    assert "--facilitator http" in refused("server", "http://127.0.0.1:9")
    assert "one URL is judged at a time" in refused("http://a", "http://b")
    assert "conformance payer -- COMMAND" in refused("--", "node", "agent.js")


# --- controls -----------------------------------------------------------------------------


def test_a_control_fails_as_any_other_demand(tmp_path: Path) -> None:
    control = Bread(id="kit/bread/warm", ends=ends("failed", expected="1", actual="0"),
                    is_control=True)  # fmt: skip
    for cases in ([control, HOLDS], [control, HOLDS, FAILS]):
        code, told = judged(tmp_path, *cases)
        assert code == FOUND_SOMETHING
        assert told["results"][0]["is_control"] is True
        results = [of_id([case], {case: case.ends}, "") for case in cases]
        outcome, why = report.verdict(results)
        assert outcome is Outcome.FAILED
        assert why == f"Failed MUST demands: {len(cases) - 1}."


# --- a baseline ---------------------------------------------------------------------------


def kept(tmp_path: Path, *results: Result) -> Baseline:
    file = tmp_path / "before.json"
    file.write_text(json.dumps(report.as_json(OVEN, results)))
    return load(file, "oven")


def with_case(title: str, check_id: str = "kit/1/a") -> Result:
    case = CaseResult(title=title, outcome=Outcome.FAILED, expected="1", actual="2")
    return result(check_id, "failed", title=title, expected="1", actual="2", cases=(case,))


def test_what_a_baseline_has_found_does_not_count_and_what_is_new_does(tmp_path: Path) -> None:
    before = kept(tmp_path, with_case(NASTY), result("kit/1/b", "inconclusive", reason="why"))
    again = [with_case(NASTY), result("kit/1/b", "inconclusive", reason="other")]
    found = known(again, before)
    assert [each.is_known for each in found] == [True, True]
    assert conclude(found, strict=True) == conclude([*found, result("kit/1/c", "passed")], True)
    assert conclude([*found, result("kit/1/c", "passed")], True) == HELD
    assert "Known from the baseline: 2" in report.verdict(found)[1]
    told = report.verdict(known([with_case(NASTY)], before))[1]
    assert told.startswith("No new MUST demand failed: 0 held"), "it was asked for, and is known"
    for new in (with_case("another"), with_case(NASTY, "kit/1/c"), result("kit/1/b", "failed")):
        assert known([new], before)[0].is_known is False
        assert conclude(known([*again, new], before), True) == FOUND_SOMETHING


def in_dialects(**outcomes: str) -> Result:
    """Return the result of one demand in several dialects; a failure costs what `LOST` is."""
    cases = [
        Bread(
            id="kit/bread/soft",
            dialect=dialect,
            ends=ends(
                outcome,
                dialect=dialect,
                actual=f"{outcome} in {dialect}",
                expected="1",
                exchanges=(Exchange(f"asked in {dialect}"),),
                loss=LOST if outcome == "failed" else None,
            ),
        )
        for dialect, outcome in outcomes.items()
    ]
    return of_id(cases, {case: case.ends for case in cases}, "judge")


def test_a_demand_is_one_id_whose_result_has_its_dialects(tmp_path: Path) -> None:
    failed = in_dialects(v1="failed", v2="failed", mcp="passed")
    assert (failed.outcome, report.headline(failed)) == (Outcome.FAILED, "failed in v1, v2")
    assert report.total_loss([failed]) == ["0.04 tokens in 2 dialects"], (
        "a dialect is a way to lose it"
    )
    assert {name: str(each.outcome) for name, each in by_dialect(failed).items()} == {
        "v1": "failed",
        "v2": "failed",
        "mcp": "passed",
    }
    about = replace(OVEN, unspoken={"v3": "it offers none"})
    told = report.as_json(about, [failed])
    assert [each["dialect"] for each in told["results"][0]["cases"]] == ["v1", "v2", "mcp"]
    assert told["unspoken"] == {"v3": "it offers none"}
    text = report.explained(failed)
    assert "It bakes. [v1]" in text
    assert "failed in v2" in text
    assert ("asked in v1" in text, "asked in v2" in text) == (True, False)
    for suffix in (".html", ".md"):
        assert "it offers none" in report.written(suffix, about, [failed])
    observed = in_dialects(v1="observed", v2="observed")
    assert observed.actual == "v1: observed in v1; v2: observed in v2"
    before = kept(tmp_path, in_dialects(v1="failed", v2="passed"))
    assert known([in_dialects(v1="failed", v2="passed")], before)[0].is_known
    assert not known([failed], before)[0].is_known, "v2 is new"


def test_another_case_of_an_id_and_dialect_is_new(tmp_path: Path) -> None:
    """A payment without `to` is another failure than one without `from`."""

    def lacks(**outcomes: str) -> Result:
        cases = tuple(
            CaseResult(title=f"without {name}", dialect="v2", outcome=Outcome(outcome))
            for name, outcome in outcomes.items()
        )
        return result("kit/1/a", "failed", cases=cases)

    before = kept(tmp_path, lacks(to="failed", value="passed"))
    assert known([lacks(to="failed", value="passed")], before)[0].is_known
    assert not known([lacks(to="passed", value="failed")], before)[0].is_known


def test_what_is_mended_since_a_baseline_is_named(tmp_path: Path) -> None:
    before = kept(tmp_path, with_case("t"), with_case("t", "kit/1/b"))
    assert mended([result("kit/1/a", "passed"), with_case("t", "kit/1/b")], before) == ["kit/1/a"]


def test_a_known_failure_is_told_and_green_in_every_report(tmp_path: Path) -> None:
    code, told = judged(tmp_path, FAILS, HOLDS)
    before = load(tmp_path / "report.json", "oven")
    code, told = judged(tmp_path, FAILS, HOLDS, baseline=before)
    assert (code, told["results"][0]["is_known"]) == (HELD, True)
    found = known([of_id([FAILS], {FAILS: FAILS.ends}, "")], before)
    assert b"<failure" not in report.as_junit(OVEN, found)
    assert "in the baseline report, too" in report.as_junit(OVEN, found).decode()
    assert "known" in html(OVEN, found)
    assert "in the baseline report, too" in markdown(OVEN, found)


def test_a_reason_makes_a_failure_known_and_a_stale_one_fails_the_run(tmp_path: Path) -> None:
    reasons = {FAILS.id: "repaired in the next release"}
    code, told = judged(tmp_path, FAILS, HOLDS, baseline=Reasons(reasons))
    found = told["results"][0]
    assert (code, found["is_known"], found["known_because"]) == (HELD, True, reasons[FAILS.id])
    stale = Reasons({**reasons, HOLDS.id: "no more"})
    assert judged(tmp_path, FAILS, HOLDS, baseline=stale)[0] == FOUND_SOMETHING


def test_failures_of_a_published_version_are_named_and_can_be_accepted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "x402[fastapi] 2.25.0"
    (version,) = (each for each in published.versions("server") if each.name == name)

    def server(check_id: str, dialect: str, outcome: str = "failed") -> Result:
        case = CaseResult(title="any words", dialect=dialect, outcome=Outcome(outcome))
        return result(check_id, outcome, cases=(case,))

    failed = [server(*each) for each in sorted(version.failed)]
    closest = published.closest(failed, "server")
    assert closest is not None
    assert closest.failed >= version.failed, "the first of those that fail as it does"
    found = published.marked([*failed, server("server/new/one", "v2")], version)
    assert [each.known_of for each in found] == [version.name] * len(failed) + [""]
    count = len(failed)
    assert f"Known of {version.name}: {count} of {count + 1}." in report.verdict(found)[1]
    assert f"known of: {version.name}" in report.explained(found[0])
    show_results(subject("server"), found, strict=False)
    assert f"Known of {version.name}: {count} of" in capsys.readouterr().out, "its brackets, too"
    held = server(*sorted(version.failed)[0], outcome="passed")
    assert published.mended([held], version) == [held.id]
    assert published.closest([server("server/new/one", "v2")], "server") is None
    assert published.closest([held], "server") is None
    assert {each for each in SUBJECTS if published.versions(each)} == {*SUBJECTS} - {
        "service",
        "vectors",
    }


def test_of_several_versions_that_fail_alike_the_judged_implementations_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = frozenset({("server/order/refused", "v2")})
    names = ("other 4.0.0", "other 3.0.0", "mine 1.1.0", "mine 1.0.0")
    known = [published.Version(each, ids) for each in names]
    monkeypatch.setattr(published, "versions", lambda subject: known)
    case = CaseResult(title="any words", dialect="v2", outcome=Outcome.FAILED)
    failed = [result("server/order/refused", "failed", cases=(case,))]

    def closest(own: str = "") -> str:
        found = published.closest(failed, "server", own)
        assert found is not None
        assert found.failed == ids
        return found.name

    assert closest("mine") == "mine 1.1.0"
    assert closest() == closest("unknown") == "other 4.0.0 and 3 other versions"
    del known[1:]
    assert closest() == "other 4.0.0"


def test_known_failures_of_a_subject_without_published_versions_are_refused() -> None:
    assert "no published service" in refused("http://127.0.0.1:9", "--baseline", "known")


def test_a_report_counts_what_makes_the_verdict() -> None:
    found = [result("kit/1/a", "failed"), result("kit/1/b", "failed", level="SHOULD")]
    assert report.tally(found) == [(Outcome.FAILED, "2 failed (1 count for the verdict)")]
    assert report.tally(found, strict=True) == [(Outcome.FAILED, "2 failed")]
    assert "2 ids: 2 failed (1 count for the verdict)" in markdown(OVEN, found).replace("\\", "")
    assert 'failures="1"' in report.as_junit(OVEN, found).decode()


def test_a_file_that_is_no_baseline_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text, said in (("{", "it is a JSON report"), ("{}", "results"), (None, "No such file")):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        assert said in refused("http://127.0.0.1:9", "--baseline", str(file))
    kept(tmp_path)
    assert "about a oven, not a service" in refused(
        "http://127.0.0.1:9", "--baseline", str(tmp_path / "before.json")
    )


# --- losses, and Markdown -----------------------------------------------------------------


def test_a_loss_is_in_every_report() -> None:
    results = [of_id([FAILS], {FAILS: FAILS.ends}, "run")]
    said = "0.02 tokens: two breads for one"
    assert said in report.as_junit(OVEN, results).decode()
    assert said in json.dumps(report.as_sarif(OVEN, results))
    assert said in html(OVEN, results)
    assert said in markdown(OVEN, results)
    assert report.total_loss(results * 2) == ["0.04 tokens"]


def test_markdown_is_what_it_should_be_whatever_was_answered() -> None:
    marks = "`` @all [x](http://evil) <b> ** </details> ```\n# title"
    case = CaseResult(title=marks, outcome=Outcome.FAILED, expected=marks, actual=NASTY + marks,
                      exchanges=(Exchange(NASTY, Message("POST /", body=marks)),))  # fmt: skip
    failed = result("kit/1/a", "failed", title=marks, expected=marks, actual=marks, cases=(case,),
                    rerun=f"run {marks}")  # fmt: skip
    unclear = result("kit/1/b", "inconclusive", reason=marks)
    text = markdown(
        replace(OVEN, target=f"{URL}/{marks}"), [failed, unclear, result("kit/1/c", "passed")]
    )
    tokens = [
        each for token in MarkdownIt().parse(text) for each in (token, *(token.children or []))
    ]
    kinds = {each.type for each in tokens}
    assert not kinds & {"link_open", "image"}, "nothing of the answer is markup"
    assert [each.tag for each in tokens if each.type == "heading_open"] == ["h2"]
    blocks = [each.content for each in tokens if each.type in ("html_block", "html_inline")]
    allowed = ("<details>", "</details>", "<summary>", "</summary>")
    assert all(any(mark in block for mark in allowed) and "<b>" not in block for block in blocks)
    assert sum("<details>" in each for each in blocks) == 2
