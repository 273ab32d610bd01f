"""One payment, over TCP: asked, signed, settled, repeated; requirements that were changed."""

import json
import re
from typing import Any

import pytest

from tests.serve.driver import (
    ORDER,
    PAY,
    PRICE,
    QUOTE,
    SESSIONS,
    Server,
    read_header,
    refusal,
    write_header,
)
from tests.serve.hosted import status_and_text
from x402sim.protocol.messages import PaymentRequired, decode
from x402sim.protocol.networks import MAINNET
from x402sim.protocol.refusals import Refusal

OTHER = "0x" + "42" * 20
DESCRIPTION = "A quote for a perpetual position"
FUNDS = 100_000_000


# --- asked, paid, served -----------------------------------------------------------------


def test_no_cache_stores_what_may_hold_a_proof_of_payment(server, payer):
    asked = server.http.post(QUOTE, json=ORDER)
    paid = server.http.post(PAY, json=payer.settlement(asked.json()))
    served = payer.quote(asked.json()["paymentId"])
    refused = server.http.post(PAY, json=payer.settlement(asked.json()))
    session = server.http.post(SESSIONS, json={"maxSpend": "1.00", "duration": 60})
    answers = (asked, paid, served, refused, session)
    assert [answer.status_code for answer in answers] == [402, 200, 200, 409, 402]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


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
    assert re.fullmatch("0x[0-9a-f]{64}", receipt.pop("txHash"))
    assert receipt == {"success": True, "paymentId": asked["paymentId"]}
    assert (payer.balance, payer.transfers) == (FUNDS - PRICE, 1)
    assert server.balance(server.ready["payTo"]) == merchant_had + PRICE

    served = payer.quote(asked["paymentId"])
    assert served.status_code == 200
    assert served.json().keys() == {"quote"}
    quote = served.json()["quote"]
    assert {name: type(value) for name, value in quote.items()} == {
        "pair": str,
        "entryPrice": float,
        "liquidationPrice": float,
        "fundingRate": float,
        "bestVenue": str,
    }
    assert quote["pair"] == "BTC-USD"
    assert 0 < quote["liquidationPrice"] < quote["entryPrice"]


@pytest.mark.clause(
    "1/payer-pays-no-gas", "2.4/block-null", "2.4/record", "4.1/build-verify", "4.1/order"
)
def test_the_record_the_gas_and_the_order_of_a_settlement(server, payer):
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    mark = len(server.journal())
    receipt = payer.pay(asked, signed).json()
    events = [e.get("path") or e["event"] for e in server.journal(mark)]
    assert [e for e in events if e not in ("authorization consumed", "transfer")] == [
        "/",  # the chain's node, for its newest block and the nonce's state
        "/",
        "/v2/x402/verify",
        "transaction mined",
        "/v2/x402/settle",
        "payment settled",
        PAY,
    ]
    record = server.record(asked)
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
    mined = server.rpc("eth_getTransactionReceipt", receipt["txHash"])
    assert mined["status"] == "0x1"
    assert mined["from"] != payer.address.lower()
    assert int(server.rpc("eth_getBalance", payer.address, "latest"), 16) == 0
    assert int(server.rpc("eth_getTransactionCount", payer.address, "latest"), 16) == 0


# --- requirements that are not those issued ----------------------------------------------


TAMPERED: dict[str, tuple[str, list[Any]]] = {
    "2.1/scheme": ("scheme", ["upto", "EXACT"]),
    "2.1/network": ("network", [MAINNET.name, "cronos"]),
    "2.1/pay-to": ("payTo", [OTHER]),
    "2.1/asset": ("asset", [OTHER]),
    "2.1/amount": (
        "maxAmountRequired",
        ["9999", "10001", "0", "010", "010000", " 10000", "1e4"],
    ),
    "2.1/timeout": ("maxTimeoutSeconds", [301, 86400]),
    "2.1/resource": ("resource", [SESSIONS, QUOTE + "/", "/API/perp/quote"]),
    "2.1/description": ("description", ["Free"]),
}
"""Changed requirements by the clause that refuses them."""
SIGNED_AS = {"010": {"amount": 10, "value": "010"}, "1e4": {"amount": 10_000, "value": "1e4"}}
"""How an amount is signed that `int` does not read as the header has it."""


@pytest.mark.clause("4.1/validate")
@pytest.mark.parametrize(
    ("name", "values"),
    [pytest.param(*row, marks=pytest.mark.clause(clause)) for clause, row in TAMPERED.items()],
)
def test_requirements_changed_and_signed_consistently_are_refused(server, payer, name, values):
    for value in values:
        asked = payer.ask()
        before = server.transfers(), _stored(server), payer.balance
        changed = asked["paymentRequirements"] | {name: value}
        signed = payer.sign(changed, **SIGNED_AS.get(str(value), {}))
        answer = payer.pay(asked, signed, **{name: value})
        assert refusal(answer) == status_and_text(Refusal.MISMATCH), value
        assert answer.json()["reason"].startswith(f"{name}: ")
        assert (server.transfers(), _stored(server), payer.balance) == before
        assert payer.pay(asked).status_code == 200, "the id itself can still be paid"


@pytest.mark.clause("2.1/description")
def test_descriptions_addresses_and_unknown_fields_are_read_kindly(server, payer):
    for description in (DESCRIPTION, "", None):
        body = payer.settlement(payer.ask())
        body["paymentRequirements"]["description"] = description
        assert server.http.post(PAY, json=body).status_code == 200
    asked = payer.ask()
    wanted = asked["paymentRequirements"]
    changes = {name: wanted[name].lower() for name in ("payTo", "asset")}
    assert payer.pay(asked, **changes).status_code == 200

    asked = payer.ask()
    signed = read_header(payer.sign(asked["paymentRequirements"])) | {"extra": [1, {"a": None}]}
    signed["payload"]["memo"] = "thanks"
    body = payer.settlement(asked, write_header(signed)) | {"x402Version": 1, "tip": "1"}
    body["paymentRequirements"] |= {"mimeType": "application/json", "extra": {"name": "USDC"}}
    assert server.http.post(PAY, json=body).status_code == 200
    assert payer.quote(asked["paymentId"], body=ORDER | {"colour": "blue"}).status_code == 200


# --- how long a signature lasts ----------------------------------------------------------


@pytest.mark.clause("8/validity-window", "2.3/window")
def test_a_wallets_authorization_lasts_300_seconds(server, payer):
    asked, late = payer.ask(), server.now_s()
    signed = payer.wallet.payment_header(_typed(asked), late)
    payload = read_header(signed)["payload"]
    assert (payload["validAfter"], payload["validBefore"]) == (late - 60, late + 300)
    server.advance(300)
    assert refusal(payer.pay(payer.ask(), signed)) == status_and_text(Refusal.EXPIRED)
    assert payer.transfers == 0


# --- a wallet without money -------------------------------------------------------------


@pytest.mark.clause("7/insufficient-balance")
@pytest.mark.parametrize("funds", [None, "0.009999"])
def test_a_wallet_without_the_money_and_the_same_id_after_the_faucet(server, funds):
    payer = server.payer(funds)
    asked = payer.ask()
    signed = payer.sign(asked["paymentRequirements"])
    assert refusal(payer.pay(asked, signed)) == status_and_text(Refusal.INSUFFICIENT_BALANCE)
    assert payer.quote(asked["paymentId"]).status_code == 402
    assert payer.transfers == 0
    record = server.record(asked)
    assert record["status"] == "pending", "the header is still valid"

    server.sim("faucet", address=payer.address, amount="0.01")
    assert payer.pay(asked, signed).status_code == 200
    assert payer.quote(asked["paymentId"]).status_code == 200
    assert payer.transfers == 1


def test_after_all_this_the_money_adds_up(server):
    server.assert_money_is_conserved(int(server.state()["chain"]["supply"]) - 10_000_000_000)
    server.advance(4000)  # every header that was refused is over
    assert server.state()["pendingPayments"] == 0


def _stored(server: Server) -> dict[str, int]:
    """Count the rows that requests make; the indexer may run at any moment."""
    rows = server.state()["rows"]
    return {name: rows[name] for name in ("payments", "sessions", "debits", "refunds")}


def _typed(asked: dict[str, Any]) -> Any:
    return decode(json.dumps(asked).encode(), PaymentRequired).payment_requirements
