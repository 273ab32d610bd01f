"""The judge as its users meet it: a command, a URL, its environment, a fixture, what it refuses."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.suite_facilitator.judging import cases, mutant
from x402sim import LocalServer
from x402sim.cli import app
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.rng import Rng
from x402sim.suite.dialect import Dialect
from x402sim.suite.engine import skipped, unclear
from x402sim.suite.facilitator import subject
from x402sim.suite.facilitator.case import is_settled
from x402sim.suite.facilitator.payment import Answer, Draft, drafted
from x402sim.suite.facilitator.room import Money
from x402sim.suite.facilitator.subject import FacilitatorJudge, all_cases, plays
from x402sim.suite.fixture import CaseOfTest
from x402sim.suite.kept import filled
from x402sim.suite.money import Transfer
from x402sim.suite.report.results import CaseResult, Outcome
from x402sim.suite.started import App
from x402sim.suite.verdict import Skipped

pytest_plugins = ["pytester"]
OURS = f"{sys.executable} -m x402sim facilitator"
REFUSES = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Refuses(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"kinds": []})
    def do_POST(self):
        self.answer({"isValid": False, "success": False, "errorReason": "closed"})
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Refuses).serve_forever()
"""


def conformance(*args: str) -> Any:
    return CliRunner().invoke(app, ["conformance", "facilitator", *args], env={"COLUMNS": "300"})


def until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)


def words(done: Any) -> str:
    return " ".join((done.output + getattr(done, "stderr", "")).split())


def test_our_own_command_passes(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = conformance(
        "--start", OURS, "--only", "facilitator/control,facilitator/fields/payee",
        "--report", str(file),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = {each["id"]: each["outcome"] for each in json.loads(file.read_text())["results"]}
    assert len(found) == 2  # in five dialects each
    assert set(found.values()) == {"passed"}


def test_one_without_permit2_is_not_judged_by_it_in_one_line_each() -> None:
    start = f"{sys.executable} -m tests.suite_facilitator.mutant 'EIP-3009 alone'"
    done = conformance("--start", start, "--only", "facilitator/control")
    assert done.exit_code == 0, done.output
    said = words(done)
    assert "Not judged: x402 version 2, exact by Permit2 (permit2): a good payment" in said
    unlisted = "GET /supported lists no upto with extra.facilitatorAddress"
    assert f"Not judged: x402 version 2, upto (upto): {unlisted}" in said


@pytest.mark.parametrize(
    ("success", "code", "outcome", "said"),
    [
        ("False", 2, "inconclusive", "settles no good payment, so there is nothing to judge"),
        ("True", 1, "failed", "Failed MUST demands: 1."),
    ],
    ids=["settles nothing", "invents success"],
)
def test_a_control_that_breaks_something_has_failed_and_is_reported(
    success: str, code: int, outcome: str, said: str, tmp_path: Path
) -> None:
    file, report = tmp_path / "answers.py", tmp_path / "report.json"
    file.write_text(REFUSES.replace('"success": False', f'"success": {success}'))
    only = ("--dialects", "v2", "--only", "facilitator/fields/payee")
    done = conformance("--start", f"{sys.executable} {file}", *only, "--report", str(report))
    assert done.exit_code == code, done.output
    assert said in words(done)
    found = {each["id"]: each for each in json.loads(report.read_text())["results"]}
    assert found["facilitator/fields/payee"]["outcome"] == "inconclusive"
    if success == "True":
        control = found["facilitator/control/settles"]
        assert control["outcome"] == outcome
        asked = [each["request"]["line"] for each in control["exchanges"] if "request" in each]
        assert asked == ["POST /verify", "POST /settle"]
        assert "on the chain: 0 transfers" in control["exchanges"][2]["about"]
        assert control["exchanges"][-1]["about"].startswith("its last line: 127.0.0.1 - - [")


def test_a_command_that_ends_is_told_with_its_last_line(tmp_path: Path) -> None:
    ends = f"{sys.executable} -c \"import sys; sys.exit('no port today')\""
    report = tmp_path / "report.json"
    done = conformance("--start", ends, "--report", str(report))
    assert done.exit_code == 2
    told = json.loads(report.read_text())["results"]
    assert {each["outcome"] for each in told} == {"inconclusive"}, "what was asked for is written"
    assert "it wrote: no port today" in told[0]["reason"]
    assert "it ended by itself, exit code 1 (a payer, which ends, is judged by" in words(done)
    assert "it wrote: no port today" in words(done)


def test_a_command_gets_the_judges_variables_in_its_words() -> None:
    words = ["uvicorn", "--port", "$PORT", "x:${PORT}", "$HOME", "$PORTS"]
    expected = ["uvicorn", "--port", "80", "x:80", "$HOME", "$PORTS"]
    assert filled(words, {"PORT": "80"}) == expected


def test_what_was_started_ends_with_the_judge(tmp_path: Path) -> None:
    waits, file = tmp_path / "waits.py", tmp_path / "pid"
    waits.write_text(
        f"import os, time; open({str(file)!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(60)"
    )
    command = [sys.executable, "-m", "x402sim", "conformance", "facilitator", "--start"]
    judge = subprocess.Popen([*command, f"{sys.executable} {waits}"], stderr=subprocess.DEVNULL)
    try:
        until(lambda: file.exists() and file.read_text().endswith(" "))
        judge.terminate()
        assert judge.wait(10) == 130
    finally:
        judge.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["node", "server.js"], "--start 'node server.js'"),
        ([], "give the command that starts the facilitator"),
        (
            ["http://127.0.0.1:1", "--start", "x", "--rpc", "http://127.0.0.1:2"],
            "the judge sets RPC_URL",
        ),
        (["http://127.0.0.1:1", "--rpc", "https://base.example"], "http://127.0.0.1:PORT"),
        (["--start", OURS, "--dialects", "v3"], "dialects are v1, v2, permit2, upto, cronos"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_what_to_do(args: list[str], told: str) -> None:
    done = conformance(*args)
    assert done.exit_code == 2
    assert told in words(done)


def test_without_a_chain_http_is_judged_and_the_rest_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    only = "facilitator/body/no-json,facilitator/fields/payee,facilitator/supported/fields"
    with LocalServer(network="base-sepolia", has_service=False) as server:
        asked = ("--only", only, "--dialects", "v2", "--report", str(file))
        done = conformance(server.facilitator_url, *asked)
        wrong = conformance(server.facilitator_url + "/discovery")
    found = {each["id"]: each for each in json.loads(file.read_text())["results"]}
    assert done.exit_code == 0, done.output
    assert found["facilitator/body/no-json"]["outcome"] == "passed"
    payee = found["facilitator/fields/payee"]
    assert payee["outcome"] == "skipped"
    assert "--rpc" in payee["reason"]
    assert wrong.exit_code == 2
    assert "The path of its API belongs to the URL" in words(wrong)


def test_who_jams_is_told_and_who_is_jammed_is_not() -> None:
    """A refused settlement loses a nonce of the relayer's: its play fails, and no other one."""
    ids = "facilitator/control/settles [v2] facilitator/fields/payee [v2] facilitator/supported/lists [v2]"
    jams = mutant(["jams"])

    async def main() -> dict[str, CaseResult]:
        judge = FacilitatorJudge(subject=jams, dialects=(Dialect.V2,), jobs=1, patience_s=3)
        return {case.name: result for case, result in await judge.every(cases(ids))}

    found = asyncio.run(main())
    jam = found.pop("facilitator/fields/payee [v2]")
    assert jam.outcome is Outcome.FAILED
    assert "after this, a good payment (v2)" in str(jam.actual)
    assert {each.outcome for each in found.values()} == {Outcome.PASSED}


def test_each_play_has_a_must_or_is_followed_by_one() -> None:
    """A jam is a MUST anywhere, except for the depth that ends a language's parser."""
    musts = {case.played_as for case in all_cases() if case.level == "MUST"}
    others = {case.played_as for case in all_cases()} - musts
    assert others == {each for each in others if each.startswith("body/deep-")}


@pytest.mark.thorough
def test_a_fixture_makes_a_test_of_each_play(pytester: pytest.Pytester) -> None:
    root = Path(__file__).parents[2]
    pytester.makepyfile(
        f"""
        import sys
        sys.path.insert(0, {str(root)!r})
        import pytest
        from tests.suite_facilitator.judging import mutant

        @pytest.mark.x402_facilitator(dialects="v2", only="facilitator/fields/payee,facilitator/window/early")
        def test_honest(x402_facilitator_case):
            x402_facilitator_case(mutant().make)

        @pytest.mark.x402_facilitator(dialects="v2", only="facilitator/fields/payee,facilitator/window/early")
        def test_defective(x402_facilitator_case):
            x402_facilitator_case(mutant(["any payee"]).make)
        """
    )
    ended = pytester.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:schemathesis", "-p", "no:xdist"
    )
    ended.assert_outcomes(passed=4, failed=2)
    ended.stdout.fnmatch_lines(["facilitator/fields/payee (MUST)*", "to repair: *"])


def test_a_play_counts_in_pytest_as_on_the_command_line() -> None:
    """An inconclusive MUST fails its test, a SHOULD if it is strict; what was skipped is none."""

    def play(name: str, result: Callable[..., CaseResult], *, strict: bool = False) -> CaseOfTest:
        async def judged(given: object, cases: Sequence[Any]) -> list[tuple[Any, CaseResult]]:
            return [(case, result(case, "why not")) for case in cases]

        return replace(plays(only=name, strict=strict)[0], judged=judged)

    must = "facilitator/fields/payee"
    assert f"{must} (MUST): inconclusive: why not" in play(must, unclear).wrong(None)
    should = next(
        case.id for case in all_cases() if case.level == "SHOULD" and case.dialect == "v2"
    )
    assert f"{should} (SHOULD)" in play(should, unclear, strict=True).wrong(None)
    for name, result in ((should, unclear), (must, skipped)):
        with pytest.raises(Skipped, match="why not"):
            play(name, result).wrong(None)


def test_a_failure_is_told_with_its_cause_its_loss_and_its_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # where the command finds the tests
    file = tmp_path / "refuses.md"
    only = "facilitator/control/settles,facilitator/fields/payee"
    command = f"{sys.executable} -m tests.suite_facilitator.mutant 'any payee'"
    done = conformance(
        "--start", command, "--only", only, "--dialects", "v2", "--report", str(file)
    )
    assert done.exit_code == 1, done.output
    told = file.read_text(encoding="utf-8")
    assert "it moves money by a payment that it must refuse" in told
    assert "0.01 USDC" in told
    assert "--only facilitator/fields/payee" in told
    assert "on the chain: 1 transfer of 10000 base units" in told


def test_an_earlier_payment_that_is_mined_late_is_not_held_against_the_next() -> None:
    """But a second transfer of the same payer is."""
    shop = Wallet(Rng(1).secret("shop")).address_bytes

    def paid(payer: int) -> Draft:
        wallet = Wallet(Rng(payer).secret("payer"))
        return drafted(
            Dialect.V2, BASE_SEPOLIA, wallet, shop, (10_000, 10_000), bytes([payer]) * 32
        )

    def moved(draft: Draft, tx_hash: str) -> Transfer:
        auth, token = draft.auth, draft.network.asset
        return Transfer(
            sender=auth.from_, to=auth.to, amount_base=auth.value, token=token, tx_hash=tx_hash
        )

    pending, good = paid(2), paid(3)
    said = {"success": True, "transaction": "0x02"}
    answer = Answer(dialect=Dialect.V2, path="/settle", status=200, json=said)
    both = Money(moved=(moved(pending, "0x01"), moved(good, "0x02")), sent=())
    assert is_settled(both, good, answer) is None
    tip = replace(moved(good, "0x03"), amount_base=1)
    assert is_settled(replace(both, moved=(*both.moved, tip)), good, answer) is not None


def test_a_room_that_opens_in_vain_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by an interrupt: otherwise its node and the facilitator would run on."""
    closed: list[str] = []

    class Opened:
        async def close(self) -> None:
            closed.append("it")

    async def opened(*_: Any) -> Opened:
        return Opened()

    async def interrupted(*_: Any) -> str:
        raise asyncio.CancelledError

    monkeypatch.setattr(subject, "opened", opened)
    monkeypatch.setattr(FacilitatorJudge, "try_good_payment", interrupted)
    judge = FacilitatorJudge(subject=App(lambda _: None), jobs=1)  # type: ignore[arg-type,return-value]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(judge.open(subject.ChainRoomKind(name="anvil", chain="anvil"), "room"))
    assert closed == ["it"]
