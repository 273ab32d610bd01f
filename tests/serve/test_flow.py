"""Payments over TCP: asked, signed, settled, repeated; and many at the same moment.

What must not work is in tests/service, tests/scenarios and the conformance suite.
"""

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


@pytest.mark.clause("3/expiry-refund", "5/session-debit")
def test_debits_that_race_with_the_expiry(server, payer):
    """Whoever wins, what was served and what is refunded are the deposit."""
    session_id = payer.open("0.20", 60)["sessionId"]
    spend = [lambda: payer.quote(session_id=session_id)] * 19
    *answers, _ = in_parallel(*spend, lambda: server.advance(60))
    served = statuses(answers).get(200, 0)
    ended = payer.session(session_id)
    assert int(ended["released"]) == served * PRICE
    refunds = server.transfers(server.ready["payTo"], payer.address)
    assert [amount for *_, amount in refunds] == [200_000 - served * PRICE]
    assert payer.balance == 100_000_000 - served * PRICE


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
