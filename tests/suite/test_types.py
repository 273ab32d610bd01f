"""Any answer ends in a verdict: a field of another type is a failure, what is only a form is none."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from tests.bounded.hostile_peer import RECEIPT, wanted
from tests.campaign import at_length
from tests.hostile.inputs import places, replaced
from tests.mutants.changes import Change, all_of
from tests.mutants.honest import own_target
from tests.mutants.judging import judge_one
from tests.mutants.messages import Answer, Request, Serve, answer
from tests.mutants.middleware import middleware, requests
from tests.payer.test_reading import STATUSES, as_bytes, changed, charsets, values
from x402sim import World
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.routes import PAY
from x402sim.rng import Rng
from x402sim.service.state import Service
from x402sim.serving.control.client import ControlClient
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service.answers import TargetAnswer, find_session_id, read_402
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import all_checks, run_case
from x402sim.suite.service.local import judge
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.sending import client
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.subject import parse
from x402sim.suite.service.target import Target, at
from x402sim.suite.verdict import Inconclusive, Skipped

LONG = "9" * 5000
HUGE = 10**400
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 300.0, 1e300, 2**63, HUGE),
    *("", "x", "300", "0x", "\ud7ff\0", LONG, [], ["x"], [[]], {}, {"x": None}, {"": []}),
)
"""Values of every type, and some that are of the right type and too large."""


def at_random(seed: int, share: float = 0.25) -> Change:
    """Twist a share of all answers: one field of each gets a value of another type."""
    luck = Random(seed)

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        if luck.random() > share or reply.json is None:
            return reply
        place = luck.choice(places(reply.json))
        return answer(reply.status, replaced(reply.json, place, luck.choice(OTHERS)))

    return middleware(handler)


def everywhere(at: tuple[str | int, ...], other: Any) -> Change:
    """Give one field of every answer that has it another value."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        body = reply.json
        if body is None or at not in places(body):
            return reply
        return answer(reply.status, replaced(body, at, other))

    return middleware(handler)


# --- the tests ----------------------------------------------------------------------


CHECKS = all_checks()
WANTED = "paymentRequirements"
FIELDS: dict[tuple[str, ...], str] = {
    (WANTED, "scheme"): "2.1/scheme",
    (WANTED, "network"): "2.1/network",
    (WANTED, "payTo"): "2.1/pay-to",
    (WANTED, "asset"): "2.1/asset",
    (WANTED, "maxAmountRequired"): "2.1/amount",
    (WANTED, "maxTimeoutSeconds"): "2.1/timeout",
    (WANTED, "resource"): "2.1/resource",
    (WANTED, "description"): "2.1/description-shown",
    (WANTED,): "2.2/body",
    ("paymentId",): "2.2/body",
    ("error",): "2.2/body",
    ("message",): "2.2/body",
    ("network",): "2.2/body",
    ("success",): "4.1/receipt",
    ("txHash",): "4.1/receipt",
    ("timestamp",): "4.1/receipt",
    ("quote", "pair"): "4.2/quote",
    ("quote", "entryPrice"): "4.2/quote",
    ("quote", "bestVenue"): "4.2/quote",
}
"""The fields of our own answers, and the check that must fail if one has another type."""
WRONG: tuple[Any, ...] = (None, True, -1.5, HUGE, [["x"]], {"x": None})

RIGHT: tuple[tuple[tuple[str, ...], Any], ...] = (
    ((WANTED, "maxTimeoutSeconds"), HUGE),
    (("success",), True),
    (("quote", "entryPrice"), -1.5),
    (("quote", "entryPrice"), HUGE),
)
"""What is of the right type, among them."""


def bugs(results: list[Result]) -> list[str]:
    """Return what the engine says of checks that ended in no verdict of their own."""
    reasons = [f"{each.id}: {case.reason}" for each in results for case in each.cases]
    return [reason for reason in reasons if "has a bug" in reason]


@pytest.mark.parametrize("other", WRONG, ids=lambda other: repr(other)[:12])
@pytest.mark.parametrize("at", FIELDS, ids=".".join)
def test_a_field_of_another_type_fails_its_check(at: tuple[str, ...], other: Any) -> None:
    its_own = [check for check in CHECKS if check.id == f"spec/{FIELDS[at]}"]
    world = everywhere(at, other)(World(seed=1))
    (result,) = judge(world, target=own_target(), checks=its_own, has_clock=False)
    if (at, other) in RIGHT:
        assert result.outcome is not Outcome.FAILED
    else:
        assert result.outcome is Outcome.FAILED, result.reason
        assert result.expected
        assert result.actual
    assert bugs([result]) == []


def taken_back(request: Request) -> Request:
    """Return a settlement with the timeout that the service means."""
    body = request.json
    wanted = body.get(WANTED) if isinstance(body, dict) else None
    if not isinstance(wanted, dict) or wanted.get("maxTimeoutSeconds") == 86_400:
        return request
    return request.sending({**body, WANTED: {**wanted, "maxTimeoutSeconds": 300}})


@pytest.mark.parametrize(
    "other", [LONG, *(pytest.param(each, marks=pytest.mark.thorough) for each in ("300", None, 0))]
)
def test_a_timeout_of_another_type_keeps_no_other_check_from_judging(other: Any) -> None:
    at = (WANTED, "maxTimeoutSeconds")
    prefixes = ("spec/1/", "spec/2.", "spec/4.1/", "spec/5/")
    checks = [check for check in CHECKS if check.id.startswith(prefixes) and not check.waits]
    shown = all_of(everywhere(at, other), requests(PAY, taken_back))
    world = shown(World(seed=1))
    results = judge(world, target=own_target(), checks=checks)
    assert bugs(results) == []
    unclear = [result.id for result in results if result.outcome is Outcome.INCONCLUSIVE]
    assert len(results) == len({check.id for check in checks})
    assert unclear == []


SEEDS = range(10, 10 + at_length(2, 30))
MANY = [
    *((1, 0.02, False), (2, 0.1, False), (3, 0.3, False)),
    *((seed, 0.05, has_clock) for seed in SEEDS for has_clock in (True, False)),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "share", "has_clock"), MANY)
def test_no_answer_of_another_type_is_a_bug_of_a_check(
    seed: int, share: float, has_clock: bool
) -> None:
    """A share of all answers has one field of another type."""
    world = at_random(seed, share)(World(seed=seed))
    results = judge(world, target=own_target(), checks=CHECKS, has_clock=has_clock)
    assert bugs(results) == []


IDLE_S = 0.9


@pytest.mark.parametrize(
    ("defect", "check_id"),
    [
        ("never-debited", "spec/5/session-debit"),
        ("a-session-each-time", "spec/3/deposit-makes-session"),
    ],
)
def test_what_is_served_too_much_is_shown_and_not_the_402_that_ends_it(
    defect: str, check_id: str
) -> None:
    verdict = judge_one(defect, [check for check in all_checks() if check.id == check_id])
    (exchange,) = verdict.results[check_id].exchanges
    assert exchange.answer
    assert exchange.answer.line == "200"
    assert '"quote"' in exchange.answer.body


def test_the_command_that_repeats_a_run_names_the_variable_of_the_key() -> None:
    key = "0x" + "17" * 32
    told = parse("http://h", payer_key=key, restart="1 $X").rerun
    assert told.endswith(""" http://h --payer-key "$X402SIM_PAYER_KEY" --restart '1 $X'""")
    assert key not in told


def test_a_service_may_close_a_connection_that_is_idle() -> None:
    """It closes it as the next request arrives, without an answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock, before_s = Clock(), Clock().now()
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            await reader.readexactly(size)
            if clock.now() - before_s > IDLE_S:
                break
            before_s = clock.now()
            writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    async def main() -> list[int]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with client(url, Options()) as http:
                probe = Probe(Setting(http=http))
                first = await probe.ask()
                await asyncio.sleep(IDLE_S + 0.1)
                second = await probe.ask()
        await asyncio.sleep(0.05)  # the connections end
        return [first.status, second.status]

    assert asyncio.run(main()) == [404, 404]


def test_a_402_with_its_parts_elsewhere_names_the_keys_that_cure_it() -> None:
    body = {"payment": {"id": "pay_1"}, "accepts": {"payTo": "0x1", "maxAmountRequired": "1"}}
    with pytest.raises(Inconclusive) as said:
        read_402(TargetAnswer(Target(), 402, httpx.Headers(), "", body, str))
    assert 'payment_required.payment_id = "/payment/id"' in str(said.value)
    assert 'payment_required.requirements = "/accepts"' in str(said.value)


def summary(text: str) -> str:
    return TargetAnswer(Target(), 402, httpx.Headers(), text, None, str).summary


def test_a_summary_shows_no_part_of_what_it_hides() -> None:
    told = summary("f" * 4000)
    assert "ffff" not in told
    assert told.endswith("… (2000 more characters)")


answers = st.tuples(
    STATUSES,
    st.binary() | as_bytes(values) | as_bytes(changed(wanted("/x"))) | as_bytes(changed(RECEIPT)),
    charsets,
)
WHO = {"payTo": "0x" + "1" * 40, "journal": 1, "now": 1, "service": True, "offers": []}
worlds = st.tuples(
    STATUSES,
    st.binary()
    | as_bytes(values)
    | as_bytes(changed({"jsonrpc": "2.0", "id": 1, "result": "0x1"}))
    | as_bytes(changed(WHO))
    | as_bytes(values.map(lambda each: [{"from": each, "to": each, "amount": each}])),
    charsets,
)
KINDS = (Inconclusive, Skipped)


def setting(answer: Any, world: Any = None) -> Setting:
    """A target that always gives one answer, and a world and a node that always give another."""

    def client(answer: Any) -> httpx.AsyncClient:
        def serve(_: httpx.Request) -> httpx.Response:
            status, body, charset = answer
            kind = {"Content-Type": f"application/json; charset={charset}"}
            response = httpx.Response(status, content=body, headers=kind)
            response.encoding = "utf-8"  # as the bounded transport does
            return response

        return httpx.AsyncClient(transport=httpx.MockTransport(serve), base_url="http://target")

    return Setting(
        options=Options(payer=None if world else Wallet(b"k" * 32), budget_base=100_000),
        http=client(answer),
        clock=Clock(lambda: 1_800_000_000.0),
        rng=Rng(1),
        control=ControlClient(client(world)) if world else None,
        rpc=client(world) if world else None,
    )


def reads(act: Callable[[Probe], Coroutine[Any, Any, Any]], *answers: Any) -> None:
    try:
        asyncio.run(act(Probe(setting(*answers))))
    except KINDS:
        return


@given(answers)
def test_a_probe_reads_any_answer(answer: Any) -> None:
    async def buy(probe: Probe) -> None:
        found = await probe.ask()
        assert len(found.summary) < 200
        assert probe.last is not None
        assert probe.last.show()
        assert isinstance(found.has_content, bool)
        await probe.buy()

    reads(buy, answer)
    reads(lambda probe: probe.open_session("0.02"), answer)


@given(answers, worlds)
def test_a_probe_reads_any_world(answer: Any, world: Any) -> None:
    async def transfers(probe: Probe) -> None:
        await probe.world.transfers(Wallet(b"k" * 32))

    reads(transfers, answer, world)
    reads(lambda probe: probe.world.next_event(), answer, world)
    reads(lambda probe: probe.world.journal(0), answer, world)
    reads(lambda probe: probe.chain.call("eth_blockNumber"), answer, world)
    reads(lambda probe: probe.buy(), answer, world)


@given(values, st.text("/~01a", max_size=8))
def test_a_pointer_finds_a_value_or_none(body: Any, pointer: str) -> None:
    at(body, pointer)
    found = find_session_id(body)
    assert found is None or found.startswith("session_")


UNPAID = [check for check in all_checks() if not check.needs and not check.control]


@settings(max_examples=30)
@given(answers, st.sampled_from(UNPAID))
def test_a_check_of_any_answer_ends_in_a_verdict(answer: Any, check: ServiceCase) -> None:
    """A check may judge an answer wrongly, but a target cannot make it crash."""
    where = replace(setting(answer), options=Options())
    result = asyncio.run(run_case(where, check))
    assert isinstance(result.outcome, Outcome)
    assert "has a bug" not in result.reason


def test_a_world_that_breaks_after_a_check_makes_it_inconclusive() -> None:
    calls = []

    def serve(request: httpx.Request) -> httpx.Response:
        calls.append(request.url.path)
        if len(calls) > 1:
            raise httpx.ReadTimeout("gone", request=request)
        return httpx.Response(200, json={})

    where = setting((200, b"{}", "utf-8"))
    control = httpx.AsyncClient(transport=httpx.MockTransport(serve), base_url="http://world")
    check = replace(UNPAID[0], run=lambda probe: probe.world.post("crash"))
    result = asyncio.run(run_case(replace(where, control=ControlClient(control)), check))
    assert calls == ["/crash", "/faults/clear"]
    assert (result.outcome, "were not cleared" in result.reason) == (Outcome.INCONCLUSIVE, True)
