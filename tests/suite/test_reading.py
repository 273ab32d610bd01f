"""The suite reads any answer of a target or a world: it ends in a verdict, never in a crash."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx
from hypothesis import given, settings, strategies as st

from tests.bounded.hostile_peer import RECEIPT, wanted
from tests.payer.test_reading import STATUSES, as_bytes, changed, charsets, values
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.report.results import Outcome
from x402sim.rng import Rng
from x402sim.suite.service.answers import find_session_id
from x402sim.suite.service.check import Check
from x402sim.suite.service.engine import all_checks, run_case
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import at
from x402sim.suite.verdict import Inconclusive, Skipped
from x402sim.world.control.client import ControlClient

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
    """Act, and accept an answer or a verdict."""
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


CHECKS = [check for check in all_checks() if not check.needs and check.baseline is None]


@settings(max_examples=30)
@given(answers, st.sampled_from(CHECKS))
def test_a_check_of_any_answer_ends_in_a_verdict(answer: Any, check: Check) -> None:
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
    check = replace(CHECKS[0], run=lambda probe: probe.world.post("crash"))
    result = asyncio.run(run_case(replace(where, control=ControlClient(control)), check))
    assert calls == ["/crash", "/faults/clear"]
    assert (result.outcome, "were not cleared" in result.reason) == (Outcome.INCONCLUSIVE, True)
