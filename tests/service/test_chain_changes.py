"""The chain changes its mind, and the records follow; claims outlive refusals and lies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.rig import (
    Deliver,
    ServiceRig,
    answer,
    broken,
    logs_of_few_blocks,
    lose_answer,
    lose_request,
    only,
    scene,
)
from tests.service.standard import in_form, is_served, low_v, record, submit
from tests.service.test_adversary import lose_settlement
from x402sim.chain.base import Call
from x402sim.events import RefundUndone, SessionRefunded
from x402sim.protocol import abi
from x402sim.protocol.crypto import HALF_ORDER, Hash, from_hex
from x402sim.protocol.header import authorization_of
from x402sim.protocol.networks import TESTNET
from x402sim.service import indexer, sessions
from x402sim.service.reconcile import grant, pays_for, reconcile, revoke, suspend
from x402sim.service.upstream import chain
from x402sim.service.upstream.calls import Unavailable

OTHER = "0x" + "0" * 64
"""The hash of a transaction that no block has."""


@pytest.mark.clause("3/pending-resolved")
@pytest.mark.parametrize(
    "verdict",
    [{"isValid": False, "invalidReason": "Invalid EIP-3009 signature"}, {"isValid": "no"}],
    ids=["refused", "nonsense"],
)
@scene
async def test_a_payment_of_a_valid_header_that_verify_refuses_is_found(
    rig: ServiceRig, verdict: dict[str, Any]
) -> None:
    required = await rig.ask()
    header = rig.sign(required)
    with broken(rig, "facilitator", only("/verify", answer(200, verdict))):
        refused = await rig.pay(required, header)
    assert refused.json()["final"] is False
    await submit(rig, header)
    assert await reconcile(rig.service) == 1
    assert await is_served(rig, required)


@pytest.mark.clause("8/indexer-query")
@scene
async def test_a_transaction_pays_by_its_success_its_nonce_and_its_transfer(
    rig: ServiceRig,
) -> None:
    """A facilitator may name any transaction: each of the three is compared."""
    payment = rig.service.store.payments.get(await rig.buy())
    assert payment is not None
    assert payment.tx_hash is not None
    mined = await rig.service.rpc.transaction(payment.tx_hash)
    assert mined is not None
    assert pays_for(mined, payment)
    ((use, (payer, payee, base)),) = mined.used.items()
    assert use == (payment.payer, payment.nonce)
    for change in (
        {"succeeded": False}, {"used": {}}, {"used": {use: None}},
        {"used": {use: None}, "others": ((payer, payee, base),)},
        {"used": {use: None, (payer, bytes(32)): (payer, payee, base)}},
        {"used": {(payee, payment.nonce): (payer, payee, base)}},
        *({"used": {use: moved}} for moved in (
            (payer, payee, base - 1), (payer, payer, base), (payee, payee, base),
        )),
    ):  # fmt: skip
        assert not pays_for(structs.replace(mined, **change), payment), change


@scene
async def test_a_node_that_limits_the_blocks_of_a_query_is_asked_for_the_newest_first(
    rig: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As public nodes do: a deposit is found and refunded, and a lost answer resolved."""
    monkeypatch.setattr(chain, "AT_ONCE", 40)
    with broken(rig, "rpc", logs_of_few_blocks(rig, 10)):
        await rig.open_session("1.00", 60)
        before = rig.balance(rig.alice)
        for _ in range(11):
            rig.now[0] += 61
            await rig.parts.chain.mine()
        await sessions.expire(rig.service)
        assert rig.balance(rig.alice) == before + 10**6
        with broken(rig, "facilitator", only("/settle", lose_answer)):
            payment_id = await rig.buy()
        payment = rig.service.store.payments.get(payment_id)
        assert payment is not None
        monkeypatch.setattr(chain, "MOST_QUERIES", 1)
        rig.now[0] += 100
        for _ in range(11):
            await rig.parts.chain.mine()
        with pytest.raises(Unavailable, match="no such event in the newest blocks, down to"):
            await rig.service.rpc.nonce_state(payment.payer, payment.nonce)


def high_s(signature: bytes) -> bytes:
    s = 2 * HALF_ORDER + 1 - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])


def compact(signature: bytes) -> bytes:
    s = int.from_bytes(signature[32:64]) + ((signature[64] - 27) << 255)
    return signature[:32] + s.to_bytes(32)


@pytest.mark.clause("3/pending-resolved")
@pytest.mark.parametrize("other", [high_s, compact])
@scene
async def test_a_header_whose_signature_others_can_rewrite_keeps_its_claim(
    rig: ServiceRig, other: Callable[[bytes], bytes]
) -> None:
    required = await rig.ask()
    signed = (rig.sign(required) for _ in range(100))
    header = next(each for each in signed if authorization_of(each)[1][64] == 28)  # its bit is 1
    presented = in_form(header, other)
    refused = await rig.pay(required, presented)
    assert (refused.json()["error"], refused.json()["final"]) == ("Invalid signature", False)
    assert "65 bytes, with a low s and v 27 or 28" in refused.json()["reason"]
    await submit(rig, header)
    assert (await rig.pay(required, presented)).status_code == 200
    assert await is_served(rig, required)


LOSE_SETTLEMENT = only("/settle", answer(502, "gone"))
LOW_V = pytest.mark.parametrize("low", [low_v, lambda sig: low_v(high_s(sig))], ids=["v", "s too"])


@pytest.mark.clause("7/invalid-signature")
@LOW_V
@scene
async def test_a_v_of_0_or_1_is_named_before_the_facilitator_sees_it(
    rig: ServiceRig, low: Callable[[bytes], bytes]
) -> None:
    """No token takes it, so it charges nothing, and the payment id is free for a right one."""
    required = await rig.ask()
    header = rig.sign(required)
    presented = in_form(header, low)
    for _ in range(2):
        refused = (await rig.pay(required, presented)).json()
        assert (refused["error"], refused["final"]) == ("Invalid signature", True)
        v = authorization_of(presented)[1][64]
        assert refused["reason"].startswith(f"v is {v}: the token takes 27 or 28"), refused
    assert rig.wires["facilitator"].seen == []
    assert (await rig.pay(required, header)).status_code == 200, "27 more makes it payable"
    assert (await rig.pay(required, presented)).json()["error"] == "Payment already settled"


@pytest.mark.clause("7/invalid-signature", "3/pending-resolved")
@pytest.mark.parametrize("for_the_same_id", [True, False])
@pytest.mark.parametrize("fault", [lose_request, LOSE_SETTLEMENT], ids=["unsent", "lost"])
@scene
async def test_a_v_of_0_or_1_is_not_final_once_its_authorization_was_sent(
    rig: ServiceRig, for_the_same_id: bool, fault: Any
) -> None:
    required = await rig.ask()
    header = rig.sign(required)
    with broken(rig, "facilitator", fault):
        assert (await rig.pay(required, header)).json()["final"] is False
    asked = len(rig.wires["facilitator"].seen)
    again = required if for_the_same_id else await rig.ask()
    refused = (await rig.pay(again, in_form(header, low_v))).json()
    assert refused["final"] is False
    assert "v is " in refused["reason"]
    assert len(rig.wires["facilitator"].seen) == asked
    assert (await rig.pay(required, header)).status_code == 200
    assert rig.transfers() == 1


@scene
async def test_whether_a_v_of_0_or_1_is_a_contracts_own_is_asked_first(rig: ServiceRig) -> None:
    """What a contract calls its own, only the contract knows (EIP-1271)."""
    required = await rig.ask()
    presented = in_form(rig.sign(required), low_v)
    with broken(rig, "rpc", lose_request):
        unknown = await rig.pay(required, presented)
    assert (unknown.status_code, unknown.json()["final"]) == (502, False)
    assert unknown.json()["error"] == "Chain unreachable"
    delegate = b"\xef\x01\x00" + b"\x0c" * 20
    await rig.parts.chain.set_code(rig.alice.address_bytes, delegate, {})
    assert "v is" not in (await rig.pay(required, presented)).json()["reason"]
    assert rig.wires["facilitator"].seen, "it judges a contract's signature"


@scene
async def test_many_headers_for_one_payment_id_are_refused(rig: ServiceRig) -> None:
    required = await rig.ask()
    with broken(rig, "facilitator", lose_request):
        answers = [(await rig.pay(required)).json()["error"] for _ in range(9)]
    assert answers == ["Facilitator unreachable"] * 8 + ["Settlement pending"]
    assert rig.service.store.counts()["payments"] == 8


@pytest.mark.clause("5/nonce-once", "7/nonce-already-used")
@pytest.mark.parametrize("used", ["before", "after", None])
@scene
async def test_a_header_presented_while_the_chain_is_silent_is_not_accepted(
    rig: ServiceRig, used: str | None
) -> None:
    """It is sent to nobody, so a use of it pays for something else, whatever its time: it may have
    paid at another service of the same merchant."""
    required = await rig.ask()
    header = rig.sign(required)
    if used == "before":
        await submit(rig, header)
    with broken(rig, "rpc", lose_request):
        refused = await rig.pay(required, header)
    assert (refused.status_code, refused.json()["final"]) == (502, False)
    assert refused.json()["error"] == "Chain unreachable", "the facilitator is well"
    assert rig.wires["facilitator"].seen == [], "nothing is sent on before the chain was asked"
    if used == "after":
        rig.now[0] += 60
        await submit(rig, header)
    again = await rig.pay(required, header)
    assert again.status_code == (409 if used else 200)
    assert again.json().get("error") == ("Nonce already used" if used else None)
    assert await is_served(rig, required) is (used is None)


@pytest.mark.clause("3/pending-resolved", "5/nonce-once")
@pytest.mark.parametrize("for_the_same_id", [True, False])
@scene
async def test_a_header_presented_again_after_its_cancellation_was_undone_pays_once(
    rig: ServiceRig, for_the_same_id: bool
) -> None:
    first = await rig.ask()
    header = rig.sign(first)
    with broken(rig, "facilitator", only("/settle", lose_request)):
        await rig.pay(first, header)
    auth, _ = authorization_of(header)
    cancellation = rig.alice.sign_cancellation(auth.nonce, TESTNET.domain)
    data = abi.cancel_authorization(auth.from_, auth.nonce, cancellation)
    cancelled = await rig.parts.chain.send(Call(rig.bob.address_bytes, TESTNET.asset, data))
    assert await reconcile(rig.service) == 1
    assert (await record(rig, first))["status"] == "failed"

    await rig.parts.chain.reorg(1, drop=[cancelled])
    again = first if for_the_same_id else await rig.ask()
    assert (await rig.pay(again, header)).status_code == 200
    await indexer.run(rig.service)
    assert (await record(rig, again))["status"] == "settled"
    assert await is_served(rig, first) is for_the_same_id
    assert rig.transfers() == 1


@pytest.mark.clause("3/indexed-status")
@scene
async def test_a_payment_is_looked_at_until_its_block_is_deep(rig: ServiceRig) -> None:
    required = await rig.ask()
    header = rig.sign(required)
    paid = await rig.pay(required, header)
    drop = [Hash(from_hex(paid.json()["txHash"], 32))]
    await indexer.run(rig.service)
    await rig.parts.chain.mine(rig.service.env.settings.final_depth - 1)
    await indexer.run(rig.service)
    await rig.parts.chain.reorg(rig.service.env.settings.final_depth, drop=drop)
    await indexer.run(rig.service)
    assert (await record(rig, required))["status"] == "pending"
    (agent,) = (await rig.http.get("/api/agents")).json()["agents"]
    assert agent["reputation"] == 0
    assert not await is_served(rig, required)
    assert (await rig.pay(required, header)).status_code == 200, "the header is still good"
    assert await is_served(rig, required)
    assert rig.transfers() == 1

    await rig.parts.chain.mine(rig.service.env.settings.final_depth)
    await indexer.run(rig.service)  # finds its block
    await indexer.run(rig.service)  # and that it is deep
    rig.wires["rpc"].seen.clear()
    await indexer.run(rig.service)
    assert rig.wires["rpc"].seen == [], "it is not looked at any more"


@pytest.mark.clause("2.6/remaining", "5/session-condition")
@scene
async def test_a_session_pays_for_nothing_while_its_deposit_is_undone(rig: ServiceRig) -> None:
    session = await rig.open_session("0.05", duration=3600)
    (payment_id,) = rig.service.store.one("SELECT payment_id FROM sessions")
    stored = rig.service.store.payments.get(payment_id)
    assert stored is not None
    assert (await rig.ask(x_session_id=session["sessionId"])).status_code == 200
    await indexer.run(rig.service)
    await rig.parts.chain.reorg(1, drop=[Hash(from_hex(str(stored.tx_hash), 32))])
    await indexer.run(rig.service)
    assert (await rig.ask(x_session_id=session["sessionId"])).status_code == 402
    await submit(rig, stored.header)
    assert await reconcile(rig.service) == 1
    assert (await rig.ask(x_session_id=session["sessionId"])).status_code == 200
    revoke(rig.service, stored, 1)
    assert (await rig.ask(x_session_id=session["sessionId"])).status_code == 402
    assert grant(rig.service, stored, "0x1")  # it was made after all
    assert (await rig.ask(x_session_id=session["sessionId"])).status_code == 200
    shown = rig.service.store.sessions.get(session["sessionId"])
    assert shown is not None
    assert shown.released == 30_000


@pytest.mark.clause("3/refund-once")
@scene
async def test_a_refund_that_fails_is_tried_less_and_less_often(rig: ServiceRig) -> None:
    await rig.open_session("0.05", duration=60)
    rig.now[0] += 60
    with broken(rig, "facilitator", only("/settle", lose_request)):
        for _ in range(60):
            assert await sessions.expire(rig.service) == 0
            rig.now[0] += 10
    tries = [r for r in rig.wires["facilitator"].seen if r.url.path.endswith("/settle")]
    assert len(tries) - 1 == 6, "after 0, 10, 30, 70, 150 and 310 s"
    rig.now[0] += 300
    assert await sessions.expire(rig.service) == 1


@pytest.mark.clause("3/refund-once")
@scene
async def test_a_refund_that_may_have_been_sent_is_sent_again_with_that_amount(
    rig: ServiceRig,
) -> None:
    await rig.open_session("0.05", duration=60)
    rig.now[0] += 60
    rig.service.store.sessions.expire(rig.clock.now_ms(), 9)
    rig.service.store.execute("UPDATE refunds SET sent = 40000")
    assert (await sessions.expire(rig.service), rig.earned) == (1, 10_000)


@pytest.mark.clause("3/refund-once")
@pytest.mark.parametrize("is_recorded_meanwhile", [False, True])
@scene
async def test_a_refund_that_another_transaction_has_paid_names_that(
    rig: ServiceRig, is_recorded_meanwhile: bool
) -> None:
    """As after a reorganisation, if the facilitator or another service had sent it, too."""
    session = await rig.open_session("0.05", duration=60)
    rig.now[0] += 60

    async def meanwhile(_: httpx.Request, deliver: Deliver) -> httpx.Response:
        if is_recorded_meanwhile:
            rig.service.store.sessions.refunded(session["sessionId"], 0, OTHER)
        return await deliver()

    with broken(rig, "facilitator", only("/settle", meanwhile)):
        await sessions.expire(rig.service)
    if not is_recorded_meanwhile:
        rig.service.store.execute("UPDATE refunds SET tx_hash = ?", OTHER)
        await indexer.run(rig.service)
    told = [each.event for each in rig.parts.journal]
    (undone,) = [each for each in told if isinstance(each, RefundUndone)]
    again = [each for each in told if isinstance(each, SessionRefunded)][-1]
    assert (undone.amount_base, undone.tx_hash) == (50_000, OTHER)
    assert told.index(undone) < len(told) - 1 - told[::-1].index(again)
    shown = rig.service.store.sessions.get(session["sessionId"])
    assert shown is not None
    assert (shown.state, shown.refund_tx_hash, rig.earned) == ("refunded", again.tx_hash, 0)


@pytest.mark.clause("3/indexed-status")
@scene
async def test_what_the_facilitator_settled_stays_however_it_was_signed(rig: ServiceRig) -> None:
    """A facilitator may know signatures that the service does not, as those of contract wallets."""
    required = await rig.ask()
    assert (await rig.pay(required)).status_code == 200
    rig.service.store.execute("UPDATE payments SET is_authorized = 0, nonce_confirmed_unused = 0")
    nothing = answer(200, {"jsonrpc": "2.0", "id": 1, "result": None})
    with broken(rig, "explorer", nothing):
        assert (await indexer.run(rig.service)).unknown == 1
    assert await is_served(rig, required)
    assert (await indexer.run(rig.service)).matched == 1


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_many_hopeless_headers_delay_no_other(
    rig: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run asks about a limited number; those that wait longest come first."""
    monkeypatch.setattr("x402sim.service.reconcile.AT_MOST", 10)
    asked = [await rig.ask() for _ in range(25)]
    with broken(rig, "facilitator", lose_request):
        for required in asked:
            await rig.pay(required)
    for each in asked[-2:]:
        stored = rig.service.store.payments.get(each.json()["paymentId"])
        assert stored is not None
        await submit(rig, stored.header)
    rig.now[0] += 1
    lost = await lose_settlement(rig)
    resolved = []
    for _ in range(3):
        resolved.append(await reconcile(rig.service))
        rig.now[0] += 15
    assert resolved == [1, 0, 2], "first of all the one whose money may have moved"
    assert await is_served(rig, lost)


@scene
async def test_a_move_that_another_process_has_made_is_no_error(rig: ServiceRig) -> None:
    """It is asked by a record that was read before, and written once the other has its lock."""
    payment_id = await rig.buy()
    await indexer.run(rig.service)
    stored = rig.service.store.payments.get(payment_id)
    assert stored is not None
    told: list[Any] = []
    service = replace(rig.service, record=told.append)
    assert not grant(service, stored, "0x1")
    assert rig.service.store.payments.get(stored.payment_id) == stored
    for _ in range(2):
        suspend(service, stored)
    for _ in range(2):
        revoke(service, stored, 1)
    assert [type(each).__name__ for each in told] == ["PaymentUndone", "PaymentFailed"]
