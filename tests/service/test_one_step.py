"""Payments in one step: an authorization in X-PAYMENT or PAYMENT-SIGNATURE (decision 5/one-step)."""

import asyncio
import base64
import json
import re
from itertools import count
from typing import Any

import httpx
import pytest
from eth_abi import encode as abi_encode
from msgspec import to_builtins
from msgspec.structs import replace as replace_fields
from starlette.responses import Response

from tests.own_parts import ServeConfirmed, SettleAgain
from tests.rig import (
    ORDER,
    Fault,
    ServiceRig,
    after,
    answer,
    beside,
    broken,
    lose_answer,
    lose_request,
    only,
    scene,
)
from tests.service.standard import MARKET, QUOTE, On, changed, failed, set_up, settlement_of, sign
from x402sim import Wallet
from x402sim.chain import contract
from x402sim.events import AnswerNotWritten
from x402sim.http.web import Refused
from x402sim.protocol.crypto import UNDEPLOYED, checksum, to_hex
from x402sim.protocol.messages import PaymentRequirements, decode, encode
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, TESTNET
from x402sim.protocol.refusals import Finality, Refusal
from x402sim.protocol.routes import AGENTS, PAY
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    PAYMENT_IDENTIFIER,
    RESPONSE_HEADERS,
    Version,
    read_required,
    requirements_v1,
    requirements_v2,
)
from x402sim.protocol.x402_reasons import (
    INVALID_PAYLOAD,
    INVALID_REQUIREMENTS,
    INVALID_VERSION,
    NONCE_USED,
    SIGNATURE,
    UNEXPECTED_SETTLE,
    VALID_AFTER,
)
from x402sim.service import gate, one_step
from x402sim.service.policies import ServicePolicy
from x402sim.service.reconcile import reconcile
from x402sim.service.state import Service, restarted

VERSIONS = pytest.mark.parametrize("version", [1, 2])
FLOWS = pytest.mark.parametrize("flow", [None, "authorization", "upfront"])


# --- what a 402 offers -------------------------------------------------------------------


@pytest.mark.parametrize("refusal", Refusal)
def test_what_is_final_is_no_unknown_outcome_in_the_words_of_the_standard(refusal: Refusal) -> None:
    """A payer that reads this word does not know whether it has paid."""
    words = {one_step.code_of(refusal, version) for version in RESPONSE_HEADERS}
    is_final = refusal.row.final is Finality.FINAL
    assert (UNEXPECTED_SETTLE in words) != is_final


@scene
async def test_a_402_offers_both_versions_beside_its_own_body(rig: ServiceRig) -> None:
    required = await rig.ask()
    body = required.json()
    own = body["paymentRequirements"]
    assert body["error"] == "Payment Required"
    (first,) = body["accepts"]
    assert body["x402Version"] == 1
    wanted, url = decode(encode(own), PaymentRequirements), "http://service.test/api/perp/quote"
    in_1, in_2 = requirements_v1(wanted, TESTNET, url=url), requirements_v2(wanted, TESTNET)
    named = {"extra": (in_1.extra or {}) | {"paymentId": body["paymentId"]}}
    assert first == to_builtins(replace_fields(in_1, **named))
    header = read_required(required.headers["PAYMENT-REQUIRED"])
    assert header.accepts == [replace_fields(in_2, **named)]
    assert header.resource is not None
    assert header.resource.url == url


@VERSIONS
@scene
async def test_the_setting_switches_it_off(rig: ServiceRig, version: Version) -> None:
    payment = sign(rig, version, await rig.ask())
    set_up(rig, one_step=False)
    refused = await rig.ask(**payment)
    assert refused.status_code == 402
    assert "accepts" not in refused.json()
    assert "PAYMENT-REQUIRED" not in refused.headers
    assert rig.transfers() == 0


# --- paid ------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("path", [QUOTE, MARKET])
@scene
async def test_a_payment_is_settled_and_served_in_one_request(
    rig: ServiceRig, path: str, version: Version
) -> None:
    served = await rig.ask(path, **sign(rig, version, await rig.ask(path)))
    assert served.status_code == 200, served.text
    assert rig.earned == 10_000
    settlement = settlement_of(version, served)
    assert settlement.success
    assert settlement.payer == rig.alice.address
    assert settlement.network == ("cronos-testnet" if version == 1 else "eip155:338")
    other: Version = 2 if version == 1 else 1
    assert RESPONSE_HEADERS[other] not in served.headers
    record = await rig.record(served.headers["X-Payment-Id"])
    assert record["tx_hash"] == settlement.transaction
    assert (record["status"], record["resource_url"]) == ("settled", path)
    assert (record["from_address"], record["amount"]) == (rig.alice.address, "10000")


@scene
async def test_what_costs_nothing_more_is_taken_first(rig: ServiceRig) -> None:
    payment = sign(rig, 2, await rig.ask())
    paid_id = await rig.buy()
    served = await rig.ask(X_Payment_Id=paid_id, **payment)
    assert served.status_code == 200
    assert "PAYMENT-RESPONSE" not in served.headers
    session = await rig.open_session("0.03")
    assert (await rig.ask(X_Session_Id=session["sessionId"], **payment)).status_code == 200
    assert rig.transfers(rig.alice) == 2
    unknown = await rig.ask(X_Payment_Id="pay_unknown", **payment)
    assert (unknown.status_code, rig.transfers(rig.alice)) == (200, 3)


@scene
async def test_what_is_verified_and_fails_each_time_is_never_sent(rig: ServiceRig) -> None:
    policy = ServicePolicy(lost_answer=SettleAgain(wait_s=0))
    set_up(rig, payment_flow="authorization", policy=policy)
    required = await rig.ask()
    payment = sign(rig, 2, required)
    for _ in range(2):
        failed = await rig.http.post(QUOTE, json={}, headers=payment)
        await reconcile(rig.service)
        assert (failed.status_code, rig.transfers()) == (400, 0)
    paid = await rig.pay(required, rig.sign(required))  # its 402 is free for another payment
    assert (paid.status_code, rig.transfers()) == (200, 1)


# --- not paid --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "!!!", "abc", base64.b64encode(b"{no json").decode(), base64.b64encode(b"[1]").decode()],
)
@VERSIONS
@scene
async def test_what_cannot_be_read_is_400(rig: ServiceRig, text: str, version: Version) -> None:
    refused = await rig.ask(**{PAYMENT_HEADERS[version]: text})
    assert refused.status_code == 400
    assert refused.json()["error"] == "Invalid payment"


OTHER = "0x" + "11" * 20
SIGNED: list[tuple[dict[str, Any], str]] = [
    ({"value": 9_999}, ": value: wanted 10000, got 9999"),
    ({"value": 2**256 - 1}, "authorization_value"),
    ({"to": bytes(19) + b"\1"}, f", got 0x{'0' * 39}1"),
    ({"valid_after": 2_000_000_000}, VALID_AFTER),
    ({"network": MAINNET}, SIGNATURE),
]
"""What is signed wrong: each rule has its case in `tests/facilitator/test_standard.py`."""
CLAIMED: list[tuple[dict[str, Any], str]] = [
    ({"x402Version": 99}, INVALID_VERSION),
    ({"payload.authorization.from": "0x\0\u202e\7é"}, INVALID_PAYLOAD),
    ({"payload": {"signature": "0x12", "permit2": {}}}, "unsupported_payload_type"),
    ({"payload.authorization.from": "0x" + "de" * 20}, SIGNATURE),
]
IN_2: list[tuple[dict[str, Any], str]] = [
    ({"accepted.network": "eip155:1"}, "invalid_network"),
    ({"accepted.maxTimeoutSeconds": 1}, INVALID_REQUIREMENTS),
    ({"accepted.extra": None}, INVALID_REQUIREMENTS),
    ({"accepted.extra.name": "Foo"}, f"extra.name is 'Foo', offered was {TESTNET.token_name!r}"),
    ({"accepted.scheme": "upto"}, "unsupported_scheme"),
    ({"accepted.asset": OTHER}, f"is '{OTHER}', offered was '{checksum(TESTNET.asset)}'"),
    ({"accepted.payTo": OTHER}, f"is '{OTHER}', offered was"),
    ({"accepted.amount": "1"}, "amount is '1', offered was '10000'"),
    ({"accepted.extra.assetTransferMethod": "permit2"}, "unsupported_asset_transfer_method"),
    ({"accepted.extra.paymentFlow": "upfront"}, "is 'upfront', offered was None"),
    ({"resource": {"url": "http://service.test/api/other"}}, INVALID_REQUIREMENTS),
    ({"resource": {"url": "http://[::1"}}, INVALID_REQUIREMENTS),
]
"""What version 2 claims wrongly to accept."""
WRONG: list[tuple[Version, dict[str, Any], str]] = [
    *((version, changes, code) for version in (1, 2) for changes, code in SIGNED),
    *((version, {"claims": each}, code) for version in (1, 2) for each, code in CLAIMED),
    (1, {"claims": {"network": BASE_SEPOLIA.name}}, "invalid_network"),
    *((2, {"claims": each}, code) for each, code in IN_2),
]


@pytest.mark.parametrize(("version", "changes", "code"), WRONG)
@scene
async def test_what_is_wrong_is_402_with_the_reason(
    rig: ServiceRig, version: Version, changes: dict[str, Any], code: str
) -> None:
    refused = await rig.ask(**sign(rig, version, await rig.ask(), **changes))
    assert refused.status_code == 402, refused.text
    assert code in refused.json()["reason"]
    in_header, in_body = why(refused)
    assert refused.json()["reason"].startswith(f"{in_header}: ")
    assert in_body == (in_header if version == 1 else "Payment Required")
    assert rig.transfers() == 0


def why(refused: httpx.Response) -> tuple[str | None, str]:
    """Return what a 402 says of a refused payment: in its header, and in its body."""
    return read_required(refused.headers["PAYMENT-REQUIRED"]).error, refused.json()["error"]


@FLOWS
@VERSIONS
@scene
async def test_what_became_of_a_settlement_that_was_tried_is_told(
    rig: ServiceRig, version: Version, flow: Any
) -> None:
    """Also with a status that asks for no other payment."""
    set_up(rig, payment_flow=flow)
    for fault, reason in (
        (answer(502, "gone"), "unexpected_settle_error"),
        (answer(200, failed("Transaction failed on-chain")), "unexpected_settle_error"),
        (answer(200, failed("Invalid signature")), SIGNATURE),
    ):
        payment = sign(rig, version, await rig.ask())
        with broken(rig, "facilitator", only("/settle", fault)):
            refused = await rig.ask(**payment)
        assert refused.status_code != 200
        settlement = settlement_of(version, refused)
        assert (settlement.success, settlement.error_reason) == (False, reason)
        assert settlement.payer == rig.alice.address
    served = await rig.ask(**payment)
    assert settlement_of(version, served).success
    again = await rig.ask(**payment)
    assert (again.status_code, why(again)[0]) == (402, NONCE_USED[version])
    assert settlement_of(version, again).error_reason == NONCE_USED[version]


@VERSIONS
@scene
async def test_what_is_paid_and_not_served_yet_is_pending_with_its_transaction(
    rig: ServiceRig, version: Version
) -> None:
    set_up(rig, policy=ServicePolicy(serve=ServeConfirmed(3)))
    payment = sign(rig, version, await rig.ask())
    waiting = await rig.ask(**payment)
    assert (waiting.status_code, waiting.json()["final"]) == (409, False)
    settlement = settlement_of(version, waiting)
    assert (settlement.success, settlement.error_reason) == (False, "settlement_pending")
    assert len(settlement.transaction) == 66
    await rig.parts.chain.mine(3)
    served = await rig.ask(**payment)
    assert settlement_of(version, served).transaction == settlement.transaction


@VERSIONS
@scene
async def test_the_wrapper_around_a_wallet_that_is_deployed_is_taken_off(
    rig: ServiceRig, version: Version
) -> None:
    """EIP-6492, as at the standard's facilitator."""
    owner = rig.alice
    wallet = contract.wallet_address(owner.address_bytes)
    slots = contract.wallet_storage(owner.address_bytes)
    chain = rig.parts.chain
    await chain.set_code(wallet, contract.wallet_code(), slots)
    await chain.fund(wallet, 1_000_000)
    payment = sign(rig, version, await rig.ask(), from_=wallet)
    ((name, text),) = payment.items()
    signature = json.loads(base64.b64decode(text))["payload"]["signature"]
    inner = bytes.fromhex(signature[2:])
    wrapped = abi_encode(["address", "bytes", "bytes"], [bytes(20), b"\x12", inner]) + UNDEPLOYED
    served = await rig.ask(**{name: changed(text, {"payload.signature": to_hex(wrapped)})})
    assert served.status_code == 200, served.text
    assert settlement_of(version, served).payer == checksum(wallet)
    assert rig.earned == 10_000


# --- the same authorization again ------------------------------------------------------------


@scene
async def test_a_replay_whose_order_fails_learns_no_payment_id(rig: ServiceRig) -> None:
    set_up(rig, payment_flow="upfront")
    payment = sign(rig, 2, await rig.ask())
    assert "X-Payment-Id" in (await rig.ask(**payment)).headers
    thief = await rig.http.post(QUOTE, json={}, headers=payment)
    assert (thief.status_code, settlement_of(2, thief).success) == (400, True)
    assert "pay_" not in thief.text + str(thief.headers)  # it would be served


@scene
async def test_another_spelling_is_the_same_authorization(rig: ServiceRig) -> None:
    required = await rig.ask()
    payment = sign(rig, 2, required)
    assert (await rig.ask(**payment)).status_code == 200
    text = payment["PAYMENT-SIGNATURE"]
    said = json.loads(base64.b64decode(text))
    authorization = said["payload"]["authorization"]
    upper = {k: v.upper().replace("0X", "0x") for k, v in authorization.items()}
    for claims in ({"payload.authorization": upper}, {"extensions": {"a": 1}}):
        again = await rig.ask(PAYMENT_SIGNATURE=changed(text, claims))
        assert (again.status_code, rig.transfers()) == (402, 1)
    first = {"x402Version": 1, "scheme": "exact", "network": "cronos-testnet"}
    first |= {"payload": said["payload"]}
    again = await rig.ask(X_PAYMENT=base64.b64encode(json.dumps(first).encode()).decode())
    assert (again.status_code, rig.transfers()) == (402, 1)


@pytest.mark.parametrize("is_pending", [False, True])
@VERSIONS
@scene
async def test_for_another_resource_it_is_refused(
    rig: ServiceRig, version: Version, is_pending: bool
) -> None:
    payment = sign(rig, version, await rig.ask())
    with broken(rig, "facilitator", only("/settle", lose_request if is_pending else deliver)):
        assert (await rig.ask(**payment)).status_code == (502 if is_pending else 200)
    elsewhere = payment
    if version == 2:  # which names its resource: let it name the other one
        text = changed(payment["PAYMENT-SIGNATURE"], {"resource.url": f"http://a{MARKET}"})
        elsewhere = {"PAYMENT-SIGNATURE": text}
    refused = await rig.ask(MARKET, **elsewhere)
    assert refused.status_code == 402
    assert NONCE_USED[version] in refused.json()["reason"]
    assert (await rig.ask(**payment)).status_code == (200 if is_pending else 402)
    assert rig.transfers() == 1


def with_low_v(payment: dict[str, str]) -> dict[str, str]:
    ((name, text),) = payment.items()
    signature = json.loads(base64.b64decode(text))["payload"]["signature"]
    low = signature[:-2] + {"1b": "00", "1c": "01"}[signature[-2:]]
    return {name: changed(text, {"payload.signature": low})}


@pytest.mark.clause("7/invalid-signature", "3/pending-resolved")
@FLOWS
@VERSIONS
@scene
async def test_a_v_of_0_or_1_asks_for_no_other_payment_once_one_was_sent(
    rig: ServiceRig, version: Version, flow: Any
) -> None:
    set_up(rig, payment_flow=flow)
    payment = sign(rig, version, await rig.ask())
    with broken(rig, "facilitator", only("/settle", answer(502, "gone"))):
        assert (await rig.ask(**payment)).status_code == 502
    refused = await rig.ask(**with_low_v(payment))
    assert (refused.status_code, refused.json()["final"]) == (409, False)
    assert "v is " in refused.json()["reason"]
    assert "PAYMENT-REQUIRED" not in refused.headers
    assert (await rig.ask(**payment)).status_code == 200
    assert rig.transfers() == 1


async def deliver(_: Any, inner: Any) -> Any:
    """Lose nothing."""
    return await inner()


async def take_time(_: Any, inner: Any) -> Any:
    await asyncio.sleep(0.01)
    return await inner()


async def lost(rig: ServiceRig, payment: dict[str, str]) -> httpx.Response:
    """Pay, and lose every sign of the settlement."""
    silent = after(2, lose_request)  # the node answers the first look at the nonce
    with broken(rig, "facilitator", only("/settle", lose_answer)), broken(rig, "rpc", silent):
        answer = await rig.ask(**payment)
    assert (answer.status_code, answer.json()["final"]) == (502, False)
    return answer


# --- lost answers and crashes ----------------------------------------------------------------


@VERSIONS
@scene
async def test_a_lost_settlement_and_a_silent_node_are_resolved_by_the_same_header(
    rig: ServiceRig, version: Version
) -> None:
    required = await rig.ask()
    payment = sign(rig, version, required)
    refused = await lost(rig, payment)
    assert "PAYMENT-REQUIRED" not in refused.headers  # nothing invites to sign another payment
    # Not the payment's own id: who has that has access.
    shown = re.findall(r"pay_[\w-]+", refused.json()["reason"])
    assert shown == {1: [], 2: [required.json()["paymentId"]]}[version]
    if version == 2:
        assert settlement_of(2, refused).error_reason == "unexpected_settle_error"
    rig.now[0] += 3600 * (version - 1)  # however late
    served = await rig.ask(**payment)
    assert (served.status_code, rig.transfers()) == (200, 1)


# --- clients that hang up, and kills ---------------------------------------------------------


@scene
async def test_a_client_that_closes_before_its_answer_is_written_is_served_later(
    rig: ServiceRig,
) -> None:
    payment = sign(rig, 2, await rig.ask())
    content = await spent(rig, payment, On(answered=False))
    waiting = await rig.ask(**payment)
    assert (waiting.status_code, waiting.json()["final"]) == (409, False)
    assert "is being answered" in waiting.json()["reason"]
    assert content.background is not None
    await content.background()
    left = AnswerNotWritten(payment_id=content.headers["x-payment-id"])
    assert left in [entry.event for entry in rig.parts.journal]
    assert (await rig.ask(**payment)).status_code == 200
    assert (await rig.ask(**payment)).status_code == 402


@scene
async def test_a_kill_before_an_answer_was_confirmed_costs_one_more(rig: ServiceRig) -> None:
    payment = sign(rig, 2, await rig.ask())
    await spent(rig, payment, On())
    rig.restart()
    assert (await rig.ask(**payment)).status_code == 200
    rig.restart()
    assert (await rig.ask(**payment)).status_code == 402


@pytest.mark.parametrize(("answered", "status"), [(True, 409), (False, 200)])
@scene
async def test_a_full_disk_after_the_answer_serves_nobody_again_but_who_left_before(
    rig: ServiceRig, answered: bool, status: int
) -> None:
    payment = sign(rig, 2, await rig.ask())
    content = await spent(rig, payment, On(answered))
    assert content.background is not None
    rig.service.store.execute("PRAGMA query_only = 1")  # no statement can write
    await content.background()
    rig.service.store.execute("PRAGMA query_only = 0")
    assert (await rig.ask(**payment)).status_code == status


OTHER_NAME = "pay_another_0123456789"


async def named(rig: ServiceRig, value: Any = "pay_0123456789abcdef") -> dict[str, str]:
    """Return a payment of version 2 whose payer gives it an id."""
    return name(sign(rig, 2, await rig.ask()), value)


def name(payment: dict[str, str], value: Any = "pay_0123456789abcdef") -> dict[str, str]:
    extensions = {PAYMENT_IDENTIFIER: {"info": {"required": False, "id": value}}}
    return {PAYMENT_HEADERS[2]: changed(payment[PAYMENT_HEADERS[2]], {"extensions": extensions})}


@scene
async def test_who_named_a_payment_gets_its_answer_again_and_nobody_else(rig: ServiceRig) -> None:
    required = await rig.ask()
    assert PAYMENT_IDENTIFIER in (
        read_required(required.headers["PAYMENT-REQUIRED"]).extensions or {}
    )
    plain = sign(rig, 2, required)
    first = await rig.ask(**name(plain))
    rig.restart()
    again = await rig.ask(**name(plain))
    assert (first.status_code, again.status_code) == (200, 200)
    assert (again.content, dict(again.headers)) == (first.content, dict(first.headers))
    assert settlement_of(2, again).success
    thief = await rig.ask(**plain)  # what can be read on the chain
    assert thief.status_code == 402
    other = await rig.ask(**await named(rig))
    assert (other.status_code, other.json()["error"]) == (409, "Payment identifier in use")
    assert rig.transfers() == 1


@scene
async def test_a_named_payment_that_is_sent_twice_at_once_is_to_be_sent_again(
    rig: ServiceRig,
) -> None:
    payment = await named(rig)
    with broken(rig, "facilitator", take_time):
        first, second = await asyncio.gather(rig.ask(**payment), rig.ask(**payment))
    assert (first.status_code, second.status_code, second.json()["final"]) == (200, 409, False)
    assert (await rig.ask(**payment)).content == first.content
    assert rig.transfers() == 1


@pytest.mark.parametrize("flow", [None, "authorization", "upfront"])
@scene
async def test_of_two_payments_with_one_name_the_second_is_refused_uncharged(
    rig: ServiceRig, flow: Any
) -> None:
    """Sent at once: the name is reserved before anything is settled."""
    set_up(rig, payment_flow=flow)
    payments = [await named(rig) for _ in range(2)]
    with broken(rig, "facilitator", take_time):
        answers = await asyncio.gather(*(rig.ask(**each) for each in payments))
    assert [each.status_code for each in answers] == [200, 409]
    assert answers[1].json()["error"] == "Payment identifier in use"
    assert rig.transfers() == 1
    assert (await rig.ask(**payments[0])).content == answers[0].content
    assert (await rig.ask(**name(payments[1], OTHER_NAME))).status_code == 200


@scene
async def test_a_name_stays_with_a_payment_that_may_still_be_paid(rig: ServiceRig) -> None:
    payment = await named(rig)
    await lost(rig, payment)
    other = await named(rig)
    assert (await rig.ask(**other)).status_code == 409
    rig.restart()
    assert (await rig.ask(**other)).status_code == 409
    assert (await rig.ask(**payment)).status_code == 200
    assert rig.transfers() == 1


@scene
async def test_a_settled_payment_is_not_served_under_the_name_of_another(rig: ServiceRig) -> None:
    set_up(rig, payment_flow="upfront")
    plain = sign(rig, 2, await rig.ask())
    assert (await rig.http.post(QUOTE, json={}, headers=plain)).status_code == 400
    assert (await rig.ask(**await named(rig))).status_code == 200
    assert (await rig.ask(**name(plain))).status_code == 409
    assert (await rig.ask(**plain)).status_code == 200
    assert rig.transfers() == 2


@pytest.mark.parametrize("is_payer", [True, False])
@scene
async def test_a_served_payment_under_a_second_name_is_refused_and_reserves_nothing(
    rig: ServiceRig, is_payer: bool
) -> None:
    """Its payer, who knows the id of its 402, reads the first name; whoever else has it does not:
    with that name it could request the answer."""
    plain = sign(rig, 2, await rig.ask())
    first = await rig.ask(**name(plain))
    foreign = (await rig.ask()).json()["paymentId"]
    shown = changed(plain[PAYMENT_HEADERS[2]], {"accepted.extra.paymentId": foreign})
    again = plain if is_payer else {PAYMENT_HEADERS[2]: shown}
    for sent in (name(again, OTHER_NAME), again):
        refused = await rig.ask(**sent)
        assert refused.status_code == 402
        reason = refused.json()["reason"]
        assert "send the payment again as it was sent first" in reason
        assert ("under the payment-identifier 'pay_0123456789abcdef'" in reason) is is_payer
        assert ("under another payment-identifier" in reason) is not is_payer
        assert (settlement_of(2, refused).error_message or "?") in reason
    assert (await rig.ask(**await named(rig, OTHER_NAME))).status_code == 200
    assert (await rig.ask(**name(plain))).content == first.content
    assert rig.transfers() == 2


@scene
async def test_a_payment_whose_name_another_takes_meanwhile_is_still_good(rig: ServiceRig) -> None:
    """Settled without a name, it is sent with one that another payment gets at this moment."""
    set_up(rig, payment_flow="upfront")
    plain = sign(rig, 2, await rig.ask())
    assert (await rig.http.post(QUOTE, json={}, headers=plain)).status_code == 400
    headers = {key.lower(): text for key, text in name(plain).items()}
    paid = await gate.find_pass(rig.service, headers, QUOTE, 10_000)
    assert (await rig.ask(**await named(rig))).status_code == 200
    assert isinstance(paid, one_step.OneStep)
    with pytest.raises(Refused, match="Payment identifier in use"):
        await one_step.spend(rig.service, paid, Response(), On())
    assert (await rig.ask(**plain)).status_code == 200


@VERSIONS
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT"])
@scene
async def test_a_method_that_is_not_sold_moves_nothing(
    rig: ServiceRig, method: str, version: Version
) -> None:
    set_up(rig, decide={"agents_free": False, "short_session_status": 403})
    session = (await rig.open_session("0.05"))["sessionId"]
    for path in (QUOTE, MARKET, AGENTS):
        payment = sign(rig, version, await rig.ask(path))
        for headers in (payment, {"X-Session-Id": session}):
            answer = await rig.http.request(method, path, headers=headers)
            is_sold = method == "HEAD" and path != QUOTE
            assert answer.status_code == (402 if is_sold else 405)
            if is_sold:
                unpaid = await rig.http.get(path)
                assert "PAYMENT-REQUIRED" in answer.headers
                assert answer.headers.keys() == unpaid.headers.keys()
    assert rig.transfers() == 1
    assert (await rig.http.get(f"/api/sessions/{session}")).json()["released"] == "0"
    assert (await rig.ask(MARKET, **sign(rig, version, await rig.ask(MARKET)))).status_code == 200


@pytest.mark.parametrize("settles_late", [False, True])
@scene
async def test_a_kept_answer_ends_with_its_authorization_unless_that_settled_late(
    rig: ServiceRig, settles_late: bool
) -> None:
    payment = await named(rig)
    if settles_late:
        await lost(rig, payment)
        rig.now[0] += 3600
    first = await rig.ask(**payment)
    assert first.status_code == 200
    rig.now[0] += 0 if settles_late else 301
    assert (await rig.ask(**await named(rig, OTHER_NAME))).status_code == 200
    again = await rig.ask(**payment)
    assert (again.status_code, rig.transfers()) == (200 if settles_late else 402, 2)
    assert (again.content == first.content) is settles_late


@pytest.mark.parametrize("value", ["short", "x" * 129, "pay 0123456789abcdef", 17, {}])
@scene
async def test_an_id_of_the_wrong_form_pays_nothing(rig: ServiceRig, value: Any) -> None:
    refused = await rig.ask(**await named(rig, value))
    assert refused.status_code == 402
    assert "16 to 128" in refused.json()["reason"]
    assert rig.transfers() == 0


@pytest.mark.parametrize("shown", ["accepted by version 2", "beside version 1"])
@scene
async def test_a_payer_knows_its_payment_id_before_it_pays(rig: ServiceRig, shown: str) -> None:
    required = await rig.ask()
    payment_id = required.json()["paymentId"]
    payment = sign(rig, 2 if "2" in shown else 1, required)
    if "1" in shown:
        payment["X_Payment_Id"] = payment_id
    assert (await rig.http.get(f"/api/payments/{payment_id}")).status_code == 404
    await spent(rig, payment, On())  # the answer is lost on the wire
    assert (await rig.ask(X_Payment_Id=payment_id)).status_code == 200
    assert (await rig.record(payment_id))["status"] == "settled"
    assert (await rig.ask(MARKET, X_Payment_Id=payment_id)).status_code == 402
    rig.restart()
    assert (await rig.ask(X_Payment_Id=payment_id)).status_code == 200
    assert rig.transfers() == 1


@pytest.mark.parametrize("is_shown", [True, False], ids=["its id is shown", "it is not"])
@scene
async def test_authorizations_for_one_402_are_purchases_each(
    rig: ServiceRig, is_shown: bool
) -> None:
    required = await rig.ask()
    hidden = {} if is_shown else {"accepted.extra.paymentId": None}
    payments = [sign(rig, 2, required, claims=hidden) for _ in range(3)]
    answers = await asyncio.gather(*(rig.ask(**each) for each in payments))
    assert [each.status_code for each in answers] == [200] * 3
    bought = {each.headers["X-Payment-Id"] for each in answers}
    assert (len(bought), rig.transfers()) == (3, 3)
    again = [await rig.ask(X_Payment_Id=each) for each in bought]
    assert {each.status_code for each in again} == {200}


@scene
async def test_the_record_shown_for_a_402_is_that_of_the_payment_that_settled(
    rig: ServiceRig,
) -> None:
    required = await rig.ask()
    poor, payment_id = rig.sign(required, Wallet.create()), required.json()["paymentId"]
    refused = await rig.pay(required, poor)
    assert refused.status_code == 402
    assert refused.json()["reason"].endswith(f"or ask GET /api/payments/{payment_id}")
    assert (await rig.record(payment_id))["status"] == "pending"
    assert (await rig.ask(**sign(rig, 2, required))).status_code == 200
    assert (await rig.record(payment_id))["status"] == "settled"


@pytest.mark.clause("7/payment-already-settled")
@pytest.mark.parametrize("first", ["one step", "two steps"])
@scene
async def test_a_402_is_paid_in_one_step_or_in_two_but_once(rig: ServiceRig, first: str) -> None:
    required = await rig.ask()
    in_one = sign(rig, 2, required)
    if first == "one step":
        assert (await rig.ask(**in_one)).status_code == 200
        second = await rig.pay(required)
        assert (second.status_code, second.json()["error"]) == (409, "Payment already settled")
    else:
        assert (await rig.pay(required)).status_code == 200
        assert (await rig.ask(**in_one)).status_code == 402
    assert rig.transfers() == 1


@pytest.mark.parametrize("foreign", ["pay_invented", "of the market", 7])
@scene
async def test_a_payment_id_that_is_not_of_this_402_is_not_kept(
    rig: ServiceRig, foreign: Any
) -> None:
    required = await rig.ask()
    if foreign == "of the market":
        foreign = (await rig.ask(MARKET)).json()["paymentId"]
    payment = sign(rig, 2, required, claims={"accepted.extra.paymentId": foreign})
    assert (await rig.ask(**payment)).status_code == 200
    for path in (QUOTE, MARKET):
        assert (await rig.ask(path, X_Payment_Id=str(foreign))).status_code == 402


# --- two services on one store ---------------------------------------------------------------


def at_once(*, is_late: bool = False) -> Fault:
    """Let the first two calls wait for each other: after their work, or before, if it `is_late`."""
    both, calls = asyncio.Barrier(2), count()

    async def on(_: Any, inner: Any) -> Any:
        said = None if is_late else await inner()
        if next(calls) < 2:
            await both.wait()
        return said or await inner()

    return on


@scene
async def test_what_a_service_answers_no_other_on_its_store_does_however_long(
    rig: ServiceRig,
) -> None:
    payment = sign(rig, 2, await rig.ask())
    content = await spent(rig, payment, On())
    rig.now[0] += 3600
    with beside(rig) as (_, other):
        waits = await other.post(QUOTE, json=ORDER, headers=payment)
        assert (waits.status_code, waits.json()["final"]) == (409, False)
        assert "is being answered" in waits.json()["reason"]
        assert content.background is not None
        await content.background()
        assert (await other.post(QUOTE, json=ORDER, headers=payment)).status_code == 402


@scene
async def test_what_a_crashed_service_was_answering_others_answer_at_once(rig: ServiceRig) -> None:
    payments = [sign(rig, 2, await rig.ask()) for _ in range(3)]
    with beside(rig) as (ended, _), beside(rig) as (_, lasting):
        for payment in payments:
            await spent(rig, payment, On(), ended)
        waits = await lasting.post(QUOTE, json=ORDER, headers=payments[0])
        restarted(ended)
        served = [await lasting.post(QUOTE, json=ORDER, headers=payments[0])]
        served.append(await rig.ask(**payments[1]))
        served.append(await lasting.post(QUOTE, json=ORDER, headers=payments[2]))
        refused = [await rig.ask(**each) for each in payments]
    assert waits.status_code == 409
    assert [each.status_code for each in served] == [200] * 3
    assert [each.status_code for each in refused] == [402] * 3


@pytest.mark.parametrize(("steps", "is_late"), [(1, False), (2, False), (2, True)])
@scene
async def test_two_services_that_get_one_header_at_once_settle_it_once(
    rig: ServiceRig, steps: int, is_late: bool
) -> None:
    required = await rig.ask()
    path, sent = PAY, {"json": rig.settlement(required)}
    if steps == 1:
        path, sent = QUOTE, {"json": ORDER, "headers": sign(rig, 2, required)}
    slow = broken(rig, "facilitator", deliver if is_late else take_time)
    with beside(rig) as (_, other), broken(rig, "rpc", at_once(is_late=is_late)), slow:
        answers = await asyncio.gather(rig.http.post(path, **sent), other.post(path, **sent))
        (late,) = [each for each in answers if each.status_code != 200]
        assert (late.status_code, late.json()["error"]) == (409, "Settlement pending")
        assert late.json()["reason"] == "another request with it is being settled"
        again = await other.post(path, **sent)
    assert (again.status_code, rig.transfers()) == ({1: 402, 2: 409}[steps], 1)


@pytest.mark.parametrize("is_late", [False, True])
@scene
async def test_two_services_that_get_two_headers_for_one_id_at_once_settle_one(
    rig: ServiceRig, is_late: bool
) -> None:
    required = await rig.ask()
    headers = [rig.sign(required, wallet) for wallet in (rig.alice, rig.bob)]
    sent = [rig.settlement(required, each) for each in headers]
    slow = broken(rig, "facilitator", deliver if is_late else take_time)
    with beside(rig) as (_, other), broken(rig, "rpc", at_once(is_late=is_late)), slow:
        answers = await asyncio.gather(
            rig.http.post(PAY, json=sent[0]), other.post(PAY, json=sent[1])
        )
        (late,) = [each for each in answers if each.status_code != 200]
        pending = "Settlement pending", "an earlier payment header may still settle"
        wanted = ("Payment already settled", None) if is_late else pending
        assert (late.json()["error"], late.json().get("reason")) == wanted
        for each in sent:
            again = await other.post(PAY, json=each)
            assert (again.status_code, again.json()["error"]) == (409, "Payment already settled")
    assert rig.transfers() == 1


@scene
async def test_two_services_that_resolve_a_payment_at_once_settle_it_once(rig: ServiceRig) -> None:
    payment = sign(rig, 2, await rig.ask())
    await lost(rig, payment)
    with beside(rig) as (other, client), broken(rig, "rpc", at_once()):
        assert await asyncio.gather(reconcile(rig.service), reconcile(other)) == [1, 1]
        assert (await client.post(QUOTE, json=ORDER, headers=payment)).status_code == 200


async def spent(
    rig: ServiceRig, payment: dict[str, str], connection: On, service: Service | None = None
) -> Response:
    """Spend the pass of a request with this payment; return the content that answers it."""
    headers = {name.lower().replace("_", "-"): value for name, value in payment.items()}
    service, content = service or rig.service, Response()
    paid = await gate.find_pass(service, headers, QUOTE, 10_000)
    assert isinstance(paid, one_step.OneStep)
    await one_step.spend(service, paid, content, connection)
    return content
