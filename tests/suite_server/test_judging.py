"""The judge of servers: its options, its plan and reports, what it refuses, and its fixture."""

import asyncio
import base64
import json
import re
import runpy
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from typer.testing import CliRunner

from tests.suite_server.judging import ITEMS, Bench, cases
from tests.suite_server.shop import Shop, shop
from x402sim.cli import app
from x402sim.payer.wallet import Wallet
from x402sim.protocol.x402 import to_base64
from x402sim.suite.dialect import Dialect
from x402sim.suite.report.exchange import written
from x402sim.suite.report.results import CaseResult, Outcome
from x402sim.suite.server.payment import message, proof
from x402sim.suite.server.play import Item
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import Given
from x402sim.suite.server.subject import SERVER, ServerJudge, all_cases, item_in
from x402sim.suite.started import App

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
PROGRAM = "-m tests.suite_server.shop"
HEADERS = runpy.run_path(str(ROOT / "conformance/server/payments.py"))["HEADERS"]


@pytest.mark.parametrize(
    ("case_id", "said"),
    [
        ("server/order/settle-text [v2]", '/settle: 200 {"success": "false"'),
        ("server/order/settle-lost [v2]", "/settle: nothing: the connection ends"),
        ("server/order/verify-moved [v1]", "/verify: 308 Location: http://127.0.0.1:9/settle"),
    ],
)
def test_an_exchange_has_what_a_twisted_facilitator_answered(case_id: str, said: str) -> None:
    """Who is accused of serving on an answer sees the answer, on the page that accuses."""

    async def main() -> list[str]:
        bench, (case,) = Bench(defects=frozenset({"truthy"})), cases(case_id)
        try:
            played = await bench.judge.played([case], await bench.judge.room(case.kind))
        finally:
            await bench.judge.close()
        return [each.about for each in played.play.exchanges]

    assert any(f"the facilitator answers {said}" in about for about in asyncio.run(main()))


def test_a_should_is_what_only_a_facilitator_that_breaks_the_text_shows() -> None:
    """No text bids a server to distrust a boolean of its facilitator; that nothing unpaid is served
    is a MUST where the facilitator says no, says nothing, or is not there."""
    levels = {case.id: case.level for case in all_cases() if case.section == "order"}
    of_settle = {each.removeprefix("server/order/"): level for each, level in levels.items()}
    for slug in ("settle-text", "invalid-text"):
        assert of_settle[slug] == "SHOULD"
    for slug in ("refused", "refused-400", "settle-empty", "settle-page", "settle-down", "invalid"):
        assert of_settle[slug] == "MUST"


def test_what_is_sold_is_read_with_its_method_and_body() -> None:
    assert item_in("/weather") == Item("GET", "/weather")
    assert item_in("http://127.0.0.1:4021/a?b=c") == Item("GET", "/a?b=c")
    assert item_in('/report {"a": 1}') == Item("POST", "/report", '{"a": 1}')
    assert item_in("DELETE /report") == Item("DELETE", "/report")
    assert Item("POST", "/report", "{}").shown == "POST /report {}"
    for wrong in ("weather", "POST", "/report {a}"):
        with pytest.raises(ValueError, match=r"no path|no JSON"):
            item_in(wrong)


@pytest.mark.parametrize(
    ("words", "flags", "why"),
    [
        ([], {"start": "node shop.js"}, "give what it sells"),
        (["/weather"], {}, "--start COMMAND"),
        (["http://127.0.0.1:4021/weather"], {}, "--facilitator http"),
        (["https://shop.example/weather"], {}, "no server of this computer"),
        (["/a"], {"start": "x", "facilitator": "http://127.0.0.1:1"}, "runs already"),
        (["/a"], {"start": "x", "dialects": "v3"}, "dialects are v1, v2"),
        (["/a"], {"start": "x", "restart": "perhaps"}, "yes or no"),
        (["/a"], {"start": "x", "metered": ["/chat"]}, "no amount in tokens"),
        (["/a"], {"start": "x", "patience": 0.0}, "above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], flags: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        SERVER.read(words, flags)


def judged(ids: str, *servers: list[str], items: Sequence[Item] = ITEMS) -> dict[str, CaseResult]:
    """Play cases against shops with these defects: each start is the next one's."""
    left = list(servers)

    def make(given: Given) -> Shop:
        return shop(given, left.pop(0) if len(left) > 1 else left[0])

    async def run() -> dict[str, CaseResult]:
        judge = ServerJudge(subject=App(make), dialects=(Dialect.V2,), items=items, jobs=1)
        return {case.name: result for case, result in await judge.every(cases(ids))}

    return asyncio.run(run())


def test_a_failure_is_played_again_and_says_what_it_costs() -> None:
    (found,) = judged("kit/order/settled-lost [v2]", ["unknown is refused"]).values()
    assert found.outcome is Outcome.FAILED
    assert str(found.loss).startswith("0.01 USDC: charged and not served")
    assert any(str(each).startswith("GET /weather: 402") for each in found.exchanges)


def test_a_server_that_serves_nobody_any_more_is_told_of_the_play_before() -> None:
    (found,) = judged("server/header/malformed-answer [v2]", ["dies of a long header"]).values()
    assert found.outcome is Outcome.FAILED
    assert "after this, it offers nothing that can be paid: 500" in str(found.actual)


class Told(NamedTuple):
    """The end of the command: exit code, output in one line, and the report."""

    code: int
    text: str
    report: dict[str, Any]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Return a function that judges a shop started by a command, with these defects and options."""
    monkeypatch.chdir(ROOT)  # where the command finds the tests
    file = tmp_path / "report.json"

    def ask(words: str = "", *options: str, item: str = "/weather", program: str = PROGRAM) -> Told:
        start = f"{sys.executable} {program} {words}"
        more = ("--start", start, "--jobs", "1", "--report", str(file), *options)
        env = {"COLUMNS": "300", "PYTHONPATH": str(ROOT)}
        done = CliRunner().invoke(app, ["conformance", "server", item, *more], env=env)
        report = json.loads(file.read_text("utf-8")) if file.exists() else {}
        return Told(done.exit_code, " ".join(done.output.split()), report)

    return ask


def test_a_failure_is_told_with_its_cause_its_loss_and_its_repetition(
    asked: Callable[..., Told],
) -> None:
    only = ("--dialects", "v2", "--only", "kit/order/settled-cut", "--strict")
    code, told, report = asked("'unknown is refused'", *only)
    assert code == 1, told
    assert report["subject"] == "server"
    (cause,) = report["causes"]
    assert "tells a payer whose money has moved that the payment has failed" in cause["cause"]
    (failed,) = [each for each in report["results"] if each["outcome"] == "failed"]
    assert failed["rerun"].endswith("--only kit/order/settled-cut")
    assert "Plan: 1 id in 1 play of /weather" in told
    assert "report.json" in told.partition("[…]")[2]
    asked = [each for each in failed["exchanges"] if "request" in each]
    sent = [line for each in asked for line in each["request"].get("headers", ())]
    paid = [each for each in sent if each.startswith("PAYMENT-SIGNATURE: {")]
    assert paid
    assert all('"nonce": "0x' in each and "characters, hidden>" in each for each in paid)
    got = [line for each in asked for line in each["answer"].get("headers", ())]
    assert sum(each.startswith("payment-required: {") for each in got) == 1
    assert sent[0] not in told
    moved = [each for it in failed["exchanges"] for each in it.get("transfers", ())]
    assert [each["base"] for each in moved] == [10000]
    again = next(each for each in failed["actual"].split("; ") if "again" in each)
    assert again == "the same payment again: 402"
    assert failed["actual"].endswith("; 1 transfer of 10000 base units; settle was requested once")


def test_an_answer_in_short_says_what_matters_and_the_rest_is_whole() -> None:
    offer = {"x402Version": 2, "error": "settlement failed", "accepts": [{"payTo": "0x1"}]}
    done = {"success": "false", "errorReason": "no funds", "transaction": "", "payer": "0x2"}
    answer = Answer(
        sent="GET /a",
        status=402,
        headers={
            "payment-required": to_base64(offer),
            "payment-response": to_base64(done),
            "vary": "Origin",
        },
        body=b"{}",
    )
    short = 'success: "false", errorReason: "no funds", transaction: ""'
    assert answer.how == f'402; error: "settlement failed", 1 offer; payment-response: {short}'
    assert answer.showing("Vary", "Allow") == f"{answer.how}; Vary: Origin; Allow: none"
    rest = (f"payment-response: {json.dumps(done)}", "vary: Origin")
    assert answer.message(with_offer=False).headers == rest
    offered = f"payment-required: {json.dumps(offer)}"
    assert answer.message(with_offer=True).headers == (offered, *rest)
    page = Answer(sent="GET /a", status=500, body=b"x" * 130)
    assert page.how == f"500; {'x' * 120}…"
    assert page.message(with_offer=True).body == "x" * 130
    first = Answer(sent="GET /a", status=402, body=json.dumps({**offer, "accepts": []}).encode())
    assert first.how == '402; error: "settlement failed", 0 offers'
    assert not first.message(with_offer=False).body


def test_each_header_that_is_no_payment_is_named_where_it_is_sent_and_where_it_fails() -> None:
    (found,) = judged("server/header/malformed-answer [v2]", ["5xx for malformed"]).values()
    assert found.expected == "400 or 402 for what is no payment"
    failed = [
        each
        for each in HEADERS
        if any(str(it).startswith(f"a header that {each}: GET") for it in found.exchanges)
    ]
    assert failed == [*HEADERS]
    named = [each for each in HEADERS if f"a header that {each}" in str(found.actual)]
    sent = [str(each) for each in found.exchanges]
    assert named == [
        each
        for each in HEADERS
        if any(line.startswith(f"a header that {each}: GET /weather: 500") for line in sent)
    ]


def test_what_a_catalogue_lists_and_nobody_said_how_to_ask_for_is_left_alone() -> None:
    (listed,) = judged("kit/discovery/listed [v2]", [], items=ITEMS[:1]).values()
    assert listed.outcome is Outcome.PASSED, listed.actual


@pytest.mark.thorough
def test_requests_through_a_cache_and_what_is_not_counted_are_called_so() -> None:
    (cached,) = judged("kit/offer/cache-forbidden [v2]", ["says nothing of caches"]).values()
    assert str(cached.actual).startswith("through the cache, without a payment: 200")
    lines = "\n".join(written(cached.exchanges, is_short=True))
    assert "\nthrough the cache: GET /weather: 200" in lines
    assert re.search(r"\non the chain, by 0x\w{10}…: 1 transfer of", lines)
    its = ["head is free", "sells the same each time"]
    (head,) = judged("server/path/head [v2]", its).values()
    assert "not counted" in str(head.actual)


@pytest.mark.thorough
def test_what_could_not_be_told_apart_is_in_the_verdict_and_a_path_that_counts_tells_it(
    asked: Callable[..., Told],
) -> None:
    words = "'sells the same each time' 'serves again' 'head is free' 'hides its length'"
    ids = "server/many/again,server/handler/unpaid,server/many/two,server/path/head"
    only = ("--only", ids, "--dialects", "v2")
    code, told, _ = asked(words, *only)
    assert code == 0
    verdict = told[told.index("No MUST demand failed: ") :]
    assert "Could not be judged: server/many/again, since the goods are the same" in verdict
    assert "Could not be judged: server/handler/unpaid, since nothing shows how often" in verdict
    code, told, _ = asked(words, *only, "--counter", "/count")
    assert code == 1
    assert "handlers ran 3 times" in told
    assert "failed in v2 server/path/head SHOULD" in told
    assert "Could not be judged" not in told


@pytest.mark.parametrize(
    ("habit", "metered", "code", "wanted"),
    [
        ("settles nothing", "0.004 /weather", 1, "cause it serves without settling"),
        ("never settles", "", 1, "expected 200, and one transfer of the used amount, at most the"),
        ("settles nothing", "", 2, "its receipts say that every sale used nothing"),
        ("settles the maximum", "", 0, "Each settlement of `upto` was the maximum"),
        ("settles the maximum", "0.01 /weather", 0, "No MUST demand failed"),
    ],
)
def test_goods_sold_upto_that_settle_nothing_or_the_maximum_are_told(
    habit: str, metered: str, code: int, wanted: str, asked: Callable[..., Told]
) -> None:
    """Also after a payment that was refused, with the nonce of a good one."""
    more = ["--metered", metered] * bool(metered)
    ids = "server/control/sells,kit/many/refused-before"
    only = ("--only", ids, "--dialects", "upto", *more)
    found, told, _ = asked(f"'sells upto' '{habit}'", *only)
    assert (found, wanted in told) == (code, True), told
    assert ("was the maximum" in told) == (code == 0 and not metered)


def test_an_amount_used_in_base_units_is_told(asked: Callable[..., Told]) -> None:
    only = ("--only", "server/handler/used", "--dialects", "upto", "--metered", "4000 /weather")
    code, told, _ = asked("'sells upto' 'settles the maximum'", *only)
    assert (code, "--metered 4000 is in tokens" in told) == (2, True), told


@pytest.mark.thorough
def test_an_offer_by_which_nobody_can_pay_is_judged_though_nothing_can_be_bought(
    asked: Callable[..., Told],
) -> None:
    code, told, _ = asked("'another name of the token'", "--only", "server/offer/whole-")
    assert code == 1, told
    assert "failed in v1, v2 server/offer/whole-token MUST" in told
    assert "'USD Coin of nobody'" in told


@pytest.mark.thorough
def test_the_numbers_of_a_body_are_changed_too_and_an_empty_one_is_told() -> None:
    its = ["forgets what it was for", "serves again", "does not compare"]
    bodies = ('{"n": 1}', '{"a": [true, {"b": 2.5}]}', "{}")
    one, two, none = (
        judged("server/binding/body [v2]", its, items=[item_in(f"POST /report {each}")])
        for each in bodies
    )
    assert [it.outcome for it in (*one.values(), *two.values())] == [Outcome.FAILED] * 2
    (left,) = none.values()
    assert (left.outcome, left.is_untold) == (Outcome.SKIPPED, True)
    assert "no value stands in the body {}" in left.reason


def test_a_command_is_killed_and_started_again(asked: Callable[..., Told]) -> None:
    words = "'keeps it in memory' 'never verifies' 'serves before settling'"
    ids = "server/restart/served,server/replicas/in-turn"
    code, told, report = asked(words, "--only", ids, "--dialects", "v2", "--restart", "yes")
    assert code == 1, told
    outcomes = {each["id"]: each["outcome"] for each in report["results"]}
    assert outcomes == {"server/restart/served": "failed", "server/replicas/in-turn": "skipped"}
    assert "killed and started again once" in told


def test_a_version_whose_offer_nobody_can_pay_is_no_version_that_it_lacks(
    asked: Callable[..., Told],
) -> None:
    ids = "server/offer/whole,server/control/sells,server/many/again"
    code, told, report = asked("'amount is a number'", "--only", ids)
    outcomes = {
        each["id"]: {case["dialect"]: case["outcome"] for case in each["cases"]}
        for each in report["results"]
    }
    assert outcomes["server/offer/whole"] == {"v1": "passed", "v2": "failed"}, told
    assert outcomes["server/many/again"] == {"v1": "passed", "v2": "skipped"}
    assert outcomes["server/control/sells"] == {"v1": "passed", "v2": "skipped"}
    assert code == 1
    assert "Only its offer is judged: v2" in told


@pytest.mark.parametrize("path", ["/free", "/nothing"])
def test_what_sells_nothing_is_not_judged(path: str, asked: Callable[..., Told]) -> None:
    code, told, _ = asked(item=path)
    assert (code, "asks for no payment" in told) == (2, True), told


BELIEVES = """
import json, os, runpy, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
class Yes(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.dumps({"isValid": True, "success": True, "transaction": "0x" + "ab" * 32}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
yes = HTTPServer(("127.0.0.1", 0), Yes)
threading.Thread(target=yes.serve_forever, daemon=True).start()
os.environ["FACILITATOR_URL"] = f"http://127.0.0.1:{yes.server_port}"
runpy.run_module("tests.suite_server.shop", run_name="__main__")
"""


@pytest.mark.thorough
def test_a_control_that_is_served_for_nothing_has_failed_and_is_reported(
    tmp_path: Path, asked: Callable[..., Told]
) -> None:
    (tmp_path / "shop.py").write_text(BELIEVES)
    only = ("--dialects", "v2", "--only", "server/payment")
    code, told, report = asked("", *only, program=str(tmp_path / "shop.py"))
    assert code == 1, told
    control, *others = report["results"]
    assert (control["id"], control["outcome"]) == ("server/control/sells", "failed")
    assert control["exchanges"][0]["request"]["line"] == "GET /weather"
    assert {each["outcome"] for each in others} == {"inconclusive"}


def test_a_server_cannot_change_the_world_that_it_is_judged_in() -> None:
    """With each request the shop tries to reset the world, move the time and stop mining."""
    refused = []

    def make(given: Given) -> Any:
        toy = shop(given, [])

        def meddle() -> None:
            with httpx.Client(trust_env=False) as http:
                for method, *params in (("evm_increaseTime", 900), ("evm_setAutomine", False)):
                    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                    refused.append("error" in http.post(given.rpc_url, json=call).json())
                reset = http.post(given.rpc_url.replace("/rpc", "/_sim/reset"))
                refused.append(reset.status_code == 401)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.to_thread(meddle)
            await toy(scope, receive, send)

        return app

    async def run() -> list[Outcome]:
        judge = ServerJudge(subject=App(make), dialects=(Dialect.V2,), items=ITEMS, jobs=1)
        mine = cases("server/control/sells [v2] kit/order/settled-lost [v2]")
        return [found.outcome for case, found in await judge.every(mine)]

    assert set(asyncio.run(run())) == {Outcome.PASSED}
    assert all(refused)


def test_a_folder_that_a_server_has_spoiled_is_no_error_of_the_judge(tmp_path: Path) -> None:
    """A folder in which a forgotten child still writes cannot be removed, either."""

    async def run() -> list[Outcome]:
        def make(given: Given) -> Any:
            folder = Path(given.state_dir).parent
            shutil.rmtree(folder)
            folder.write_text("no folder any more")
            return shop(replace(given, state_dir=str(tmp_path)), [])

        judge = ServerJudge(subject=App(make), dialects=(Dialect.V2,), items=ITEMS, jobs=1)
        return [found.outcome for _, found in await judge.every(cases("server/control/sells [v2]"))]

    assert asyncio.run(run()) == [Outcome.PASSED]


def test_what_is_sold_for_another_network_is_not_judged_and_shown_as_it_was_given(
    asked: Callable[..., Told],
) -> None:
    item = 'POST /report {"title": "a"}'
    code, told, _ = asked("", "--network", "base", item=item)
    assert code == 2, told
    assert f"sells nothing at {item}, so there is nothing to judge. v1: none" in told


def test_a_scheme_that_is_not_sold_is_told_in_a_line(asked: Callable[..., Told]) -> None:
    _, told, _ = asked("", "--only", "server/many/two")
    assert told.count("Not judged") == 2
    for each in ("permit2: it sells no exact", "upto: it sells no upto"):
        assert f"Not judged: {each} by Permit2" in told


def test_a_wallet_signs_the_text_that_the_extension_shows() -> None:
    fields = {
        "domain": "api.example.com",
        "address": "0x857b06519E91e3A54538791bDbb0E22373e36b66",
        "statement": "Sign in to access premium data",
        "uri": "https://api.example.com/premium-data",
        "version": "1",
        "chainId": "eip155:8453",
        "nonce": "a1b2c3d4e5f67890a1b2c3d4e5f67890",
        "issuedAt": "2024-01-15T10:30:00.000Z",
        "expirationTime": "2024-01-15T10:35:00.000Z",
        "resources": ["https://api.example.com/premium-data"],
    }
    assert message(fields) == (
        "api.example.com wants you to sign in with your Ethereum account:\n"
        "0x857b06519E91e3A54538791bDbb0E22373e36b66\n\n"
        "Sign in to access premium data\n\n"
        "URI: https://api.example.com/premium-data\nVersion: 1\nChain ID: 8453\n"
        "Nonce: a1b2c3d4e5f67890a1b2c3d4e5f67890\nIssued At: 2024-01-15T10:30:00.000Z\n"
        "Expiration Time: 2024-01-15T10:35:00.000Z\nResources:\n"
        "- https://api.example.com/premium-data"
    )
    wallet = Wallet("0x" + "0b" * 32)
    said = json.loads(base64.b64decode(proof(fields, wallet)[1]))
    signed = encode_defunct(text=message(fields | {"address": wallet.address}))
    assert Account.recover_message(signed, signature=said["signature"]) == wallet.address
