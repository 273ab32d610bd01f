"""Section 4.1: settlement, in seven steps, with good requests, attacks and lost answers."""

import json
from typing import Any

import pytest
from msgspec import convert

from tests.rig import (
    START,
    ServiceRig,
    answer,
    broken,
    logs_of_few_blocks,
    lose_answer,
    only,
    scene,
)  # fmt: skip
from tests.service.standard import failed, is_served, settled
from x402sim.payer.wallet import Wallet
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.header import authorization_of
from x402sim.protocol.messages import SettlementRequest
from x402sim.protocol.states import PaymentState
from x402sim.service import payments
from x402sim.service.upstream import chain


@pytest.mark.clause(
    "4.1/receipt",
    "4.1/store-settled",
    "2.4/record",
    "2.4/block-null",
    "4.1/order",
    "4.1/settle-on-chain",
    "4.1/verify-signature",
    "4.1/build-verify",
    "3/deposit-makes-session",
)
@scene
async def test_a_payment_is_verified_settled_stored_and_answered(rig: ServiceRig) -> None:
    required = await rig.ask()
    header = rig.sign(required)
    rig.now[0] += 1.25
    paid = await rig.pay(required, header)
    verify, settle = rig.wires["facilitator"].seen
    assert (verify.url.path, settle.url.path) == ("/v2/x402/verify", "/v2/x402/settle")
    wanted = required.json()["paymentRequirements"]
    sent = {"x402Version": 1, "paymentHeader": header, "paymentRequirements": wanted}
    del wanted["description"]
    assert json.loads(verify.content) == json.loads(settle.content) == sent
    assert verify.headers["x402-version"] == "1"
    receipt = paid.json()
    assert paid.status_code == 200
    assert receipt == {
        "success": True,
        "paymentId": required.json()["paymentId"],
        "txHash": receipt["txHash"],
        "timestamp": START * 1000 + 1250,
    }
    assert len(bytes.fromhex(receipt["txHash"][2:])) == 32
    assert await rig.record(receipt["paymentId"]) == {
        "payment_id": receipt["paymentId"],
        "tx_hash": receipt["txHash"],
        "from_address": rig.alice.address,
        "to_address": required.json()["paymentRequirements"]["payTo"],
        "amount": "10000",
        "resource_url": "/api/perp/quote",
        "status": "settled",
        "block_number": None,
        "timestamp": START * 1000 + 1250,
    }
    assert (rig.transfers(rig.alice), rig.earned) == (1, 10_000)


@scene
async def test_a_lost_payment_is_found_at_a_node_that_gives_logs_of_few_blocks(
    rig: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "BLOCKS_AT_ONCE", 10)
    await rig.parts.chain.mine(40)
    required = await rig.ask()
    header = rig.sign(required)
    with (
        broken(rig, "facilitator", only("/settle", lose_answer)),
        broken(rig, "rpc", logs_of_few_blocks(rig, 1)),
    ):
        assert (await rig.pay(required, header)).json()["final"] is False
    await rig.parts.chain.mine(25)
    with broken(rig, "rpc", logs_of_few_blocks(rig, 10)):
        assert (await rig.pay(required, header)).status_code == 200
    assert rig.transfers(rig.alice) == 1


@scene
async def test_a_header_with_a_wrong_label_is_to_be_corrected_not_signed_anew(
    rig: ServiceRig,
) -> None:
    required = await rig.ask()
    header = rig.sign(required)
    said = json.loads(bytes.fromhex(header[2:]))
    wrong = "0x" + json.dumps(said | {"network": "base"}).encode().hex()
    refused = (await rig.pay(required, wrong)).json()
    assert refused["final"] is False
    assert refused["reason"].startswith(
        "Unsupported network: base; network: wanted cronos-testnet, got base; not charged by this "
        "service; this header stays valid until 2027-01-15T08:05:00Z: correct the header and send "
        "the same authorization again"
    )
    assert (await rig.pay(required, header)).status_code == 200


@scene
async def test_a_chain_that_is_ahead_of_the_server_is_told(rig: ServiceRig) -> None:
    required = await rig.ask()
    header = rig.sign(required)
    ends = authorization_of(header)[0].valid_before
    rig.now[0] += 300
    await rig.parts.chain.controls.mine()
    rig.now[0] -= 200
    refused = (await rig.pay(required, header)).json()
    assert refused == {
        "error": "Authorization expired",
        "reason": f"validBefore is {ends}, the server's clock says {ends - 200}, and the chain's "
        "is ahead of it",
        "final": True,
    }


@pytest.mark.clause("4.1/validate", "2.2/payment-id")
@scene
async def test_requirements_not_issued_here_never_reach_the_facilitator(rig: ServiceRig) -> None:
    required = await rig.ask()
    foreign = (await rig.ask_session("0.01")).json()["paymentId"]
    for payment_id in ("pay_" + "a" * 72, foreign):
        body = rig.settlement(required) | {"paymentId": payment_id}
        refused = await rig.http.post("/api/pay", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"] == "Payment requirements do not match"
    assert rig.wires["facilitator"].seen == []


@pytest.mark.clause("7/payment-already-settled")
@scene
async def test_a_paid_payment_id_refuses_other_authorizations_and_other_payers(
    rig: ServiceRig,
) -> None:
    required = await rig.ask()
    assert (await rig.pay(required)).status_code == 200
    for payer in (rig.alice, rig.bob):
        again = await rig.pay(required, rig.sign(required, payer))
        assert (again.status_code, again.json()["error"]) == (409, "Payment already settled")
        assert again.json()["final"] is True
    assert (rig.transfers(rig.alice), rig.transfers(rig.bob), rig.earned) == (1, 0, 10_000)


# --- accidents ---------------------------------------------------------------------------


@pytest.mark.clause("3/pending-resolved")
@pytest.mark.parametrize(
    "fault",
    [
        lose_answer,
        answer(502, "<html>Bad Gateway</html>", after=True),
        answer(200, '{"x402Version":1,"event":"payment.set', after=True),
        answer(200, {"success": False}, after=True),
        answer(503, {"event": "payment.settled"}, after=True),
        answer(200, failed(SettleError.BALANCE.value), after=True),
    ],
    ids=["lost", "html-502", "truncated", "wrong-shape", "503-with-success", "denied"],
)
@scene
async def test_an_answer_lost_after_the_money_moved_is_found_on_chain(
    rig: ServiceRig, fault: Any
) -> None:
    required = await rig.ask()
    with broken(rig, "facilitator", only("/settle", fault)):
        paid = await rig.pay(required)
    assert paid.status_code == 200, paid.text
    assert await is_served(rig, required)
    assert (rig.transfers(), rig.earned) == (1, 10_000)


@pytest.mark.parametrize("status", [200, 400, 402])
@scene
async def test_a_refusal_counts_whatever_its_status(rig: ServiceRig, status: int) -> None:
    required = await rig.ask()
    body = failed(SettleError.EXPIRED.value)
    with broken(rig, "facilitator", only("/settle", answer(status, body))):
        refused = await rig.pay(required)
    assert (refused.status_code, refused.json()["error"]) == (400, "Authorization expired")
    assert rig.transfers() == 0


@pytest.mark.parametrize("payer", ["0x" + "1" * 40, "alice"])
@scene
async def test_a_settlement_of_another_payer_is_rejected(rig: ServiceRig, payer: str) -> None:
    required = await rig.ask()
    body = settled(rig, required, "0x" + "ab" * 32, **{"from": payer})
    with broken(rig, "facilitator", only("/settle", answer(200, body))):
        refused = await rig.pay(required)
    assert refused.status_code == 502
    assert not await is_served(rig, required)


# --- what is known of a submission ---------------------------------------------------------------


@scene
async def test_a_submission_is_the_same_in_memory_and_in_the_database(rig: ServiceRig) -> None:
    """And a process that was refused does not take back what another has sent meanwhile."""
    sent: SettlementRequest = convert(rig.settlement(await rig.ask()), SettlementRequest)
    request, stored = await payments.validate(rig.service, sent), rig.service.store.payments
    claimed = payments.ensure_claimed(
        rig.service, request, await payments.admit(rig.service, request)
    )
    assert claimed.state is PaymentState.IN_FLIGHT
    assert stored.reload(claimed) == claimed

    stored.mark_not_submitted(claimed.number)
    refused = stored.reload(claimed)
    assert refused is not None
    assert refused.state is PaymentState.NOT_SUBMITTED

    resumed = payments.resume(rig.service, request, refused)
    assert resumed.state is PaymentState.IN_FLIGHT
    assert stored.reload(claimed) == resumed

    others = payments.resume(rig.service, request, resumed)  # as if another process sent it, too
    assert others.state is PaymentState.MAYBE_SUBMITTED
    stored.mark_not_submitted(claimed.number)
    assert stored.reload(claimed) == others


@scene
async def test_a_forged_header_is_not_the_earlier_one_that_may_still_settle(
    rig: ServiceRig,
) -> None:
    required = await rig.ask()
    with broken(rig, "facilitator", only("/settle", answer(502, "gone"))):
        lost = (await rig.pay(required)).json()
    assert "it may still be paid: send the same payment header again" in lost["reason"]
    asked = len(rig.wires["facilitator"].seen)
    refused = (
        await rig.pay(required, rig.sign(required, Wallet.create())[:-8] + "00000000")
    ).json()
    assert refused["final"] is False
    assert "an earlier payment header may still settle" in str(refused), refused
    assert len(rig.wires["facilitator"].seen) == asked
