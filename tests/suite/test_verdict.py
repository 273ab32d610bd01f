"""`x402sim.judging.judge`: a verdict as an object, with its frame, its HTML and its plot, for any subject."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.suite_payer.payer import Payer
from x402sim import LocalServer
from x402sim.judging import NotReady, Verdict, judge
from x402sim.suite.payer.play import Task
from x402sim.suite.report.conformance import About
from x402sim.suite.report.results import CaseResult, Loss, Outcome, Result

CELL = """
from tests.suite.test_verdict import forgetful
from x402sim.judging import judge
verdict = judge("payer", forgetful, dialects="v2", only=["payer/control", "payer/lost/asked-again"])
verdict
"""


def forgetful(task: Task) -> str:
    return Payer(frozenset({"signs again"}))(task)


def test_a_notebook_shows_what_came_of_a_payer_and_what_it_cost() -> None:
    """In a cell, where a loop runs already."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()

    async def notebook() -> Any:
        return await shell.run_cell_async(CELL, transformed_cell=shell.transform_cell(CELL))

    ran = asyncio.run(notebook())
    ran.raise_error()
    verdict = ran.result
    shown, _ = shell.display_formatter.format(verdict)
    assert "it signs another authorization while the first can still be used" in shown["text/html"]
    assert "0.01 USDC" in shown["text/html"]
    assert "write the signed payment down" in shown["text/html"]
    assert verdict.outcome is Outcome.FAILED
    assert verdict.losses == ["0.01 USDC"]
    assert [each.id for each in verdict.failures] == ["payer/lost/asked-again"]
    row = verdict.frame.set_index("id").loc["payer/lost/asked-again"]
    assert (row["outcome"], row["loss"], row["token"], row["counts"]) == (
        "failed",
        0.01,
        "USDC",
        True,
    )
    assert row["rerun"] == "judge('payer', forgetful, only='payer/lost/asked-again', dialects='v2')"
    bars = {patch.get_gid() for patch in verdict.plot().patches}
    assert {"failed lost", "passed control"} <= bars
    assert not any("skipped" in str(each) for each in bars), "flows that were left out have no bar"


def test_the_same_call_judges_a_service() -> None:
    told: list[str] = []
    with LocalServer() as server:
        verdict = judge("service", server.url, only="2.1", tell=told.append)
    assert verdict.outcome is Outcome.PASSED, verdict
    assert told
    assert set(verdict.frame["section"]) == {"2.1"}
    assert (verdict.frame["outcome"] == "passed").any()


def test_the_same_call_judges_a_facilitator() -> None:
    with LocalServer(network="base-sepolia", has_service=False) as server:
        verdict = judge(
            "facilitator",
            server.facilitator_url,
            only=["facilitator/body/no-json", "facilitator/supported/fields"],
        )
    assert verdict.outcome is Outcome.PASSED, verdict
    assert set(verdict.frame["section"]) == {"body", "supported"}
    assert "passed body" in {bar.get_gid() for bar in verdict.plot().patches}


def result(number: int, outcome: Outcome, **more: Any) -> Result:
    case = CaseResult(title="a title", outcome=outcome)
    return Result(
        id=f"kit/some/case-{number}", level="SHOULD", section="some", title="<b>a title</b>",
        outcome=outcome, cases=(case,), **more,
    )  # fmt: skip


def verdict(*results: Result, strict: bool = False) -> Verdict:
    return Verdict(about=About("payer", "me <script>", "", {}), results=results, strict=strict)


def test_only_what_counts_is_a_failure_and_markup_is_text() -> None:
    lost = Loss(base=12_345, symbol="USDC")
    results = [result(1, Outcome.FAILED, loss=lost), result(2, Outcome.PASSED)]
    assert verdict(*results).failures == []
    assert [each.loss for each in verdict(*results, strict=True).failures] == [lost]
    assert verdict(*results, strict=True).frame["counts"].all()
    html = verdict(*results)._repr_html_()
    assert "<script>" not in html
    assert "<b>a title" not in html
    assert "failed, does not count some" in {
        bar.get_gid() for bar in verdict(*results).plot().patches
    }


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        ("a.html", "<!doctype"),
        ("a.json", "{"),
        ("a.xml", "<?xml"),
        ("a.sarif", "{"),
        ("a.md", "## "),
    ],
)
def test_a_report_is_written_by_its_name(file: str, begins: str, tmp_path: Path) -> None:
    written = verdict(result(1, Outcome.PASSED)).save(tmp_path / file)
    assert written.read_text().startswith(begins)


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    for wrong, said in (
        (lambda: judge("payers"), "did you mean 'payer'"),
        (lambda: judge("payer", "true", dialect="v2"), "did you mean 'dialects'"),
        (lambda: judge("payer", "true", only="nothing"), "nothing"),
        (lambda: judge("server", "http://127.0.0.1:9"), "--facilitator http"),
        (lambda: verdict().save(tmp_path / "report.pdf"), "unknown report"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()
    with pytest.raises(NotReady, match="cannot be started"):
        judge("payer", ["no-such-program"], dialects="v2", only="payer/control/buys")
