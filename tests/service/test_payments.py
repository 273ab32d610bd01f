"""Section 4.1: settlement, in seven steps, with good requests, attacks and lost answers."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.bench import (
    START,
    Bench,
    answer,
    broken,
    lose_answer,
    lose_request,
    only,
    requirements,
    scene,
)  # fmt: skip
from x402sim.chain.base import Call
from x402sim.protocol import abi
from x402sim.protocol.header import authorization_of, decode_header
from x402sim.protocol.networks import TESTNET
from x402sim.service.reconcile import reconcile

UNREACHABLE = "Facilitator unreachable"


async def pending(bench: Bench, required: httpx.Response) -> bool:
    record = await bench.record(required.json()["paymentId"])
    return record.get("status") == "pending"


@pytest.mark.clause(
    "4.1/receipt",
    "4.1/store-settled",
    "2.4/record",
    "2.4/block-null",
    "4.1/order",
    "4.1/settle-on-chain",
    "3/deposit-makes-session",
)
@scene
async def test_a_payment_is_settled_stored_and_answered(bench: Bench) -> None:
    required = await bench.ask()
    bench.now[0] += 1.25
    paid = await bench.pay(required)
    receipt = paid.json()
    assert paid.status_code == 200
    assert receipt == {
        "success": True,
        "paymentId": required.json()["paymentId"],
        "txHash": receipt["txHash"],
        "timestamp": START * 1000 + 1250,
    }
    assert len(bytes.fromhex(receipt["txHash"][2:])) == 32
    assert await bench.record(receipt["paymentId"]) == {
        "payment_id": receipt["paymentId"],
        "tx_hash": receipt["txHash"],
        "from_address": bench.alice.address,
        "to_address": required.json()["paymentRequirements"]["payTo"],
        "amount": "10000",
        "resource_url": "/api/perp/quote",
        "status": "settled",
        "block_number": None,
        "timestamp": START * 1000 + 1250,
    }
    assert (bench.transfers(bench.alice), bench.earned) == (1, 10_000)


@pytest.mark.clause("4.1/order", "4.1/verify-signature", "4.1/build-verify")
@scene
async def test_verify_comes_before_settle_and_both_get_what_was_sent(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    await bench.pay(required, header)
    verify, settle = bench.wires["facilitator"].seen
    assert (verify.url.path, settle.url.path) == ("/v2/x402/verify", "/v2/x402/settle")
    sent = json.loads(verify.content)
    wanted = required.json()["paymentRequirements"]
    del wanted["description"]
    assert sent == {"x402Version": 1, "paymentHeader": header, "paymentRequirements": wanted}
    assert settle.content == verify.content
    assert verify.headers["x402-version"] == "1"


@pytest.mark.clause("4.1/verify-signature", "7/invalid-signature")
@scene
async def test_an_invalid_signature_is_never_settled(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required).replace("22736967", "22736967")
    decoded = json.loads(bytes.fromhex(header[2:]))
    decoded["payload"]["from"] = bench.bob.address
    forged = "0x" + json.dumps(decoded).encode().hex()
    refused = await bench.pay(required, forged)
    assert refused.status_code == 400
    assert refused.json() == {
        "error": "Invalid signature", "reason": "Invalid EIP-3009 signature", "final": True,
    }  # fmt: skip
    assert [r.url.path for r in bench.wires["facilitator"].seen] == ["/v2/x402/verify"]
    assert bench.transfers() == 0
    assert bench.service.store.counts()["payments"] == 0


@pytest.mark.clause("4.1/validate", "2.2/payment-id")
@scene
async def test_what_was_not_issued_never_reaches_the_facilitator(bench: Bench) -> None:
    required = await bench.ask()
    foreign = (await bench.ask_session("0.01")).json()["paymentId"]
    body = {
        "paymentHeader": bench.sign(required),
        "paymentRequirements": required.json()["paymentRequirements"],
    }
    for payment_id in ("pay_" + "a" * 72, "", "pay_", "x" * 10_000, foreign):
        refused = await bench.http.post("/api/pay", json={**body, "paymentId": payment_id})
        assert refused.status_code == 400
        assert refused.json()["error"] == "Payment requirements do not match"
    assert bench.wires["facilitator"].seen == []


@pytest.mark.clause("2.1/validity")
@scene
async def test_requirements_expire(bench: Bench) -> None:
    required = await bench.ask()
    late = await bench.ask()
    bench.now[0] += 300
    assert (await bench.pay(required)).status_code == 200
    bench.now[0] += 1
    refused = await bench.pay(late)
    assert (refused.status_code, refused.json()["error"]) == (400, "Authorization expired")
    assert "maxTimeoutSeconds" in refused.json()["reason"]
    assert bench.transfers() == 1


@pytest.mark.clause("7/authorization-expired", "5/window")
@scene
async def test_an_authorization_is_valid_strictly_inside_its_window(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    bench.now[0] += 300  # validBefore == now
    refused = await bench.pay(required, header)
    assert (refused.status_code, refused.json()["error"]) == (400, "Authorization expired")
    early = bench.alice.payment_header(
        requirements(required.json()["paymentRequirements"]), bench.clock.now_s() + 60
    )  # validAfter == now
    refused = await bench.pay(required, early)
    assert refused.json() == {
        "error": "Invalid signature", "reason": "Authorization not yet valid", "final": True,
    }  # fmt: skip
    bench.now[0] += 0.999
    assert (await bench.pay(required, early)).json()["reason"] == "Authorization not yet valid"
    assert bench.transfers() == 0


@pytest.mark.clause("7/insufficient-balance")
@scene
async def test_a_payer_without_funds_can_be_funded_and_then_pay(bench: Bench) -> None:
    from x402sim import Wallet

    required, carol = await bench.ask(), Wallet(b"c" * 32)
    refused = await bench.pay(required, bench.sign(required, carol))
    assert (refused.status_code, refused.json()["error"]) == (402, "Insufficient USDC balance")
    await bench.parts.chain.fund(carol.address_bytes, 10_000)
    assert (await bench.pay(required, bench.sign(required, carol))).status_code == 200
    assert bench.balance(carol) == 0


@pytest.mark.clause("7/payment-already-settled")
@scene
async def test_a_payment_id_is_settled_once(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    assert (await bench.pay(required, header)).status_code == 200
    for again in (header, bench.sign(required), bench.sign(required, bench.bob)):
        refused = await bench.pay(required, again)
        assert (refused.status_code, refused.json()) == (
            409,
            {"error": "Payment already settled", "final": True},
        )
    bench.now[0] += 10**6
    assert (await bench.pay(required)).json()["error"] == "Payment already settled"
    assert bench.transfers() == 1


@pytest.mark.clause("7/nonce-already-used", "5/nonce-once")
@pytest.mark.parametrize("spelling", ["same", "base64", "upper", "reordered", "extra"])
@scene
async def test_an_authorization_pays_once_however_it_is_spelled(
    bench: Bench, spelling: str
) -> None:
    import base64

    first, second = await bench.ask(), await bench.ask()
    header = bench.sign(first)
    raw = bytes.fromhex(header[2:])
    decoded = json.loads(raw)
    again = {
        "same": header,
        "base64": base64.b64encode(raw).decode(),
        "upper": "0x" + raw.hex().upper(),
        "reordered": "0x" + json.dumps(dict(reversed(decoded.items()))).encode().hex(),
        "extra": "0x" + json.dumps({**decoded, "extra": 1}).encode().hex(),
    }[spelling]
    assert (await bench.pay(first, header)).status_code == 200
    refused = await bench.pay(second, again)
    assert (refused.status_code, refused.json()["error"]) == (409, "Nonce already used")
    assert bench.transfers() == 1
    assert (await bench.ask(x_payment_id=second.json()["paymentId"])).status_code == 402


@pytest.mark.clause("7/nonce-already-used")
@scene
async def test_a_nonce_that_was_used_or_cancelled_elsewhere_pays_nothing(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    auth, _ = authorization_of(decode_header(header))
    cancellation = bench.alice.sign_cancellation(auth.nonce, TESTNET.domain)
    data = abi.cancel_authorization(auth.from_, auth.nonce, cancellation)
    await bench.parts.chain.send(Call(bench.alice.address_bytes, TESTNET.asset, data))
    refused = await bench.pay(required, header)
    assert (refused.status_code, refused.json()["error"]) == (409, "Nonce already used")
    assert bench.transfers() == 0
    assert (await bench.pay(required)).status_code == 200, "a new authorization is welcome"


@scene
async def test_a_front_run_payment_counts_as_paid(bench: Bench) -> None:
    """Anyone may submit a signed authorization; the merchant got the money."""
    required = await bench.ask()
    header = bench.sign(required)
    auth, signature = authorization_of(decode_header(header))
    data = abi.transfer_with_authorization(auth, signature)
    tx_hash = await bench.parts.chain.send(Call(bench.bob.address_bytes, TESTNET.asset, data))
    paid = await bench.pay(required, header)
    assert (paid.status_code, paid.json()["txHash"]) == (200, "0x" + tx_hash.hex())
    assert bench.transfers() == 1


@scene
async def test_twenty_at_once_for_one_id_settle_once(bench: Bench) -> None:
    required = await bench.ask()
    headers = [bench.sign(required) for _ in range(20)]
    answers = await asyncio.gather(*(bench.pay(required, header) for header in headers))
    assert sorted(a.status_code for a in answers) == [200] + [409] * 19
    assert bench.transfers() == 1


@pytest.mark.clause("7/nonce-already-used")
@scene
async def test_one_authorization_for_ten_ids_at_once_settles_one(bench: Bench) -> None:
    asked = [await bench.ask() for _ in range(10)]
    header = bench.sign(asked[0])
    answers = await asyncio.gather(*(bench.pay(required, header) for required in asked))
    assert sorted(a.status_code for a in answers) == [200] + [409] * 9
    assert {a.json()["error"] for a in answers if a.status_code == 409} == {"Nonce already used"}
    assert bench.transfers() == 1


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
    ],
    ids=["lost", "html-502", "truncated", "wrong-shape", "503-with-success"],
)
@scene
async def test_an_answer_lost_after_the_money_moved_is_found_on_chain(
    bench: Bench, fault: Any
) -> None:
    required = await bench.ask()
    with broken(bench, "facilitator", only("/settle", fault)):
        paid = await bench.pay(required)
    assert paid.status_code == 200, paid.text
    assert (await bench.ask(x_payment_id=required.json()["paymentId"])).status_code == 200
    assert (bench.transfers(), bench.earned) == (1, 10_000)


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_a_payment_stays_pending_while_the_chain_cannot_be_asked(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    with (
        broken(bench, "facilitator", only("/settle", lose_answer)),
        broken(bench, "rpc", lose_request),
    ):
        unknown = await bench.pay(required, header)
        assert (unknown.status_code, unknown.json()["error"]) == (502, UNREACHABLE)
        assert "do not sign another" in unknown.json()["reason"]
        assert unknown.json()["final"] is False
        assert await pending(bench, required)
        other = await bench.pay(required)
        assert (other.status_code, other.json()["error"]) == (409, "Settlement pending")
        assert (await bench.ask(x_payment_id=required.json()["paymentId"])).status_code == 402
        assert await reconcile(bench.service) == 0
    assert await reconcile(bench.service) == 1
    assert (await bench.ask(x_payment_id=required.json()["paymentId"])).status_code == 200
    assert (bench.transfers(), bench.earned) == (1, 10_000)


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_the_same_header_sent_again_brings_the_receipt(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    with (
        broken(bench, "facilitator", only("/settle", lose_answer)),
        broken(bench, "rpc", lose_request),
    ):
        assert (await bench.pay(required, header)).status_code == 502
    bench.now[0] += 400  # the requirements are old by now, but the payment was begun in time
    paid = await bench.pay(required, header)
    assert paid.status_code == 200
    assert (bench.transfers(), bench.earned) == (1, 10_000)


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_a_request_lost_before_the_money_moved_can_be_sent_again(bench: Bench) -> None:
    required = await bench.ask()
    header = bench.sign(required)
    with broken(bench, "facilitator", only("/settle", answer(500, "oops"))):
        unknown = await bench.pay(required, header)
        assert unknown.status_code == 502
        assert await pending(bench, required)
    assert (await bench.pay(required, header)).status_code == 200
    assert bench.transfers() == 1


@pytest.mark.clause("3/pending-resolved")
@scene
async def test_a_payment_that_can_no_longer_be_mined_fails(bench: Bench) -> None:
    required = await bench.ask()
    with broken(bench, "facilitator", only("/settle", answer(500, "oops"))):
        await bench.pay(required)
    bench.now[0] += 299
    await bench.parts.chain.mine()
    assert await reconcile(bench.service) == 0
    bench.now[0] += 1000
    assert await reconcile(bench.service) == 0, "this node has not seen a block so late"
    await bench.parts.chain.mine()
    assert await reconcile(bench.service) == 1
    record = await bench.record(required.json()["paymentId"])
    assert (record["status"], record["tx_hash"]) == ("failed", None)


@scene
async def test_a_lost_payment_cannot_be_claimed_with_another_ones_transfer(bench: Bench) -> None:
    """`used` on chain is not enough: that transaction already paid for something else."""
    first, second = await bench.ask(), await bench.ask()
    header = bench.sign(first)
    await bench.pay(first, header)
    bench.service.store.database.execute("UPDATE payments SET payer = NULL, nonce = NULL")
    with broken(bench, "facilitator", only("/settle", lose_answer)):
        refused = await bench.pay(second, header)
    assert refused.status_code == 502
    assert (await bench.ask(x_payment_id=second.json()["paymentId"])).status_code == 402
    assert bench.service.store.counts()["payments"] == 1


@scene
async def test_an_outage_charges_nothing_and_leaves_nothing_behind(bench: Bench) -> None:
    required = await bench.ask()
    for path in ("/verify", "/settle"):
        with broken(bench, "facilitator", only(path, lose_request)):
            refused = await bench.pay(required)
        assert (refused.status_code, refused.json()["error"]) == (502, UNREACHABLE)
        assert refused.json()["reason"].startswith("nothing was charged")
        assert refused.json()["final"] is True
    assert bench.service.store.counts()["payments"] == 0
    assert (await bench.pay(required)).status_code == 200


@pytest.mark.parametrize("status", [200, 400, 402])
@scene
async def test_a_refusal_counts_whatever_its_status(bench: Bench, status: int) -> None:
    required = await bench.ask()
    body = {
        "x402Version": 1, "event": "payment.failed", "network": "cronos-testnet",
        "timestamp": "", "error": "Authorization expired",
    }  # fmt: skip
    with broken(bench, "facilitator", only("/settle", answer(status, body))):
        refused = await bench.pay(required)
    assert (refused.status_code, refused.json()["error"]) == (400, "Authorization expired")
    assert bench.transfers() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "9999"}, {"to": "0x" + "1" * 40}, {"network": "x"}, {"txHash": "0x12"},
        {"from": "0x" + "1" * 40}, {"from": "alice"},
    ],
)  # fmt: skip
@scene
async def test_a_settlement_of_another_payment_is_rejected(
    bench: Bench, wrong: dict[str, str]
) -> None:
    required = await bench.ask()
    wanted = required.json()["paymentRequirements"]
    body = {
        "x402Version": 1, "event": "payment.settled", "txHash": "0x" + "ab" * 32,
        "from": bench.alice.address, "to": wanted["payTo"], "value": "10000",
        "blockNumber": 1, "network": "cronos-testnet", "timestamp": "", **wrong,
    }  # fmt: skip
    with broken(bench, "facilitator", only("/settle", answer(200, body))):
        refused = await bench.pay(required)
    assert refused.status_code == 502
    assert (await bench.ask(x_payment_id=required.json()["paymentId"])).status_code == 402


@scene
async def test_a_payment_that_reverts_on_chain_is_not_granted(bench: Bench) -> None:
    required = await bench.ask()
    owner = bench.parts.chain.owner
    await bench.parts.chain.send(Call(owner, TESTNET.asset, abi.calldata(abi.PAUSE)))
    header = bench.sign(required)
    refused = await bench.pay(required, header)
    assert (refused.status_code, refused.json()["error"]) == (502, "Settlement failed")
    assert refused.json()["reason"].startswith("Transaction failed on-chain; it may still")
    assert refused.json()["final"] is False
    assert await pending(bench, required), "its authorization is good until it expires"
    other = await bench.pay(required)
    assert (other.status_code, other.json()["error"]) == (409, "Settlement pending")
    assert other.json()["final"] is False
    await bench.parts.chain.send(Call(owner, TESTNET.asset, abi.calldata(abi.UNPAUSE)))
    assert (await bench.pay(required, header)).status_code == 200
    assert bench.transfers() == 1


@pytest.mark.clause("3/pending-resolved")
@pytest.mark.parametrize(
    "fault",
    [
        lose_request,
        answer(200, {
            "x402Version": 1, "event": "payment.failed", "network": "cronos-testnet",
            "timestamp": "", "error": "ERC20: transfer amount exceeds balance",
        }),
        answer(400, {"error": "busy"}),
    ],
    ids=["unreachable", "refused", "4xx"],
)  # fmt: skip
@scene
async def test_a_second_attempt_keeps_a_waiting_payment_pending(bench: Bench, fault: Any) -> None:
    """The first attempt waits in the mempool, its answer lost; then it is mined."""
    await bench.parts.chain.set_automine(False)
    required = await bench.ask()
    header = bench.sign(required)

    async def send_and_hang_up(request: httpx.Request, deliver: Any) -> httpx.Response:
        task = asyncio.ensure_future(deliver())
        while not bench.parts.chain.machine.state.waiting:
            await asyncio.sleep(0)
        task.cancel()
        raise httpx.ReadTimeout("the answer is lost", request=request)

    with broken(bench, "facilitator", only("/settle", send_and_hang_up)):
        assert (await bench.pay(required, header)).status_code == 502
    with broken(bench, "facilitator", only("/settle", fault)):
        assert (await bench.pay(required, header)).status_code in (409, 502)
    assert await pending(bench, required)
    await bench.parts.chain.mine()
    assert (await bench.pay(required, header)).status_code == 200
    assert (bench.transfers(), bench.earned) == (1, 10_000)
