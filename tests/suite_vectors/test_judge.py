"""The judge of adapters: right answers pass, wrong answers fail, hostile adapters end soon."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.cli.runner import assert_misuse, run
from tests.house import blocks
from tests.interop.table import THOROUGH
from tests.suite_vectors.confirm import ADAPTERS, IMPLEMENTATIONS
from tests.suite_vectors.page import GUIDE
from x402sim.judging import Verdict, judge
from x402sim.spec.ground import folder
from x402sim.suite.report.results import Outcome
from x402sim.suite.vectors.vector import OPERATIONS

KNOWING = [
    sys.executable,
    "-S",
    str(Path(__file__).with_name("knowing.py")),
    str(folder("vectors")),
]
ONE = "kit/amounts/amount-hex"
LOOP = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "capabilities":
        print(json.dumps({"id": asked["id"], "result": {"operations": ["amount"]}}), flush=True)
        continue
    %s
"""
RIGHT = 'print(json.dumps({"id": asked["id"], "error": {"code": "invalid"}}), flush=True)'


def adapter(program: str) -> list[str]:
    return [sys.executable, "-S", "-c", program]


def judged(words: list[str], **flags: Any) -> Verdict:
    return judge("vectors", words, **flags)


def outcomes(verdict: Verdict) -> dict[Outcome, int]:
    found: dict[Outcome, int] = {}
    for each in verdict.results:
        found[each.outcome] = found.get(each.outcome, 0) + 1
    return found


def test_who_knows_the_answers_passes() -> None:
    verdict = judged(KNOWING)
    assert verdict.outcome is Outcome.PASSED
    assert outcomes(verdict).keys() == {Outcome.PASSED, Outcome.OBSERVED}
    assert outcomes(verdict)[Outcome.PASSED] > 900


@pytest.mark.parametrize("operation", OPERATIONS)
def test_who_answers_an_operation_wrongly_fails_in_all_of_it(operation: str) -> None:
    """A control of the judge: no vector with an expected answer takes another."""
    verdict = judged([*KNOWING, operation], operations=operation)
    assert verdict.outcome is Outcome.FAILED
    found = outcomes(verdict)
    words = sum(each.id.endswith("-word") for each in verdict.results)
    assert found.get(Outcome.PASSED, 0) <= words * (operation == "verify"), found


HOSTILE = {
    "it crashes": ("sys.stderr.write('no such wallet'); os._exit(3)", "exit code 3; it wrote: no such wallet"),
    "it is killed": ("os.kill(os.getpid(), 9)", "exit code -9"),
    "it hangs": ("time.sleep(60)", "it wrote no line within 0.5 s"),
    "it writes garbage": ("print('hello', flush=True)", "its line is no answer"),
    "it writes no object": ("print('[]', flush=True)", "its line is no answer"),
    "it writes another id": ("print('{\"id\": -5, \"result\": {}}', flush=True)", "or a wrong id (id -5, expected 2)"),
    "it writes result and error": ('print(\'{"id": %d, "result": {}, "error": {"code": "invalid"}}\' % asked["id"], flush=True)', "has not one of result and error"),
    "it writes neither": ("print('{\"id\": %d}' % asked['id'], flush=True)", "has not one of result and error"),
    "it nests deeply": ("print('[' * 100000, flush=True)", "its line is no answer"),
    "it writes an endless line": ("[sys.stdout.write('x' * 65536) for _ in iter(int, 1)]", "longer than 4 MiB"),
    "it writes an endless log": ("[sys.stderr.write('x' * 65536) for _ in iter(int, 1)]", "it wrote no line within 0.5 s"),
    "two lines": (f"{RIGHT}; {RIGHT}", "more than one line for one request"),
    "a blank line": (f"print(flush=True); {RIGHT}", "its line is no answer"),
}  # fmt: skip


@pytest.mark.parametrize("how", HOSTILE)
def test_a_broken_adapter_is_told_in_plain_words(how: str) -> None:
    act, says = HOSTILE[how]
    verdict = judged(adapter(LOOP % act), only="vectors/amounts/amount-words", patience=0.5)
    (result,) = verdict.results
    assert result.outcome is Outcome.FAILED, result
    assert says in (result.actual or ""), result.actual


def test_two_lines_are_the_fault_of_their_own_vector() -> None:
    """The adapter is started again, and the next vectors get a verdict."""
    act = f"{RIGHT}\n    if asked['input']['text'] == 'words': {RIGHT}".replace(
        "'words'", "'ten thousand'"
    )
    verdict = judged(adapter(LOOP % act), only="vectors/amounts", operations="amount", patience=5)
    failed = {each.id for each in verdict.results if "more than one line" in (each.actual or "")}
    assert failed == {"vectors/amounts/amount-words"}
    right = [each for each in verdict.results if each.outcome is Outcome.PASSED]
    assert len(right) == 6, "what expects a refusal, but for the one"


def test_who_breaks_each_answer_is_left_alone_soon() -> None:
    verdict = judged(adapter(LOOP % "os._exit(1)"), operations="amount")
    found = outcomes(verdict)
    assert verdict.outcome is Outcome.FAILED
    assert found[Outcome.FAILED] == 5
    stopped = [each for each in verdict.results if each.outcome is Outcome.INCONCLUSIVE]
    assert "broke 5 answers, 5 in a row" in stopped[0].reason


def test_what_is_not_claimed_or_unsupported_is_skipped() -> None:
    act = 'print(json.dumps({"id": asked["id"], "error": {"code": "unsupported"}}), flush=True)'
    verdict = judged(adapter(LOOP % act), only="amounts")
    assert outcomes(verdict).keys() == {Outcome.SKIPPED}
    assert verdict.outcome is Outcome.INCONCLUSIVE, "nothing could be checked"


@pytest.mark.parametrize(
    ("program", "says"),
    {
        "raise SystemExit(4)": "does not answer capabilities: it ended, exit code 4",
        'print(\'{"id": 1, "result": {}}\')': "capabilities are wrong",
        'print(\'{"id": 1, "result": {"operations": []}}\')': "claims no operation",
        'print(\'{"id": 1, "result": {"operations": ["fly"]}}\')': "claims fly; there are decode",
    }.items(),
)
def test_who_has_no_capabilities_is_not_judged(program: str, says: str) -> None:
    done = run("conformance", "vectors", "--", *adapter(program))
    assert done.exit_code == 2
    assert says in " ".join(done.output.split()), done.output


def test_misuse() -> None:
    assert_misuse(run("conformance", "vectors"), "give the command of an adapter")
    assert_misuse(run("conformance", "vectors", "--operations", "fly", "--", "true"), "no operation fly")  # fmt: skip


def test_the_reports_and_the_exit_code_are_those_of_every_judge(tmp_path: Path) -> None:
    words = [*KNOWING, "amount"]
    files = [
        word for each in ("json", "xml", "html") for word in ("--report", tmp_path / f"r.{each}")
    ]
    done = run("conformance", "vectors", "--only", ONE, "--strict", *files, "--", *words)
    assert done.exit_code == 1, done.output
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))
    (found,) = report["results"]
    assert (report["subject"], found["id"], found["outcome"]) == ("vectors", ONE, "failed")
    assert '"text":"0x2710"' in found["exchanges"][0]["request"]["line"]
    assert "--only" in found["rerun"]
    assert all((tmp_path / each).stat().st_size for each in ("r.xml", "r.html"))
    before = run("conformance", "vectors", "--only", ONE, "--strict", "--baseline", tmp_path / "r.json", "--", *words)  # fmt: skip
    assert before.exit_code == 0, before.output


def test_the_adapter_of_the_guide_runs_and_fails_as_shown(tmp_path: Path) -> None:
    guide = GUIDE.read_text("utf-8")
    (program,), (shown,) = blocks(guide, "js"), blocks(guide, "text")
    (tmp_path / "adapter.mjs").write_text(program)
    done = run("conformance", "vectors", "--", npm.node(), tmp_path / "adapter.mjs")
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    for line in shown.strip().splitlines():
        assert line.rstrip() in printed, line
    assert printed[0] == shown.splitlines()[0]
    assert done.exit_code == 1


@THOROUGH
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_published_implementation_fails_what_the_page_says(name: str, tmp_path: Path) -> None:
    verdict = judged(IMPLEMENTATIONS[name].command(tmp_path), patience=60)
    must = {each.id for each in verdict.results if each.outcome is Outcome.FAILED and each.level == "MUST"}  # fmt: skip
    assert bool(must) is (name == "python")
    assert Outcome.INCONCLUSIVE not in outcomes(verdict)


@THOROUGH
@pytest.mark.skipif(
    shutil.which("go") is None and "CI" not in os.environ,
    reason="Go is not installed: apt-get install golang-go",
)
def test_an_implementation_in_go_by_hand_passes(tmp_path: Path) -> None:
    built = tmp_path / "plain"
    subprocess.run(["go", "build", "-o", built, ADAPTERS / "plain.go"], check=True, timeout=120)
    verdict = judged([str(built)])
    assert verdict.outcome is Outcome.PASSED
    assert outcomes(verdict)[Outcome.PASSED] > 120
