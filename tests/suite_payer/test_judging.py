"""The judge as its users meet it: a command, its environment, a fixture, and what it refuses."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.suite_payer.payer import Payer
from tests.suite_payer.test_mutants import judged
from x402sim.cli import app
from x402sim.judging import judge
from x402sim.suite import subject
from x402sim.suite.case import unfinished
from x402sim.suite.dialect import OF_PAYERS
from x402sim.suite.payer import play
from x402sim.suite.payer.play import Bound, Function, Task
from x402sim.suite.payer.shop import OTHER_TOKEN
from x402sim.suite.payer.subject import ONE_THING, PAYER, PayerJudge, all_cases, seconds_of
from x402sim.suite.report.results import DemandKey, Outcome
from x402sim.text.environment import passing

ROOT = Path(__file__).parents[2]
pytest_plugins = ["pytester"]
BUYS = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
import dataclasses, json
from tests.suite_payer.payer import Payer
told = json.load(open(os.environ["X402SIM_TASK_FILE"]))
task = dataclasses.make_dataclass("Task", told)(**told)
assert os.environ["X402SIM_URL"] == task.url and "MY_RPC_URL" not in os.environ
assert os.environ["X402SIM_FLOW"] == task.flow
{more}
print(Payer(frozenset({defects!r}))(task))
"""
FEW = "payer/control,payer/lost/asked-again,payer/sign/price-over-cap"


def command(folder: Path, *defects: str, more: str = "") -> list[str]:
    file = folder / "buy.py"
    root = str(ROOT)
    file.write_text(BUYS.format(root=root, defects=set(defects), more=more))
    return [sys.executable, str(file)]


def run(words: list[str], *options: str, only: str = FEW, flows: str = "v2") -> Any:
    args = ["conformance", "payer", "--dialects", flows, "--only", only, *options, "--", *words]
    return CliRunner().invoke(app, args)


def test_an_honest_command_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RPC_URL", "http://127.0.0.1:1")
    ended = run(command(tmp_path))
    assert ended.exit_code == 0, ended.output
    assert re.search(
        r"a start takes [0-9.]+ s and 0\.[0-9]+ s of CPU", " ".join(ended.output.split())
    )


def test_a_defective_command_fails_and_its_loss_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = command(tmp_path, "signs again")
    ended = run(words, "--report", str(report))
    assert ended.exit_code == 1, ended.output
    told = json.loads(report.read_text())
    failed = [each for each in told["results"] if each["outcome"] == "failed"]
    (cause,) = told["causes"]
    assert cause["cause"] == "it signs another authorization while the first can still be used"
    assert "authorizationState" in cause["repair"]
    assert [each["id"] for each in failed] == ["payer/lost/asked-again"]
    assert failed[0]["loss"]["base"] == 10_000
    assert "payer/lost/asked-again -- " in failed[0]["rerun"]


@pytest.mark.parametrize(("late_s", "outcome"), [(0.2, Outcome.PASSED), (60, Outcome.INCONCLUSIVE)])
def test_a_failure_at_an_answer_that_was_late_is_not_the_payers(
    late_s: float, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It buys twice at the first look, at which an answer takes long: for what is called late."""
    starts: list[Task] = []
    settles = play._Case.settle

    async def slow(case: Any, signed: Any) -> Any:
        await asyncio.sleep(0.3 * (len(starts) == 1))
        return await settles(case, signed)

    def buys(task: Task) -> str:
        starts.append(task)
        bought = Payer()(task)
        return Payer(frozenset({"forgets"}))(task) if len(starts) == 1 else bought

    monkeypatch.setattr(play._Case, "settle", slow)
    monkeypatch.setattr("x402sim.suite.payer.subject.LATE_S", late_s)
    mine = [case for case in all_cases() if case.name == "kit/accept/small-letters [v2]"]
    (result,) = judged(buys, mine).values()
    assert result.outcome is outcome
    assert len(starts) > 1


LIBRARY = frozenset({Bound.PURCHASE, Bound.HOSTS, Bound.TOTAL, Bound.GOODS})


@pytest.mark.parametrize(
    ("defect", "name", "of_library", "said"),
    [
        ("forgets", "payer/lost/refused-for-good [v1]", Outcome.OBSERVED, "a second start"),
        ("signs again", "payer/lost/cut [mcp]", Outcome.FAILED, ""),
        ("pays twice", "payer/control/buys [v2]", Outcome.FAILED, ""),
        ("pays another", "payer/control/buys [v1]", Outcome.FAILED, ""),
        ("sends its key", "payer/control/buys [v2]", Outcome.FAILED, ""),
        ("follows anywhere", "payer/send/redirect-to-port [v2]", Outcome.OBSERVED, "which hosts"),
        (
            "keeps headers on redirects",
            "payer/send/paid-and-redirected-307 [v2]",
            Outcome.OBSERVED,
            "which hosts",
        ),
        (
            "keeps headers on redirects",
            "payer/send/paid-and-redirected-307-along [v2]",
            Outcome.FAILED,
            "",
        ),
        ("signs again", "payer/budget/instalments [v2]", Outcome.OBSERVED, "several payments"),
        ("takes any 200", "kit/lost/error-in-200 [v1]", Outcome.OBSERVED, "the goods look like"),
        ("locks nothing", "kit/budget/started-twice [v2]", Outcome.OBSERVED, "a second start"),
        ("no cap", "payer/sign/price-over-cap [v1]", Outcome.FAILED, ""),
        ("any scheme", "payer/sign/scheme [v2]", Outcome.FAILED, ""),
        ("any scheme", "payer/choose/other-schemes [v1]", Outcome.FAILED, ""),
    ],
)
def test_a_library_is_not_blamed_for_what_only_its_caller_could_know(
    defect: str, name: str, of_library: Outcome, said: str
) -> None:
    """Who signs two payments in one call, or to nobody's offer, fails as any payer does."""
    mine = [case for case in all_cases() if case.name == name]
    payer = Payer(frozenset({defect}))
    (told,) = judged(payer, mine).values()
    (library,) = judged(payer, mine, LIBRARY).values()
    assert (told.outcome, library.outcome) == (Outcome.FAILED, of_library)
    if of_library is Outcome.OBSERVED:
        assert said in (library.actual or "")


def test_a_single_payment_above_the_cap_is_no_matter_of_the_sum() -> None:
    mine = [case for case in all_cases() if case.name == "payer/lost/again-over-cap [v1]"]
    (found,) = judged(Payer(frozenset({"looks before it asks"})), mine).values()
    assert found.evidence is not None
    assert found.evidence.demand == DemandKey.WITHIN_TASK


def test_a_payer_with_a_cap_of_its_own_is_observed_where_the_task_has_another() -> None:
    mine = [case for case in all_cases() if case.name == "payer/sign/price-over-cap [v1]"]
    (found,) = judged(Payer(frozenset({"no cap"})), mine, LIBRARY | {Bound.CAP}).values()
    assert found.outcome is Outcome.OBSERVED
    assert "has its own" in (found.actual or "")


def test_a_payment_in_another_token_is_shown_with_token_and_chain() -> None:
    for defects, name, shown in (
        ({"any asset"}, "payer/sign/asset [v2]", f"of token {OTHER_TOKEN} on chain 84532, nonce"),
        ({"any network"}, "payer/sign/network [v2]", "on chain 8453, nonce"),
        ({"no cap"}, "payer/sign/price-over-cap [v2]", "0.050001 to 0x"),
    ):
        mine = [case for case in all_cases() if case.name == name]
        (found,) = judged(Payer(frozenset(defects)), mine).values()
        lines = " ".join(line for each in found.exchanges for line in each.whole)
        assert shown in lines
        assert ("of token" in lines) == ("cap" not in name)


def test_bounds_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    ended = run(command(tmp_path), "--takes-no", "memory")
    assert ended.exit_code == 2
    assert "bounds are purchase, hosts, total, cap, goods" in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "seconds"),
    [(0.2, 0.0, 6.9), (0.2, 0.2, 14.9), (2.0, 0.2, 69), (0.2, 0.65, 44.2)],
    ids=["at a URL", "a command", "one that waits", "one with many threads"],
)
def test_a_plan_counts_cpu_by_cores_and_waits_by_plays_at_once(
    wall_s: float, cpu_s: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred plays of 1.3 starts, four at once on two cores, and then two starts more."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    case = next(each for each in all_cases() if each.starts > 1 and not each.waits_s)
    judge = PayerJudge(payer=Function(Payer()), jobs=4, start_s=wall_s, start_cpu_s=cpu_s)
    assert seconds_of(judge, [case] * 100) == pytest.approx(seconds, rel=0.01)
    endless = next(each for each in all_cases() if each.waits_s >= judge.patience_s)
    assert seconds_of(judge, [endless]) < 2 * wall_s + 1


def test_a_payer_that_buys_nothing_is_invalid_and_its_report_says_what_it_did(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report.json"
    ended = run([sys.executable, "-c", "pass"], "--report", str(report))
    assert ended.exit_code == 2
    assert "buys nothing at an honest shop" in ended.output
    told = json.loads(report.read_text())["results"]
    (control,) = (each for each in told if each["id"] == "payer/control/buys")
    assert "it requested nothing" in control["reason"]
    assert {"about": "start 1: exit code 0"} in control["exchanges"]


@pytest.mark.parametrize(
    ("defects", "flows", "actual"),
    [
        ("pays twice", None, "transfers: 2"),
        ("tips", None, "0x3333333333333333333333333333333333333333 gets 0.03 USDC"),
        ("overpays", "v1,v2,steps,mcp", "gets 0.011 USDC"),
        ("approves all", None, "0x3333333333333333333333333333333333333333 may take"),
        ("signs for another name", "v1,v2,steps,session,mcp", "its signature fits no domain"),
        ("signs for another name", "v2", "the shop refused the payment: invalid_exact_evm_payload"),
        ("forgets its id", "steps", "it paid, then asked without its id"),
    ],
)
def test_a_control_that_pays_wrongly_is_a_failure(
    defects: str, flows: str | None, actual: str
) -> None:
    found = judge("payer", Payer(frozenset({defects})), dialects=flows, only="payer/control/buys")
    assert found.outcome is Outcome.FAILED
    assert found.about.target == "Payer", "an object's own words may be long, and hold a key"
    assert found.results[0].rerun.startswith("judge('payer', Payer, only=")
    assert {each.level for each in found.results} == {"MUST"}
    failed = [each for it in found.results for each in it.cases if each.outcome is Outcome.FAILED]
    assert {each.dialect for each in failed} == {*(flows.split(",") if flows else OF_PAYERS)}
    assert all(actual in str(each.actual) and each.exchanges for each in failed)


def test_what_was_bought_and_not_shown_is_no_failure_of_money() -> None:
    payer = Payer(frozenset({"prints nothing"}))
    found = judge("payer", payer, dialects="v2", only="payer/control/buys")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "does not stand in its output" in found.results[0].reason


def test_a_subject_reaches_nothing_that_changes_its_world() -> None:
    """The payer can ask the chain; refused calls stand in the report."""
    import httpx

    def tries(task: Task) -> str:
        base = task.rpc_url.removesuffix("/rpc")
        for method in ("evm_snapshot", "anvil_setBalance", "hardhat_reset", "evm_revert"):
            asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": []}
            assert "error" in httpx.post(task.rpc_url, json=asked).json()
            batch = httpx.post(task.rpc_url, json=[asked, asked]).json()
            assert all("error" in each for each in batch)
        for path in ("/_sim/reset", "/_sim/who", "/facilitator/settle"):
            assert httpx.post(base + path, json={}).status_code == 404
        return Payer(frozenset({"tips"}))(task)

    mine = [case for case in all_cases() if case.name == "payer/control/buys [v2]"]
    (result,) = judged(tries, mine).values()
    assert result.outcome is Outcome.FAILED
    assert "0x3333333333333333333333333333333333333333 gets 0.03 USDC" in str(result.actual)
    (refused,) = [each.about for each in result.exchanges if "it tried to change" in each.about]
    assert "the judge's world, which the judge refused" in refused
    assert "evm_snapshot, anvil_setBalance, hardhat_reset, evm_revert" in refused
    assert "POST /_sim/reset" in refused


def test_a_command_that_is_not_there_is_told() -> None:
    ended = run(["no-such-program"])
    assert ended.exit_code == 2
    assert "cannot be started" in ended.output


def test_a_signature_of_another_wallet_ends_the_run(tmp_path: Path) -> None:
    other = 'task = dataclasses.replace(task, private_key="0x" + "11" * 32)'
    ended = run(command(tmp_path, more=other))
    assert ended.exit_code == 2
    assert "which is not the wallet of this case" in ended.output


@pytest.mark.parametrize("words", [["http://127.0.0.1:8000"], []])
def test_what_is_no_command_is_refused_with_the_right_one(words: list[str]) -> None:
    ended = run(words)
    assert ended.exit_code == 2
    assert "--url" in ended.output


@pytest.mark.parametrize("words", [["node", "my agent.js", "--only", "it"], []])
def test_what_an_interrupted_run_left_is_repeated_by_its_line(words: list[str]) -> None:
    flags = {"dialects": "v1"} if words else {"dialects": "v1", "url": "http://127.0.0.1:9/buy"}
    case = all_cases()[0]
    (left,) = unfinished([], [case], PAYER.read(words, flags).rerun, "")
    said = shlex.split(left.rerun)
    own = said[: said.index("--")] if words else said
    assert said[len(own) + 1 :] == words
    assert own[-2:] == ["--only", case.id]
    assert "v1" in own


def test_a_payer_that_hangs_is_told_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "LONG_S", 0.2)
    told: list[str] = []

    async def main() -> None:
        async def hangs(task: Task) -> None:
            while not told:
                await asyncio.sleep(0.01)

        judge = PayerJudge(payer=Function(hangs), tell=subject.once(told.append))
        await judge.play(next(case for case in all_cases() if case.is_control))

    asyncio.run(main())
    assert told == ["payer/control/buys [v1]: a start does not end, and has 60 s: 0.2 s until now"]


def test_what_is_not_listed_is_not_inherited() -> None:
    names = "EVM_PRIVATE_KEY MNEMONIC BASE_RPC_URL SOLANA_KEYPAIR WEB3_PROVIDER_URI GITHUB_TOKEN"
    listed = ["PATH", "LC_ALL", "PYTHONPATH", "OPENAI_API_KEY"]
    environment = dict.fromkeys([*names.split(), *listed, "ODD"], "x")
    assert [*passing(environment)] == listed
    assert [*passing(environment, ["ODD"])] == [*listed, "ODD"]
    wrong = run(["true"], "--env", "X402SIM_IS_NOT_SET")
    assert wrong.exit_code == 2
    assert "--env: X402SIM_IS_NOT_SET is not set" in " ".join(wrong.output.split())


def test_a_door_is_judged_too() -> None:
    """A payer behind HTTP gets the task as JSON."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    from tests.suite_payer.payer import NotBought, Payer

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            task = Task(**{name: told[name] for name in Task.__dataclass_fields__})
            try:
                status, text = 200, Payer()(task)
            except NotBought as why:
                status, text = 500, str(why)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        ended = CliRunner().invoke(
            app, ["conformance", "payer", "--dialects", "v1", "--only", FEW, "--url", url]
        )
        server.shutdown()
    assert ended.exit_code == 0, ended.output


def test_a_fixture_makes_a_test_of_each_play(pytester: pytest.Pytester) -> None:
    root = ROOT
    pytester.makepyfile(
        f"""
        import sys
        sys.path.insert(0, {str(root)!r})
        import pytest
        from tests.suite_payer.payer import Payer

        @pytest.mark.x402_payer(dialects="v2", only="payer/lost/asked-again,payer/sign/asset")
        def test_honest(x402_payer_case):
            x402_payer_case(Payer())

        @pytest.mark.x402_payer(dialects="v2", only="payer/lost/asked-again,payer/sign/asset")
        def test_defective(x402_payer_case):
            x402_payer_case(Payer(frozenset(["any asset"])))

        @pytest.mark.x402_payer(dialects="v2", only="payer/budget/parallel")
        def test_buys_one_thing(x402_payer_case):
            x402_payer_case(Payer(habits=frozenset(["buys one thing"])))
        """
    )
    ended = pytester.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:schemathesis", "-p", "no:xdist", "-rs"
    )
    ended.assert_outcomes(passed=3, failed=1, skipped=1)
    ended.stdout.fnmatch_lines(["payer/sign/asset (MUST)*", "to repair: *", f"SKIPPED*{ONE_THING}"])
