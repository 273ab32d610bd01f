"""One payment, over TCP: asked, signed, settled, repeated; and every way it must not work."""

import base64
import json
import random
import re

import httpx
import pytest

from tests.serve.driver import (
    ORDER,
    PAY,
    PRICE,
    QUOTE,
    SESSIONS,
    Payer,
    Server,
    header,
    read_header,
    refusal,
    write_header,
)
from x402sim import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.messages import PaymentRequired, decode
from x402sim.protocol.networks import MAINNET, TESTNET

OTHER = "0x" + "42" * 20
DESCRIPTION = "A quote for a perpetual position"


# --- asked, paid, served -----------------------------------------------------------------


def test_no_cache_stores_what_may_hold_a_proof_of_payment(server):
    payer = server.payer()
    asked = server.http.post(QUOTE, json=ORDER)
    paid = server.http.post(PAY, json=payer.settlement(asked.json()))
    served = payer.quote(asked.json()["paymentId"])
    refused = server.http.post(PAY, json=payer.settlement(asked.json()))
    session = server.http.post(SESSIONS, json={"maxSpend": "1.00", "duration": 60})
    answers = (asked, paid, served, refused, session)
    assert [answer.status_code for answer in answers] == [402, 200, 200, 409, 402]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


@pytest.mark.clause(
    "1/unpaid-402",
    "2.1/requirements",
    "2.2/body",
    "4.2/price",
    "7/payment-required",
    "8/quote-price",
    "8/timeout",
)
def test_without_payment_the_answer_is_the_402_of_2_2_and_the_standards(server):
    answer = server.http.post(QUOTE, json=ORDER)
    assert answer.status_code == 402
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert re.fullmatch("pay_[A-Za-z0-9_-]{30,}", body.pop("paymentId"))
    assert "10000 base units" in body.pop("message")
    assert body.pop("x402Version") == 1
    (accepted,) = body.pop("accepts")
    assert accepted["resource"] == server.ready["service"] + QUOTE
    assert accepted["payTo"] == server.ready["payTo"]
    assert body == {
        "error": "Payment Required",
        "network": "cronos-testnet",
        "paymentRequirements": {
            "scheme": "exact",
            "network": "cronos-testnet",
            "payTo": server.ready["payTo"],
            "asset": server.ready["asset"],
            "maxAmountRequired": "10000",
            "maxTimeoutSeconds": 300,
            "resource": QUOTE,
            "description": DESCRIPTION,
        },
    }


@pytest.mark.clause("2.2/body")
def test_no_two_402s_have_the_same_payment_id(payer):
    assert len({payer.ask()["paymentId"] for _ in range(20)}) == 20


@pytest.mark.clause(
    "1/repeat-served",
    "2.3/contents",
    "2.3/hex-header",
    "4.1/order",
    "4.1/receipt",
    "4.1/settle-on-chain",
    "4.1/store-settled",
    "4.2/quote",
)
def test_a_paid_quote(server, payer):
    before_ms = server.state()["now"]
    merchant_had = server.balance(server.ready["payTo"])
    asked = payer.ask()
    signed = payer.wallet.payment_header(_typed(asked), server.now_s())
    assert re.fullmatch("0x[0-9a-f]+", signed)

    answer = payer.pay(asked, signed)
    assert answer.status_code == 200
    receipt = answer.json()
    assert before_ms <= receipt.pop("timestamp") <= server.state()["now"]
    tx_hash = receipt.pop("txHash")
    assert re.fullmatch("0x[0-9a-f]{64}", tx_hash)
    assert receipt == {"success": True, "paymentId": asked["paymentId"]}

    mined = server.rpc("eth_getTransactionReceipt", tx_hash)
    assert mined["status"] == "0x1"
    assert (payer.balance, payer.transfers) == (100_000_000 - PRICE, 1)
    assert server.balance(server.ready["payTo"]) == merchant_had + PRICE

    served = payer.quote(asked["paymentId"])
    assert served.status_code == 200
    quote = served.json()["quote"]
    assert served.json().keys() == {"quote"}
    assert {name: type(value) for name, value in quote.items()} == {
        "pair": str,
        "entryPrice": float,
        "liquidationPrice": float,
        "fundingRate": float,
        "bestVenue": str,
    }
    assert quote["pair"] == "BTC-USD"
    assert 0 < quote["liquidationPrice"] < quote["entryPrice"]


@pytest.mark.clause("1/payer-pays-no-gas")
def test_the_facilitator_pays_the_gas(server, payer):
    asked = payer.ask()
    tx_hash = payer.pay(asked).json()["txHash"]
    mined = server.rpc("eth_getTransactionReceipt", tx_hash)
    assert mined["from"] != payer.address.lower()
    assert int(server.rpc("eth_getBalance", payer.address, "latest"), 16) == 0
    assert int(server.rpc("eth_getTransactionCount", payer.address, "latest"), 16) == 0


@pytest.mark.clause("2.4/record", "2.4/block-null")
def test_the_stored_record(server, payer):
    asked = payer.ask()
    receipt = payer.pay(asked).json()
    record = server.http.get(f"/api/payments/{asked['paymentId']}").json()
    assert record.pop("timestamp") <= receipt["timestamp"]
    assert record == {
        "payment_id": asked["paymentId"],
        "tx_hash": receipt["txHash"],
        "from_address": payer.address,
        "to_address": server.ready["payTo"],
        "amount": "10000",
        "resource_url": QUOTE,
        "status": "settled",
        "block_number": None,
    }


@pytest.mark.clause("4.1/order", "4.1/build-verify")
def test_the_facilitator_verifies_before_it_settles(server, payer):
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    mark = len(server.journal())
    assert payer.pay(asked, signed).status_code == 200
    events = [
        e.get("path") or e["event"]
        for e in server.journal(mark)
        if e["event"] not in ("authorization consumed", "transfer")
    ]
    assert events == [
        "/",  # the chain's node, for its newest block and the nonce's state
        "/",
        "/v2/x402/verify",
        "transaction mined",
        "/v2/x402/settle",
        "payment settled",
        PAY,
    ]


def test_a_payment_id_is_good_for_as_many_requests_as_one_likes(server, payer):
    payment_id = payer.paid()
    assert [payer.quote(payment_id).status_code for _ in range(5)] == [200] * 5
    stranger = server.payer(funds=None)
    assert stranger.quote(payment_id).status_code == 200
    assert payer.transfers == 1


@pytest.mark.clause("3/record-outlives-cache", "4.1/cache", "5/stored-records")
def test_a_payment_still_grants_when_the_cache_has_forgotten_it(server, payer):
    cached = server.state()["cachedEntitlements"]
    payment_id = payer.paid()
    assert server.state()["cachedEntitlements"] == cached + 1
    server.advance(24 * 3600 + 1)
    assert server.state()["cachedEntitlements"] == 0
    server.sim("indexer/run")
    assert payer.quote(payment_id).status_code == 200


# --- proofs that are none ----------------------------------------------------------------


@pytest.mark.clause("5/resource-binding")
def test_a_payment_is_good_for_the_resource_it_paid_for_only(payer):
    quote_id = payer.paid()
    answer = payer.create(quote_id, "0.03")
    assert answer.status_code == 402
    assert answer.json()["paymentRequirements"]["resource"] == SESSIONS

    deposit = payer.ask_session("0.01")
    assert payer.pay(deposit).status_code == 200
    answer = payer.quote(deposit["paymentId"])
    assert answer.status_code == 402
    assert answer.json()["paymentRequirements"]["resource"] == QUOTE


@pytest.mark.clause("5/cache-first", "5/stored-records")
@pytest.mark.parametrize(
    "payment_id", ["", "pay_", "pay_" + "a" * 72, "pay_x", "'; DROP TABLE payments; --", "☃"]
)
def test_an_unknown_payment_id_grants_nothing(server, payment_id):
    headers = {"X-Payment-Id": payment_id.encode()}
    answer = server.http.post(QUOTE, json=ORDER, headers=headers)
    assert answer.status_code == 402
    assert answer.json()["paymentId"] != payment_id


@pytest.mark.clause("5/stored-records")
def test_an_id_that_was_issued_and_not_paid_grants_nothing(payer):
    assert payer.quote(payer.ask()["paymentId"]).status_code == 402


# --- requirements that are not those issued ----------------------------------------------


TAMPERED = [
    pytest.param("scheme", "upto", {}, marks=pytest.mark.clause("2.1/scheme")),
    pytest.param("scheme", "EXACT", {}, marks=pytest.mark.clause("2.1/scheme")),
    pytest.param("network", MAINNET.name, {}, marks=pytest.mark.clause("2.1/network")),
    pytest.param("network", "cronos", {}, marks=pytest.mark.clause("2.1/network")),
    pytest.param("payTo", OTHER, {}, marks=pytest.mark.clause("2.1/pay-to")),
    pytest.param("asset", OTHER, {}, marks=pytest.mark.clause("2.1/asset")),
    pytest.param("maxAmountRequired", "9999", {}, marks=pytest.mark.clause("2.1/amount")),
    pytest.param("maxAmountRequired", "10001", {}, marks=pytest.mark.clause("2.1/amount")),
    pytest.param("maxAmountRequired", "0", {}, marks=pytest.mark.clause("2.1/amount")),
    pytest.param(
        "maxAmountRequired",
        "010",
        {"amount": 10, "value": "010"},
        marks=pytest.mark.clause("2.1/amount"),
    ),
    pytest.param("maxAmountRequired", "010000", {}, marks=pytest.mark.clause("2.1/amount")),
    pytest.param("maxAmountRequired", " 10000", {}, marks=pytest.mark.clause("2.1/amount")),
    pytest.param(
        "maxAmountRequired",
        "1e4",
        {"amount": 10_000, "value": "1e4"},
        marks=pytest.mark.clause("2.1/amount"),
    ),
    pytest.param("maxTimeoutSeconds", 301, {}, marks=pytest.mark.clause("2.1/timeout")),
    pytest.param("maxTimeoutSeconds", 86400, {}, marks=pytest.mark.clause("2.1/timeout")),
    pytest.param("resource", SESSIONS, {}, marks=pytest.mark.clause("2.1/resource")),
    pytest.param("resource", QUOTE + "/", {}, marks=pytest.mark.clause("2.1/resource")),
    pytest.param("resource", "/API/perp/quote", {}, marks=pytest.mark.clause("2.1/resource")),
    pytest.param("description", "Free", {}, marks=pytest.mark.clause("2.1/description")),
]


@pytest.mark.clause("4.1/validate")
@pytest.mark.parametrize(("name", "value", "signed_as"), TAMPERED)
def test_requirements_changed_and_signed_consistently_are_refused(
    server, payer, name, value, signed_as
):
    asked = payer.ask()
    before = server.transfers(), server.state()["rows"]
    signed = payer.sign(asked["paymentRequirements"] | {name: value}, **signed_as)

    answer = payer.pay(asked, signed, **{name: value})

    assert refusal(answer) == (400, "Payment requirements do not match")
    assert answer.json()["reason"].startswith(f"{name}: ")
    assert payer.transfers == 0
    assert payer.balance == 100_000_000
    assert (server.transfers(), server.state()["rows"]) == before
    assert payer.pay(asked).status_code == 200, "the id itself can still be paid"


@pytest.mark.clause("2.1/description")
@pytest.mark.parametrize("description", [DESCRIPTION, "", None])
def test_the_description_may_be_sent_back_or_left_out(payer, description):
    asked = payer.ask()
    body = payer.settlement(asked)
    body["paymentRequirements"]["description"] = description
    assert payer.server.http.post(PAY, json=body).status_code == 200


def test_addresses_may_be_written_in_any_case(payer):
    asked = payer.ask()
    wanted = asked["paymentRequirements"]
    changes = {name: wanted[name].lower() for name in ("payTo", "asset")}
    assert payer.pay(asked, **changes).status_code == 200


def test_unknown_fields_are_ignored(server, payer):
    asked = payer.ask()
    signed = read_header(payer.sign(asked["paymentRequirements"]))
    signed |= {"extra": [1, {"a": None}]}
    signed["payload"]["memo"] = "thanks"
    body = payer.settlement(asked, write_header(signed))
    body |= {"x402Version": 1, "tip": "1"}
    body["paymentRequirements"] |= {"mimeType": "application/json", "extra": {"name": "USDC"}}
    assert server.http.post(PAY, json=body).status_code == 200
    answer = payer.quote(asked["paymentId"], body=ORDER | {"colour": "blue"})
    assert answer.status_code == 200


# --- a payment settles once --------------------------------------------------------------


@pytest.mark.clause("7/payment-already-settled")
def test_the_same_payment_twice_is_already_settled(payer):
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    assert payer.pay(asked, signed).status_code == 200
    assert refusal(payer.pay(asked, signed)) == (409, "Payment already settled")
    assert refusal(payer.pay(asked)) == (409, "Payment already settled")
    assert payer.transfers == 1
    assert payer.balance == 100_000_000 - PRICE


@pytest.mark.clause("5/nonce-once", "7/nonce-already-used")
def test_the_same_header_under_another_id_is_a_replay(payer):
    first, second = payer.ask(), payer.ask()
    signed = payer.sign(first["paymentRequirements"])
    assert payer.pay(first, signed).status_code == 200
    assert refusal(payer.pay(second, signed)) == (409, "Nonce already used")
    assert payer.quote(second["paymentId"]).status_code == 402
    assert payer.transfers == 1
    assert payer.pay(second).status_code == 200, "a fresh header pays the second id"


def _in_base64(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text[2:])).decode()


def _in_url_safe_base64(text: str) -> str:
    return base64.urlsafe_b64encode(json.dumps(read_header(text), indent=3).encode()).decode()


def _in_another_order(text: str) -> str:
    written = read_header(text)
    payload = dict(reversed(written.pop("payload").items()))
    return write_header({"payload": payload} | dict(reversed(written.items())))


def _in_capitals(text: str) -> str:
    return "0x" + text[2:].upper()


def _with_more(text: str) -> str:
    return write_header(read_header(text) | {"again": True})


def _with_other_spellings(text: str) -> str:
    written = read_header(text)
    for name in ("from", "to", "asset"):
        written["payload"][name] = written["payload"][name].lower()
    for name in ("nonce", "signature"):
        written["payload"][name] = "0x" + written["payload"][name][2:].upper()
    return write_header(written)


RESPELLED = [
    _in_base64,
    _in_url_safe_base64,
    _in_another_order,
    _in_capitals,
    _with_more,
    _with_other_spellings,
]


@pytest.mark.clause("5/nonce-once", "7/nonce-already-used")
@pytest.mark.parametrize("respelled", RESPELLED)
def test_a_replay_is_seen_through_any_spelling(payer, respelled):
    first, second = payer.ask(), payer.ask()
    signed = payer.sign(first["paymentRequirements"])
    again = respelled(signed)
    assert again != signed
    assert payer.pay(first, signed).status_code == 200
    assert refusal(payer.pay(second, again)) == (409, "Nonce already used")
    assert payer.quote(second["paymentId"]).status_code == 402
    assert payer.transfers == 1


@pytest.mark.parametrize("respelled", RESPELLED)
def test_every_spelling_is_good_for_a_first_payment(payer, respelled):
    asked = payer.ask()
    assert payer.pay(asked, respelled(payer.sign(asked["paymentRequirements"]))).status_code == 200
    assert payer.transfers == 1


@pytest.mark.clause("5/nonce-once", "7/nonce-already-used")
def test_an_authorization_used_before_it_is_presented_pays_for_nothing(server, payer):
    """It may have paid at another service of the same merchant."""
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    brought = _settle_directly(server, asked, signed)
    assert brought["event"] == "payment.settled"

    assert refusal(payer.pay(asked, signed)) == (409, "Nonce already used")
    assert payer.quote(asked["paymentId"]).status_code == 402
    second = payer.ask()
    assert refusal(payer.pay(second, signed)) == (409, "Nonce already used")
    assert payer.transfers == 1


@pytest.mark.clause("7/nonce-already-used")
def test_a_cancelled_authorization_is_used_up_and_has_paid_nothing(server, payer):
    asked = payer.ask()
    nonce = random.randbytes(32)
    cancel = abi.cancel_authorization(
        payer.wallet.address_bytes, nonce, payer.wallet.sign_cancellation(nonce, TESTNET.domain)
    )
    sender = server.ready["accounts"][0]["address"]
    call = {"from": sender, "to": server.ready["asset"], "data": to_hex(cancel)}
    tx_hash = server.rpc("eth_sendTransaction", call)
    assert server.rpc("eth_getTransactionReceipt", tx_hash)["status"] == "0x1"

    signed = payer.sign(asked["paymentRequirements"], fixed_nonce=nonce)
    assert refusal(payer.pay(asked, signed)) == (409, "Nonce already used")
    assert payer.quote(asked["paymentId"]).status_code == 402
    assert payer.transfers == 0
    assert payer.pay(asked).status_code == 200


# --- ids that were not issued ------------------------------------------------------------


def _one_flipped(payment_id: str) -> str:
    place = random.Random(payment_id).randrange(4, len(payment_id))
    other = "a" if payment_id[place] != "a" else "b"
    return payment_id[:place] + other + payment_id[place + 1 :]


@pytest.mark.clause("2.2/payment-id", "4.1/validate")
@pytest.mark.parametrize(
    "invent",
    [
        lambda _: "pay_" + "".join(random.choices("abcdefghijklmnopqrstuvwxyz234567", k=72)),
        _one_flipped,
        lambda issued: issued[:4] + issued[4:].upper(),
        str.upper,
        lambda issued: issued[:-1],
        lambda issued: issued + "a",
        lambda issued: issued + " ",
        lambda issued: issued + "\0",
        lambda issued: issued.removeprefix("pay_"),
        lambda issued: issued.replace("pay_", "session_"),
        lambda _: "",
        lambda _: "pay_" + "☃" * 72,
    ],
)
def test_an_id_that_was_never_issued_settles_nothing(server, payer, invent):
    asked = payer.ask()
    rows = server.state()["rows"]
    invented = asked | {"paymentId": invent(asked["paymentId"])}
    answer = payer.pay(invented)
    assert refusal(answer) == (400, "Payment requirements do not match")
    assert "not issued" in answer.json()["reason"]
    assert payer.transfers == 0
    assert server.state()["rows"] == rows


@pytest.mark.clause("2.2/payment-id")
def test_every_single_character_of_an_id_counts(server, payer):
    asked = payer.ask()
    body = payer.settlement(asked)
    issued = asked["paymentId"]
    for place in range(4, len(issued)):
        other = "a" if issued[place] != "a" else "b"
        changed = issued[:place] + other + issued[place + 1 :]
        answer = server.http.post(PAY, json=body | {"paymentId": changed})
        assert refusal(answer) == (400, "Payment requirements do not match"), place
    assert payer.transfers == 0


# --- too late, too early -----------------------------------------------------------------


@pytest.mark.clause("2.1/validity", "8/timeout")
def test_after_301_seconds_the_requirements_are_expired(server, payer):
    asked = payer.ask()
    server.advance(301)
    answer = payer.pay(asked)
    assert refusal(answer) == (400, "Authorization expired")
    assert "maxTimeoutSeconds" in answer.json()["reason"]
    assert payer.transfers == 0
    assert payer.quote(asked["paymentId"]).status_code == 402


@pytest.mark.clause("2.1/validity", "8/timeout")
def test_shortly_before_300_seconds_they_are_still_good(server, payer):
    asked = payer.ask()
    server.advance(290)
    assert payer.pay(asked).status_code == 200


@pytest.mark.clause("5/window", "7/authorization-expired")
@pytest.mark.parametrize("ago_s", [0, 1, 100_000])
def test_an_authorization_whose_own_window_is_over(server, payer, ago_s):
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"], before=server.now_s() - ago_s)
    assert refusal(payer.pay(asked, signed)) == (400, "Authorization expired")
    assert payer.transfers == 0
    assert payer.pay(asked).status_code == 200, "a new authorization pays the same id"


@pytest.mark.clause("8/validity-window", "2.3/window")
def test_a_wallets_authorization_lasts_300_seconds(server, payer):
    asked, late = payer.ask(), server.now_s()
    signed = payer.wallet.payment_header(_typed(asked), late)
    payload = read_header(signed)["payload"]
    assert (payload["validAfter"], payload["validBefore"]) == (late - 60, late + 300)
    server.advance(300)
    fresh = payer.ask()
    assert refusal(payer.pay(fresh, signed)) == (400, "Authorization expired")
    assert payer.transfers == 0


@pytest.mark.clause("5/window")
@pytest.mark.parametrize("ahead_s", [5, 3600])
def test_an_authorization_that_is_not_valid_yet(server, payer, ahead_s):
    asked, now_s = payer.ask(), server.now_s()
    signed = payer.sign(
        asked["paymentRequirements"], after=now_s + ahead_s, before=now_s + ahead_s + 300
    )
    answer = payer.pay(asked, signed)
    assert refusal(answer) == (400, "Invalid signature")
    assert answer.json()["reason"].startswith("Authorization not yet valid; not charged by this")
    assert payer.transfers == 0


# --- headers that do not pay what is asked -----------------------------------------------


@pytest.mark.clause("5/exact-amount", "4.1/verify-signature", "7/invalid-signature")
@pytest.mark.parametrize("amount", [0, 1, 9999, 10001, 20000, 2**256 - 1])
def test_over_and_underpaying_are_refused(server, payer, amount):
    asked = payer.ask()
    rows = server.state()["rows"]
    signed = payer.sign(asked["paymentRequirements"], amount=amount)
    answer = payer.pay(asked, signed)
    assert refusal(answer) == (400, "Invalid signature")
    assert answer.json()["reason"] == f"Invalid amount: {amount}"
    assert payer.transfers == 0
    assert server.state()["rows"] == rows


INVALID = "Invalid EIP-3009 signature"


@pytest.mark.clause("4.1/verify-signature", "5/signature-proves", "7/invalid-signature")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value": "10000", "amount": 9999}, INVALID),
        ({"to": OTHER}, "Recipient does not match payTo address"),
        ({"from": OTHER}, INVALID),
        ({"validBefore": 1}, INVALID),
        ({"validAfter": 0}, INVALID),
        ({"nonce": "0x" + "07" * 32}, INVALID),
        ({"asset": OTHER}, f"Unsupported asset: {OTHER}"),
        ({"signature": "0x" + "00" * 65}, INVALID),
        ({"signature": "0x"}, INVALID),
        ({"signature": "0x" + "11" * 64}, INVALID),
        ({"signature": "0x" + "ff" * 65}, INVALID),
    ],
)
def test_signed_fields_cannot_be_changed(payer, changes, reason):
    asked = payer.ask()
    answer = payer.pay(asked, payer.sign(asked["paymentRequirements"], **changes))
    assert refusal(answer) == (400, "Invalid signature")
    assert answer.json()["reason"].split(";")[0] == reason
    assert payer.transfers == 0
    assert payer.pay(asked).status_code == 200


@pytest.mark.clause("5/signature-proves", "7/invalid-signature")
def test_only_the_payer_can_sign(server, payer):
    asked = payer.ask()
    answer = payer.pay(asked, payer.sign(asked["paymentRequirements"], signer=Wallet.create()))
    assert refusal(answer) == (400, "Invalid signature")
    assert answer.json()["reason"] == INVALID
    assert payer.transfers == 0


@pytest.mark.clause("5/signature-proves")
def test_a_signature_for_the_other_chain_is_invalid(server, payer):
    asked = payer.ask()
    mainnet = asked["paymentRequirements"] | {"network": MAINNET.name}
    signed = read_header(header(payer.wallet, mainnet, server.now_s()))
    signed["network"] = TESTNET.name
    answer = payer.pay(asked, write_header(signed))
    assert refusal(answer) == (400, "Invalid signature")
    assert payer.transfers == 0


@pytest.mark.clause("7/insufficient-balance")
@pytest.mark.parametrize("funds", [None, "0.009999"])
def test_a_wallet_without_the_money_and_the_same_id_after_the_faucet(server, funds):
    payer = server.payer(funds)
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    assert refusal(payer.pay(asked, signed)) == (402, "Insufficient USDC balance")
    assert payer.quote(asked["paymentId"]).status_code == 402
    assert payer.transfers == 0
    record = server.http.get(f"/api/payments/{asked['paymentId']}").json()
    assert record["status"] == "pending", "the header is still valid"

    server.sim("faucet", address=payer.address, amount="0.01")
    assert payer.pay(asked, signed).status_code == 200
    assert payer.quote(asked["paymentId"]).status_code == 200
    assert payer.transfers == 1


# --- section 7, each text once -----------------------------------------------------------


def _insufficient(server: Server, _: Payer) -> httpx.Response:
    poor = server.payer(funds=None)
    return poor.pay(poor.ask())


def _invalid(_: Server, payer: Payer) -> httpx.Response:
    asked = payer.ask()
    return payer.pay(asked, payer.sign(asked["paymentRequirements"], signer=Wallet.create()))


def _replayed(_: Server, payer: Payer) -> httpx.Response:
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    assert payer.pay(asked, signed).status_code == 200
    return payer.pay(payer.ask(), signed)


def _expired(server: Server, payer: Payer) -> httpx.Response:
    asked = payer.ask()
    return payer.pay(asked, payer.sign(asked["paymentRequirements"], before=server.now_s() - 1))


def _settled(_: Server, payer: Payer) -> httpx.Response:
    asked = payer.ask()
    assert payer.pay(asked).status_code == 200
    return payer.pay(asked)


@pytest.mark.parametrize(
    ("provoke", "status", "text"),
    [
        pytest.param(
            _insufficient,
            402,
            "Insufficient USDC balance",
            marks=pytest.mark.clause("7/insufficient-balance"),
        ),
        pytest.param(
            _invalid, 400, "Invalid signature", marks=pytest.mark.clause("7/invalid-signature")
        ),
        pytest.param(
            _replayed, 409, "Nonce already used", marks=pytest.mark.clause("7/nonce-already-used")
        ),
        pytest.param(
            _expired,
            400,
            "Authorization expired",
            marks=pytest.mark.clause("7/authorization-expired"),
        ),
        pytest.param(
            _settled,
            409,
            "Payment already settled",
            marks=pytest.mark.clause("7/payment-already-settled"),
        ),
    ],
)
def test_each_text_of_section_7_with_the_status_we_decided(server, payer, provoke, status, text):
    answer = provoke(server, payer)
    assert refusal(answer) == (status, text)
    assert answer.json().keys() <= {"error", "reason", "final"}


def test_after_all_this_the_money_adds_up(server):
    supply = int(server.state()["chain"]["supply"])
    server.assert_money_is_conserved(supply - 10_000_000_000)
    server.advance(4000)  # every header that was refused is over
    assert server.state()["pendingPayments"] == 0


def _typed(asked):
    message: PaymentRequired = decode(json.dumps(asked).encode(), PaymentRequired)
    return message.payment_requirements


def _settle_directly(server, asked, signed):
    body = {
        "x402Version": 1,
        "paymentHeader": signed,
        "paymentRequirements": asked["paymentRequirements"],
    }
    return server.http.post("/facilitator/v2/x402/settle", json=body).json()
