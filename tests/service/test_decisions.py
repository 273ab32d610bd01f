"""Every switch of the decisions does something: its alternative behaves as the table says."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import pytest

from tests.bench import ORDER, Bench, answer, broken, lose_request, only
from x402sim import Wallet
from x402sim.spec.decisions import Decisions

Observe = Callable[[Bench], Awaitable[Any]]


async def bad_unpaid_body(bench: Bench) -> int:
    return (await bench.http.post("/api/perp/quote", json={})).status_code


async def side(bench: Bench) -> tuple[int, int]:
    proof = {"X-Payment-Id": await bench.buy()}
    asked = [{**ORDER, "side": side} for side in ("long", "buy")]
    answers = [await bench.http.post("/api/perp/quote", json=a, headers=proof) for a in asked]
    return answers[0].status_code, answers[1].status_code


async def released_with_both(bench: Bench) -> str:
    payment_id, session = await bench.buy(), await bench.open_session("0.05")
    await bench.ask(x_payment_id=payment_id, x_session_id=session["sessionId"])
    shown = await bench.http.get(f"/api/sessions/{session['sessionId']}")
    return str(shown.json()["released"])


async def unknown_session(bench: Bench) -> int:
    return (await bench.ask(x_session_id="session_unknown")).status_code


async def session_length_s(bench: Bench) -> int:
    required = await bench.ask_session("0.05", 10)
    await bench.pay(required)
    made = await bench.ask_session(x_payment_id=required.json()["paymentId"])
    return int(made.json()["expiresAt"] - bench.clock.now_ms()) // 1000


async def created(bench: Bench) -> int:
    required = await bench.ask_session("0.05", 10)
    await bench.pay(required)
    return (await bench.ask_session(x_payment_id=required.json()["paymentId"])).status_code


async def poor(bench: Bench) -> int:
    required = await bench.ask()
    return (await bench.pay(required, bench.sign(required, Wallet.create()))).status_code


async def forged(bench: Bench) -> int:
    return (await bench.pay(await bench.ask(), "0x00")).status_code


async def expired(bench: Bench) -> int:
    required = await bench.ask()
    bench.now[0] += 1000
    return (await bench.pay(required)).status_code


async def replayed(bench: Bench) -> int:
    required = await bench.ask()
    header = bench.sign(required)
    await bench.pay(required, header)
    return (await bench.pay(await bench.ask(), header)).status_code


async def settled_twice(bench: Bench) -> int:
    required = await bench.ask()
    await bench.pay(required)
    return (await bench.pay(required)).status_code


async def tampered(bench: Bench) -> int:
    required = await bench.ask()
    body = {**required.json(), "paymentHeader": bench.sign(required)}
    body["paymentRequirements"]["maxAmountRequired"] = "1"
    return (await bench.http.post("/api/pay", json=body)).status_code


async def outage(bench: Bench) -> int:
    with broken(bench, "facilitator", lose_request):
        return (await bench.pay(await bench.ask())).status_code


async def pending(bench: Bench) -> int:
    required = await bench.ask()
    with broken(bench, "facilitator", only("/settle", answer(500, "oops"))):
        await bench.pay(required)
    return (await bench.pay(required)).status_code


async def agents(bench: Bench) -> int:
    return (await bench.http.get("/api/agents")).status_code


OBSERVED: dict[str, tuple[Observe, Any, Any]] = {
    "gate_before_body": (bad_unpaid_body, 402, 400),
    "sides": (side, (200, 400), (400, 200)),
    "payment_id_first": (released_with_both, "0", "10000"),
    "short_session_status": (unknown_session, 402, 403),
    "duration_unit_s": (session_length_s, 10, 600),
    "session_created_status": (created, 201, 200),
    "insufficient_balance_status": (poor, 402, 400),
    "invalid_signature_status": (forged, 400, 422),
    "authorization_expired_status": (expired, 400, 402),
    "nonce_used_status": (replayed, 409, 400),
    "already_settled_status": (settled_twice, 409, 400),
    "requirements_mismatch_status": (tampered, 400, 422),
    "facilitator_unreachable_status": (outage, 502, 503),
    "settlement_pending_status": (pending, 409, 425),
    "agents_free": (agents, 200, 402),
}


def test_every_switch_is_observed() -> None:
    assert set(OBSERVED) == {switch.name for switch in fields(Decisions)}


@pytest.mark.parametrize("name", OBSERVED)
def test_a_switch_changes_what_it_says(name: str) -> None:
    observe, by_default, otherwise = OBSERVED[name]
    (switch,) = (s for s in fields(Decisions) if s.name == name)

    async def story(decisions: Decisions) -> Any:
        bench = Bench(decisions=decisions)
        try:
            return await observe(bench)
        finally:
            await bench.http.aclose()
            await bench.parts.http.aclose()
            bench.service.store.close()

    assert asyncio.run(story(Decisions())) == by_default
    changed = Decisions(**{name: switch.metadata["alternative"]})
    assert asyncio.run(story(changed)) == otherwise
