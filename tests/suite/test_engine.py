"""The engine: outcomes, controls, needs, budget, and no secrets in results."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.bounded.hostile_peer import wanted
from tests.suite.cases import case
from x402sim import Network, World
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import read_header
from x402sim.serving.control.client import ControlClient
from x402sim.spec.ground import silent
from x402sim.spec.needs import Need
from x402sim.suite.report.exchange import AGAIN, written
from x402sim.suite.report.results import Evidence, Outcome, Result
from x402sim.suite.service import engine, expect
from x402sim.suite.service.answers import Challenge, TargetAnswer, find_session_id, read_402
from x402sim.suite.service.case import HOW_TO_PROVIDE, ServiceCase
from x402sim.suite.service.control_api import SETTLE
from x402sim.suite.service.engine import run
from x402sim.suite.service.local import judge
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import Target
from x402sim.suite.verdict import CheckFailed, Inconclusive, NotReady, Skipped
from x402sim.world.faults import Fault

OURS = World(seed=1)


def setting_for(app: Any, control: Any = None, **more: Any) -> Setting:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://target")
    return Setting(options=Options(**more), http=http, control=control)


def judged(app: Any, checks: list[ServiceCase], **more: Any) -> list[Result]:
    async def main() -> list[Result]:
        return [result async for result in run(setting_for(app, **more), checks)]

    return asyncio.run(main())


async def nothing(_: Request) -> Response:
    return JSONResponse({"error": "no"}, 404)


def refuses_all() -> Starlette:
    return Starlette(routes=[Route("/{path:path}", nothing, methods=["GET", "POST"])])


async def a_refusal(probe: Probe) -> None:
    expect.refused(await probe.send("POST", "/api/pay", json={}))


a_refusal = case("2.2/body", a_refusal, control="payment", needs="funds")


async def always_fails(probe: Probe) -> None:
    await probe.send("GET", "/")
    expect.equal("the answer", 1, 2)


async def sing(probe: Probe) -> None:
    probe.observe("it sings")


broken = case("2.1/amount", always_fails)
unclear = case("2.1/asset", ends=Inconclusive("no idea"))
holds = case("2.1/network")
sings = case("5/reuse", sing, ground=silent(why="a test"))


def test_a_target_that_refuses_everything_does_not_pass_a_refusal() -> None:
    (result,) = judged(refuses_all(), [a_refusal], payer=WALLET, budget_base=10**6)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "the control (payment) was not accepted" in result.reason


@pytest.mark.parametrize("control", ["unpaid", "payment", "session"])
def test_each_control_is_accepted_by_a_service_that_works_and_by_no_other(control: Any) -> None:
    needs = {"payment": "funds", "session": "funds, sessions"}.get(control, "")
    holds_by_it = case("2.1/scheme", control=control, needs=needs)
    assert judge(OURS, checks=[holds_by_it])[0].outcome is Outcome.PASSED
    (result,) = judged(refuses_all(), [holds_by_it], payer=WALLET, budget_base=10**6)
    assert result.reason.startswith(f"the control ({control}) was not accepted: expected ")
    assert not result.cases[0].has_begun


@pytest.mark.parametrize(("control", "serves"), [("payment", "opened"), ("session", "ask")])
def test_a_control_that_is_paid_for_must_be_served(
    control: Any, serves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: Any, **__: Any) -> TargetAnswer:
        return CHALLENGE

    monkeypatch.setattr(Probe, serves, refuses)
    (result,) = judge(OURS, checks=[case("2.1/scheme", control=control, needs="funds, sessions")])
    assert f"the control ({control}) was not accepted: expected " in result.reason


def test_what_is_left_out_or_whose_need_turns_out_missing_says_whether_it_has_begun() -> None:
    def ends_early(clause: str, **more: Any) -> ServiceCase:
        return case(clause, always_fails, ends=None, **more)

    missing = case("2.1/asset", ends=Skipped("nothing there"))
    left, begun = judged(refuses_all(), [ends_early("2.1/amount", needs="funds"), missing])
    assert left.outcome is begun.outcome is Outcome.SKIPPED
    assert [each.cases[0].has_begun for each in (left, begun)] == [False, True]


def test_only_a_world_that_a_case_has_changed_is_cleared_of_faults() -> None:
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, json={})

    changes = case("2.1/amount", lambda probe: probe.world.post("crash"))
    world = ControlClient(
        httpx.AsyncClient(transport=httpx.MockTransport(serve), base_url="http://w")
    )
    assert judged(refuses_all(), [holds], control=world)[0].outcome is Outcome.PASSED
    assert asked == []
    assert judged(refuses_all(), [changes], control=world)[0].outcome is Outcome.PASSED
    assert asked == ["/crash", "/faults/clear"]
    assert judged(refuses_all(), [changes])[0].outcome is Outcome.SKIPPED


def test_a_control_refused_at_the_end_makes_passes_inconclusive() -> None:
    turned_off = []

    async def turns_the_target_off(probe: Probe) -> None:
        turned_off[0].process._app = refuses_all()

    turns_the_target_off = case(
        "2.1/resource", turns_the_target_off, control="payment", needs="funds"
    )

    (result,) = judge(OURS, checks=[turns_the_target_off], mutate=turned_off.append)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "at the end of the run" in result.reason


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The controls tried; each holds."""
    tried: list[str] = []

    async def holds(probe: Probe, control: str, payer: object = None) -> None:
        tried.append(control)

    monkeypatch.setattr(engine, "try_control", holds)
    return tried


def test_only_what_holds_by_its_control_waits_for_the_control_to_be_tried_again(
    tries: list[str],
) -> None:
    holds_by_it = case("2.1/scheme", control="payment")
    fails_with_it = case("2.1/timeout", always_fails, control="payment")
    found = judged(refuses_all(), [holds_by_it, fails_with_it, holds])
    assert [each.id for each in found] == [
        "spec/2.1/timeout",
        "spec/2.1/network",
        "spec/2.1/scheme",
    ]
    assert [each.outcome for each in found] == [Outcome.FAILED, Outcome.PASSED, Outcome.PASSED]
    assert tries == ["payment", "payment"]
    tries.clear()
    judged(refuses_all(), [fails_with_it])
    assert tries == ["payment"], "no payment proves anything about a failure"


def test_what_holds_by_its_control_is_unclear_if_the_service_stops_later(tries: list[str]) -> None:
    async def stops(probe: Probe) -> None:
        probe.setting.stopped = "it stopped"

    cases = [case("2.1/scheme", control="payment"), case("2.1/asset", stops), holds]
    found = judged(refuses_all(), cases)
    assert {each.id: (each.outcome, each.reason) for each in found} == {
        "spec/2.1/asset": (Outcome.PASSED, ""),
        "spec/2.1/network": (Outcome.INCONCLUSIVE, "it stopped"),
        "spec/2.1/scheme": (Outcome.INCONCLUSIVE, "it stopped"),
    }
    assert tries == ["payment"]


def test_without_a_world_the_first_failure_counts_whatever_ran_beside() -> None:
    left = [2, 1]

    async def looks(probe: Probe) -> None:
        await probe.wait(0.01)
        expect.equal("the answer", left.pop(0), 1)

    looks = case("2.1/amount", looks, waits=lambda _: 0)
    found = judged(refuses_all(), [looks, holds])
    assert {each.id: each.outcome for each in found}["spec/2.1/amount"] is Outcome.FAILED
    assert left == [1], "a payment may be real money"


def test_a_run_that_breaks_off_ends_the_cases_that_wait() -> None:
    ended: list[str] = []

    async def waits(probe: Probe) -> None:
        try:
            await probe.setting.scheduler.waiting(asyncio.Event().wait())
        finally:
            ended.append("it has ended")

    async def main() -> None:
        cases = [
            case("2.1/amount", waits, waits=lambda _: 1),
            case("2.1/asset", ends=NotReady("no")),
        ]
        with pytest.raises(NotReady):
            [each async for each in run(setting_for(refuses_all()), cases)]
        assert ended == ["it has ended"]

    asyncio.run(main())


def test_each_id_is_told_when_it_begins() -> None:
    begun: list[str] = []

    async def main() -> None:
        async for _ in run(setting_for(refuses_all()), [broken, holds, holds], begun.append):
            pass

    asyncio.run(main())
    assert begun == ["spec/2.1/amount", "spec/2.1/network"]


def test_each_outcome_has_its_result() -> None:
    results = judged(refuses_all(), [broken, unclear, holds, sings])
    assert [result.outcome for result in results] == [
        Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.PASSED, Outcome.OBSERVED,
    ]  # fmt: skip
    failed, inconclusive, passed, observed = results
    assert (passed.expected, passed.actual, observed.expected) == (None, None, None)
    assert (failed.expected, failed.actual) == ("the answer: 2", "1")
    assert failed.evidence == Evidence(about="the answer", answer="1", place="spec/2.1/amount")
    assert [each.head for each in failed.exchanges] == ["GET http://target/ -> 404"]
    assert failed.rerun.endswith("--only spec/2.1/amount")
    assert inconclusive.reason == "no idea"
    assert observed.actual == "it sings"


def test_a_failure_shows_what_the_world_answered() -> None:
    async def fails(probe: Probe) -> None:
        await probe.world.fault(SETTLE(does="refuse"))
        await probe.world.clear_faults()
        await probe.world.fault(SETTLE(does="answer", status=200, body="no"))
        await probe.send("GET", "/")
        await probe.world.clear_faults()
        expect.equal("the answer", 1, 2)

    fails = case("2.1/amount", fails, needs="world", disturbs=True)

    (failed,) = judge(OURS, checks=[fails])
    assert [each.about for each in failed.exchanges] == [
        "", "the world's facilitator/settle answered 200 no",
    ]  # fmt: skip


def test_a_lasting_fault_stays_while_other_checks_clear_theirs() -> None:
    stands = []

    async def waits(probe: Probe) -> None:
        await probe.world.lasting_fault(Fault(victim="explorer", does="refuse"), "0xaa")
        await probe.wait(5)
        stands.append(await probe.world.get("faults"))

    waits = case("2.1/amount", waits, needs="world", waits=lambda _: 5)

    async def meddles(probe: Probe) -> None:
        await probe.world.fault(Fault(victim="explorer", does="lose answer"))

    meddles = case("2.1/asset", meddles, needs="world")

    async def looks(probe: Probe) -> None:
        await probe.wait(9)
        stands.append(await probe.world.get("faults"))

    looks = case("2.1/network", looks, needs="world", waits=lambda _: 9)

    judge(OURS, checks=[waits, meddles, looks], has_clock=False)
    assert [[each["contains"] for each in found] for found in stands] == [["0xaa"], []]


def test_a_bug_of_a_check_is_inconclusive() -> None:
    """The same catch serves the other judges: see `attempt`."""
    buggy = case("2.1/timeout", ends=ZeroDivisionError())
    result, other = judged(refuses_all(), [buggy, holds])
    assert (result.outcome, other.outcome) == (Outcome.INCONCLUSIVE, Outcome.PASSED)
    assert "the case itself has a bug: ZeroDivisionError" in result.reason


CHALLENGE = TargetAnswer(Target(), 402, httpx.Headers(), "", wanted("/api/perp/quote"), str)
WALLET = Wallet(b"\1" * 32)


def signed(network: str, asset: dict[str, str] | None = None, **more: Any) -> str:
    """Sign for a 402 that names a network, and perhaps an unusual token."""
    named = CHALLENGE.body["paymentRequirements"] | {"network": network} | (asset or {})
    challenge = Challenge(CHALLENGE, "pay_1", named)
    return Probe(setting_for(refuses_all(), **more)).wallets.sign(challenge, WALLET)


def test_the_budget_is_never_exceeded() -> None:
    probe = Probe(setting_for(refuses_all(), payer=WALLET, budget_base=25_000))
    challenge = read_402(CHALLENGE)
    probe.wallets.sign(challenge, WALLET)
    probe.wallets.sign(challenge, WALLET)
    with pytest.raises(Skipped, match=r"budget has 0\.005"):
        probe.wallets.sign(challenge, WALLET)
    assert probe.setting.signed_base == 20_000


OWN = Network("my-net", 4711, b"\xab" * 20, "My Dollar", "MYD", "3")


def test_a_network_of_the_users_is_signed_for_as_its_file_says() -> None:
    """Its money may be real, unless a world mints it; without the file it cannot be paid on."""
    with pytest.raises(Inconclusive, match="unknown network 'my-net'"):
        signed("my-net")
    known = {"networks": {"my-net": OWN}}
    with pytest.raises(Skipped, match="--allow-mainnet"):
        signed("my-net", **known)
    with pytest.raises(Skipped, match="names another token of my-net"):
        signed("my-net", **known, allow_mainnet=True)
    own = {"asset": checksum(OWN.asset)}
    header = read_header(signed("my-net", own, **known, allow_mainnet=True))
    digest = transfer_digest(header.authorization, OWN.domain)
    assert recover(digest, header.signature) == WALLET.address_bytes
    world = httpx.AsyncClient(base_url="http://world")
    assert signed("my-net", **known, control=world).startswith("0x")


def test_cookies_are_not_sent_back() -> None:
    sent = []

    async def greets(request: Request) -> Response:
        sent.append(request.headers.get("cookie"))
        return JSONResponse({}, headers={"Set-Cookie": "paid=1; Path=/"})

    async def asks_twice(probe: Probe) -> None:
        for _ in range(2):
            await probe.send("GET", "/")

    asks_twice = case("2.1/resource", asks_twice)

    judged(Starlette(routes=[Route("/", greets)]), [asks_twice])
    assert sent == [None, None]


KEY = "0x" + "1f" * 32
SECRETS = {
    "a key": KEY.upper(),
    "a signature": "0x" + "ab" * 65,
    "a payment header": "0x" + b'{"x402Version":1,"payload":{"signature":"0x00"}}'.hex() * 3,
    "a payment header in base64": "eyJ4NDAyVmVyc2lvbiI6MX0" * 12,
    "a payment id": "pay_0123456789abcdef",
    "a session id": "session_0123456789abcdef",
    "a header of the user": "the value of an API key",
}


SAID = " and ".join(SECRETS.values())


@pytest.mark.parametrize(
    "ends",
    [CheckFailed("", list(SECRETS.values()), SAID), Inconclusive(SAID), LookupError(SAID), None],
)
def test_results_contain_no_secret(ends: Exception | None) -> None:
    async def tell(probe: Probe) -> None:
        probe.observe(SAID)

    told = case("5/reuse", tell, ends=ends, ground=silent(why="a test"))
    own = (SECRETS["a header of the user"],)
    (result,) = judged(refuses_all(), [told], payer=Wallet(KEY), budget_base=10**6, secrets=own)
    shown = " ".join(str(each) for each in (result.expected, result.actual, result.reason))
    assert "hidden" in shown
    for name, secret in SECRETS.items():
        assert secret.lower() not in shown.lower(), name
        assert secret.lower()[12:44] not in shown.lower(), name


def test_a_hash_and_an_address_are_no_secrets() -> None:
    tells = case("2.1/resource", ends=CheckFailed("", "0x" + "ab" * 32, "0x" + "cd" * 20))
    (result,) = judged(refuses_all(), [tells])
    assert (result.expected, result.actual) == ("0x" + "ab" * 32, "0x" + "cd" * 20)


@pytest.mark.parametrize(
    ("clause", "options", "said"),
    [
        ("2.2/bdy", {}, "unknown clause '2.2/bdy'; did you mean '2.2/body'? Possible: 2.2/"),
        ("2.2/body", {"needs": "fund"}, "unknown need 'fund'; did you mean 'funds'?"),
        ("2.2/body", {"needs": "funds, faults"}, "unknown need of a check 'faults'"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(
    clause: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError) as raised:
        case(clause, **options)
    assert said in str(raised.value)


def test_every_need_of_a_check_can_be_missing() -> None:
    setting = setting_for(refuses_all())
    target_has = {Need.SESSIONS, Need.AGENTS, Need.LLMS}
    missing = {need for need in HOW_TO_PROVIDE if setting.missing(need)}
    assert missing == set(HOW_TO_PROVIDE) - target_has


def test_a_session_id_is_found_anywhere_in_an_answer() -> None:
    assert find_session_id({"data": [{"x": "session_abc1"}]}) == "session_abc1"
    assert find_session_id({"x": "session_zz9", "session": ["session_abc"]}) == "session_abc"
    assert find_session_id({"session_id": "abc", "n": 1}) is None
    assert find_session_id("session_") is None
    assert find_session_id({"state": "session_opened", "self": "/s/session_ab1?x"}) == "session_ab1"
    assert find_session_id({"a": "session_ab1", "sessionId": "session_xyz"}) == "session_xyz"


def test_a_failure_shows_no_proof_and_no_signature_but_to_send_play_money_again() -> None:
    async def shows(probe: Probe) -> None:
        paid = await probe.buy()
        secrets.append(paid.header)
        secrets.append(paid.challenge.payment_id)
        await probe.settle(paid.challenge, paid.header)
        raise CheckFailed("it", 1, paid.receipt.summary)

    shows = case("2.1/scheme", shows, needs="funds")

    secrets: list[str] = []
    (result,) = judge(OURS, checks=[shows])
    header, payment_id = secrets
    *lines, again = written(result.exchanges)
    assert again.startswith(AGAIN)
    assert header in again
    assert payment_id in again
    shown = f"{lines}{result.actual}{result.expected}"
    assert payment_id not in shown
    assert payment_id[:8] in shown
    assert header[2:200] not in shown
    assert "hidden" in shown
