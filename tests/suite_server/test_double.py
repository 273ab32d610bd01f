"""The double between servers and our facilitator passes the judge of facilitators."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.suite_facilitator.judging import judged, mutant
from x402sim.suite.facilitator.room import Given
from x402sim.suite.facilitator.subject import all_cases
from x402sim.suite.report.results import Outcome
from x402sim.suite.server.double import (
    INVALID,
    REFUSED,
    SETTLE,
    USED,
    VERIFY,
    Call,
    Double,
    refuses,
)
from x402sim.suite.started import App
from x402sim.suite.wire import Reply, Request, as_json

OF_PAYMENTS = ("control", "fields", "domain", "signature", "nonce", "again", "balance")
"""The sections about settlements and payees; for all others the double is a pipe."""


def double(given: Given) -> Any:
    """Return the double before a facilitator of nobody of ours, as an ASGI application."""
    there = httpx.ASGITransport(mutant().make(given))
    its = Double("http://facilitator", httpx.AsyncClient(transport=there))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        reply = await its.answer(Request(scope["method"], scope["path"], headers, body, ""))
        told = [(name.lower().encode(), text.encode()) for name, text in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": told})
        await send({"type": "http.response.body", "body": reply.body})

    return app


@pytest.mark.thorough
@pytest.mark.parametrize("dialect", ["v1", "v2"])
def test_the_double_of_the_facilitator_passes_the_judge_of_facilitators(dialect: str) -> None:
    cases = [
        case
        for case in all_cases()
        if case.section in OF_PAYMENTS and case.dialect == dialect and case.level == "MUST"
        and case.kind.name in ("plain", "rough")
    ]  # fmt: skip
    found = judged(App(double), cases, [cases[0].dialect])
    assert {name: it.actual for name, it in found.items() if it.outcome is not Outcome.PASSED} == {}


def test_another_payers_payment_with_the_same_nonce_is_settled_by_itself() -> None:
    settled = []

    def request(payer: str, signature: str = "0x1") -> Request:
        payload = {"signature": signature, "authorization": {"from": payer, "nonce": "0xAB"}}
        asked = {"paymentPayload": {"payload": payload}, "paymentRequirements": {"amount": "1"}}
        return Request("POST", SETTLE, {}, as_json(asked).body, "")

    async def facilitator(request: httpx.Request) -> httpx.Response:
        settled.append(request)
        return httpx.Response(200, json={"success": True, "transaction": f"0x{len(settled)}"})

    async def run() -> list[Reply]:
        its = Double("http://f", httpx.AsyncClient(transport=httpx.MockTransport(facilitator)))
        asked = ("0xa",), ("0xA",), ("0xb",), ("0xa", "0x2")
        return [await its.answer(request(*each)) for each in asked]

    first, again, other, unsigned = asyncio.run(run())
    assert first == again
    assert len({first.body, other.body, unsigned.body}) == 3
    assert Call(SETTLE, None).nonce == ""


@pytest.mark.parametrize("network", ["base-sepolia", "eip155:84532"])
def test_a_refusal_has_the_payer_and_the_network_of_the_request(network: str) -> None:
    """Version 1 demands both of a settlement, in its own words for networks, and shows the payer in
    every answer; an SDK that reads no other answer is not to blame."""
    payload = {"authorization": {"from": "0xa", "nonce": "0xab"}}
    asked = {"paymentPayload": {"payload": payload}, "paymentRequirements": {"network": network}}

    async def run(path: str, fields: dict[str, Any], body: Any = asked) -> Any:
        reply = await refuses(fields, 400)(Call(path, body), pytest.fail)
        assert reply is not None
        return reply.status, json.loads(reply.body)

    both = {"payer": "0xa", "network": network}
    for fields in (REFUSED, USED, REFUSED | {"success": "false"}):
        assert asyncio.run(run(SETTLE, fields)) == (400, fields | both)
    assert asyncio.run(run(VERIFY, INVALID)) == (400, INVALID | {"payer": "0xa"})
    assert asyncio.run(run(VERIFY, INVALID, [])) == (400, INVALID)
