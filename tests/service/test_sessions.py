"""Sections 2.6, 3 and 4.4: sessions, from deposit to refund."""

import asyncio

import pytest

from tests.own_parts import ServeConfirmed
from tests.rig import ServiceRig, answer, broken, only, scene
from tests.service.standard import set_up, settled
from x402sim.policies import ServicePolicy
from x402sim.service import sessions

MAX_SPENDS: tuple[object, ...] = ("1.0", "0.00", "99999999999999999.00", "1.00\n", 1.00, "1" * 5000)
DURATIONS = (0, "60", 1.5, True, None, 10**30)


@pytest.mark.clause("4.4/deposit-402", "4.4/max-spend")
@scene
async def test_a_bad_amount_or_duration_is_named(rig: ServiceRig) -> None:
    wanted = (await rig.ask_session("0.29")).json()["paymentRequirements"]
    assert (wanted["maxAmountRequired"], wanted["resource"]) == ("290000", "/api/sessions/create")
    wrong = [("$.maxSpend", each, 3600) for each in MAX_SPENDS]
    for field, *asked in wrong + [("$.duration", "1.00", each) for each in DURATIONS]:
        response = await rig.ask_session(*asked)
        assert response.status_code == 400, asked
        assert field in response.json()["reason"], asked


@pytest.mark.clause("4.4/deposit-flow", "2.6/id-prefix", "2.6/remaining", "3/deposit-makes-session")
@scene
async def test_one_deposit_makes_one_session_whatever_is_repeated(rig: ServiceRig) -> None:
    required = await rig.ask_session("0.05", 60)
    await rig.pay(required)
    paid = {"x_payment_id": required.json()["paymentId"]}
    first = await rig.ask_session("0.05", 60, **paid)
    others = [await rig.ask_session(m, d, **paid) for m, d in (("900.00", 10**6), ("bad", None))]
    assert first.status_code == 201
    assert first.json() == {
        "sessionId": first.json()["sessionId"],
        "deposited": "50000",
        "released": "0",
        "remaining": "50000",
        "expiresAt": rig.clock.now_ms() + 60_000,
        "status": "active",
    }
    assert first.json()["sessionId"].startswith("session_")
    assert [other.json() for other in others] == [first.json()] * 2
    assert rig.service.store.counts()["sessions"] == 1
    quote = await rig.ask(**paid)
    assert quote.status_code == 402, "a deposit is not a quote"


@pytest.mark.clause("3/deposit-makes-session", "4.1/store-settled")
@scene
async def test_a_deposit_is_settled_with_its_session_or_not_at_all(rig: ServiceRig) -> None:
    required = await rig.ask_session("0.05", 60)
    header = rig.sign(required)
    rig.service.store.execute(
        "CREATE TEMP TRIGGER fails BEFORE INSERT ON main.sessions "
        "BEGIN SELECT RAISE(ABORT, 'no session'); END"
    )
    assert (await rig.pay(required, header)).status_code == 500
    assert rig.service.store.payments.unresolved() == 1
    rig.service.store.execute("DROP TRIGGER fails")
    assert (await rig.pay(required, header)).status_code == 200
    paid = {"x_payment_id": required.json()["paymentId"]}
    assert (await rig.ask_session("0.05", 60, **paid)).status_code == 201
    assert rig.transfers() == 1


@pytest.mark.clause("3/refund-once")
@scene
async def test_sweeps_at_once_refund_once_and_the_token_itself_refuses_a_second_refund(
    rig: ServiceRig,
) -> None:
    """Even if the record of it is lost, as after restoring an old backup."""
    session = await rig.open_session("0.05", duration=60)
    await rig.open_session("0.05", duration=6000)
    rig.now[0] += 59
    assert (await sessions.expire(rig.service), rig.earned) == (0, 100_000)
    rig.now[0] += 1
    await asyncio.gather(*(sessions.expire(rig.service) for _ in range(5)))
    assert rig.earned == 50_000
    rig.service.store.execute("UPDATE refunds SET status = 'pending', tx_hash = NULL")
    assert await sessions.expire(rig.service) == 1
    assert rig.earned == 50_000
    shown = (await rig.http.get(f"/api/sessions/{session['sessionId']}")).json()
    assert shown["status"] == "refunded"


@scene
async def test_a_session_waits_for_the_blocks_on_its_deposit(rig: ServiceRig) -> None:
    set_up(rig, policy=ServicePolicy(serve=ServeConfirmed(3)))
    required = await rig.ask_session("0.05")
    await rig.pay(required)
    await rig.parts.chain.mine(3)
    paid = {"x_payment_id": required.json()["paymentId"]}
    session = (await rig.ask_session("0.05", **paid)).json()["sessionId"]
    assert (await rig.ask(x_session_id=session)).status_code == 200


@pytest.mark.clause("3/expiry-refund")
@scene
async def test_a_deposit_that_is_in_no_block_is_not_refunded_and_not_asked_for_all_the_time(
    rig: ServiceRig,
) -> None:
    required = await rig.ask_session("0.05", 60)
    lie = answer(200, settled(rig, required, "0x" + "77" * 32))
    with broken(rig, "facilitator", only("/settle", lie)):
        assert (await rig.pay(required)).status_code == 200
    rig.now[0] += 60
    assert await sessions.expire(rig.service) == 0
    asked = len(rig.wires["rpc"].seen)
    rig.now[0] += 5
    assert await sessions.expire(rig.service) == 0
    assert len(rig.wires["rpc"].seen) == asked
    assert rig.transfers() == 0
