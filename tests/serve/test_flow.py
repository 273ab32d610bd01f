"""Payments over TCP: asked, signed, settled, repeated; and many at the same moment.

What must not work is in tests/service, tests/scenarios and the conformance suite.
"""

import re
import time
from typing import Any

import httpx
import pytest

from tests.serve.driver import (
    ORDER,
    PAY,
    PRICE,
    QUOTE,
    SESSIONS,
    Server,
    in_parallel,
    refusal,
    statuses,
)
from tests.serve.hosted import status_and_text
from x402sim.protocol.refusals import Refusal

FUNDS = 100_000_000


def test_no_cache_stores_what_may_hold_a_proof_of_payment(server, payer):
    asked = server.http.post(QUOTE, json=ORDER)
    paid = server.http.post(PAY, json=payer.settlement(asked.json()))
    served = payer.quote(asked.json()["paymentId"])
    refused = server.http.post(PAY, json=payer.settlement(asked.json()))
    session = server.http.post(SESSIONS, json={"maxSpend": "1.00", "duration": 60})
    answers = (asked, paid, served, refused, session)
    assert [answer.status_code for answer in answers] == [402, 200, 200, 409, 402]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


@pytest.mark.clause("1/repeat-served", "4.1/receipt", "4.1/settle-on-chain", "4.2/quote")
def test_a_paid_quote(server, payer):
    before_ms = server.state()["now"]
    merchant_had = server.balance(server.ready["payTo"])
    asked = payer.ask()
    answer = payer.pay(asked)
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


@pytest.mark.clause("2.2/payment-id", "4.1/validate")
def test_nobody_can_invent_an_id_or_change_its_price(server, payer):
    """Every character counts, and so does whatever is added or missing."""
    asked = payer.ask()
    body, issued, rows = payer.settlement(asked), asked["paymentId"], server.state()["rows"]
    flipped = [
        issued[:place] + ("a" if issued[place] != "a" else "b") + issued[place + 1 :]
        for place in range(4, len(issued))
    ]
    invented = [
        "", "pay_" + "a2" * 36, issued.upper(), issued[:-1], issued + "a", issued + " ",
        issued + "\0", issued[4:], issued.replace("pay_", "session_"), "pay_" + "☃" * 72,
    ]  # fmt: skip
    for unknown in (*flipped, *invented):
        answer = server.http.post(PAY, json=body | {"paymentId": unknown})
        assert refusal(answer) == status_and_text(Refusal.MISMATCH), unknown
    cheaper = asked["paymentRequirements"] | {"maxAmountRequired": "1"}
    answer = payer.pay(asked | {"paymentRequirements": cheaper})
    assert refusal(answer) == status_and_text(Refusal.MISMATCH)
    assert (payer.transfers, server.state()["rows"]["payments"]) == (0, rows["payments"])


@pytest.mark.clause("4.1/order", "7/payment-already-settled")
def test_twenty_requests_for_one_id_before_a_block(server, payer):
    """All twenty are inside at the same time: no block comes until all have arrived."""
    asked = payer.ask()
    answers, sent = _send_before_a_block(server, [payer.settlement(asked) for _ in range(20)])
    assert sent == 1, "one transaction for one payment id"
    assert statuses(answers) == {200: 1, 409: 19}
    refused = {refusal(answer) for answer in answers if answer.status_code != 200}
    assert refused == {status_and_text(Refusal.ALREADY_SETTLED)}
    assert (payer.balance, payer.transfers) == (FUNDS - PRICE, 1)


def test_forty_payments_at_once_all_settle(server, payer):
    answers = _pay_at_once(server, [payer.settlement(payer.ask()) for _ in range(40)])
    assert statuses(answers) == {200: 40}
    assert len({answer.json()["txHash"] for answer in answers}) == 40
    assert (payer.balance, payer.transfers) == (FUNDS - 40 * PRICE, 40)
    server.assert_money_is_conserved(int(server.state()["chain"]["supply"]) - 10_000_000_000)


def _pay_at_once(server: Server, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    return in_parallel(*[lambda b=body: server.http.post(PAY, json=b) for body in bodies])


def _send_before_a_block(
    server: Server, bodies: list[dict[str, Any]]
) -> tuple[list[httpx.Response], int]:
    """Send payments at once and mine only then; also return how many transactions waited."""

    def mine() -> int:
        end = time.monotonic() + 10
        while not server.state()["chain"]["waiting"]:
            assert time.monotonic() < end, "nothing was sent"
        time.sleep(0.3)
        waiting = server.state()["chain"]["waiting"]
        server.sim("mining", automine=True)
        return waiting

    server.sim("mining", automine=False)
    try:
        answers, waiting = in_parallel(lambda: _pay_at_once(server, bodies), mine)
    finally:
        server.sim("mining", automine=True)
    return answers, waiting
