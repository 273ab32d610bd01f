"""Every switch of the decisions does something: its alternative behaves as the table says."""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import pytest

from tests.rig import ORDER, ServiceRig, answer, broken, lose_request, only, scene
from tests.service.standard import set_up, sign
from x402sim import Wallet
from x402sim.spec.decisions import Decisions, alternatives

Observe = Callable[[ServiceRig], Awaitable[Any]]


async def bad_unpaid_body(rig: ServiceRig) -> int:
    return (await rig.http.post("/api/perp/quote", json={})).status_code


async def side(rig: ServiceRig) -> tuple[int, int]:
    proof = {"X-Payment-Id": await rig.buy()}
    asked = [{**ORDER, "side": side} for side in ("long", "buy")]
    answers = [await rig.http.post("/api/perp/quote", json=a, headers=proof) for a in asked]
    return answers[0].status_code, answers[1].status_code


async def released_with_both(rig: ServiceRig) -> str:
    payment_id, session = await rig.buy(), await rig.open_session("0.05")
    await rig.ask(x_payment_id=payment_id, x_session_id=session["sessionId"])
    shown = await rig.http.get(f"/api/sessions/{session['sessionId']}")
    return str(shown.json()["released"])


async def short_session(rig: ServiceRig) -> int:
    assert (await rig.ask(x_session_id="session_unknown")).status_code == 402
    session_id = (await rig.open_session("0.01", duration=60))["sessionId"]
    assert (await rig.ask(x_session_id=session_id)).status_code == 200
    return (await rig.ask(x_session_id=session_id)).status_code


async def created(rig: ServiceRig) -> tuple[int, int]:
    """Return the status of a new session, and its seconds."""
    required = await rig.ask_session("0.05", 10)
    await rig.pay(required)
    made = await rig.ask_session(x_payment_id=required.json()["paymentId"])
    return made.status_code, (made.json()["expiresAt"] - rig.clock.now_ms()) // 1000


async def poor(rig: ServiceRig) -> int:
    required = await rig.ask()
    return (await rig.pay(required, rig.sign(required, Wallet.create()))).status_code


async def forged(rig: ServiceRig) -> int:
    return (await rig.pay(await rig.ask(), "0x00")).status_code


async def expired(rig: ServiceRig) -> int:
    required = await rig.ask()
    rig.now[0] += 1000
    return (await rig.pay(required)).status_code


async def replayed(rig: ServiceRig) -> int:
    required = await rig.ask()
    header = rig.sign(required)
    await rig.pay(required, header)
    return (await rig.pay(await rig.ask(), header)).status_code


async def settled_twice(rig: ServiceRig) -> int:
    required = await rig.ask()
    await rig.pay(required)
    return (await rig.pay(required)).status_code


async def tampered(rig: ServiceRig) -> int:
    required = await rig.ask()
    body = {**required.json(), "paymentHeader": rig.sign(required)}
    body["paymentRequirements"]["maxAmountRequired"] = "1"
    return (await rig.http.post("/api/pay", json=body)).status_code


async def outage(rig: ServiceRig) -> int:
    with broken(rig, "facilitator", lose_request):
        return (await rig.pay(await rig.ask())).status_code


async def pending(rig: ServiceRig) -> int:
    required = await rig.ask()
    with broken(rig, "facilitator", only("/settle", answer(500, "oops"))):
        await rig.pay(required)
    return (await rig.pay(required)).status_code


async def replayed_in_one_step(rig: ServiceRig) -> list[int]:
    payment = sign(rig, 2, await rig.ask())
    return [(await rig.ask(**payment)).status_code for _ in range(2)]


async def agents(rig: ServiceRig) -> int:
    return (await rig.http.get("/api/agents")).status_code


OBSERVED: dict[str, tuple[Observe, Any, Any]] = {
    "gate_before_body": (bad_unpaid_body, 402, 400),
    "sides": (side, (200, 400), (400, 200)),
    "payment_id_first": (released_with_both, "0", "10000"),
    "short_session_status": (short_session, 402, 403),
    "duration_unit_s": (created, (201, 10), (201, 600)),
    "session_created_status": (created, (201, 10), (200, 10)),
    "insufficient_balance_status": (poor, 402, 400),
    "invalid_signature_status": (forged, 400, 422),
    "authorization_expired_status": (expired, 400, 402),
    "nonce_used_status": (replayed, 409, 400),
    "already_settled_status": (settled_twice, 409, 400),
    "requirements_mismatch_status": (tampered, 400, 422),
    "facilitator_unreachable_status": (outage, 502, 503),
    "settlement_pending_status": (pending, 409, 425),
    "authorization_once": (replayed_in_one_step, [200, 402], [200, 200]),
    "agents_free": (agents, 200, 402),
}


def test_every_switch_is_observed() -> None:
    assert set(OBSERVED) == {switch.name for switch in fields(Decisions)}


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "the alternative"])
@pytest.mark.parametrize("name", OBSERVED)
@scene
async def test_a_switch_changes_what_it_says(rig: ServiceRig, name: str, is_ours: bool) -> None:
    observe, ours, otherwise = OBSERVED[name]
    if not is_ours:
        set_up(rig, decide={name: getattr(alternatives(), name)})
    assert await observe(rig) == (ours if is_ours else otherwise)


@pytest.mark.parametrize(
    "wrong", [{"side": "up"}, {"leverage": 0}, {"sizeUsd": -1}, {"pair": "BTC"}], ids=str
)
@scene
async def test_a_body_is_validated_whole_before_the_gate(
    rig: ServiceRig, wrong: dict[str, Any]
) -> None:
    """Nobody is asked to pay for an order that will be refused."""
    set_up(rig, decide={"gate_before_body": False})
    for headers in ({}, {"X-Payment-Id": await rig.buy()}):
        answer = await rig.http.post("/api/perp/quote", json=ORDER | wrong, headers=headers)
        assert answer.status_code == 400
