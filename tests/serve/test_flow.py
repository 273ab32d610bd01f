"""Payments over TCP: asked, signed, settled, repeated; and many at the same moment.

What must not work is in tests/service, tests/scenarios and the conformance suite.
"""

import pytest

from tests.serve.driver import ORDER, PAY, PRICE, QUOTE, SESSIONS, in_parallel, statuses


def test_no_cache_stores_what_may_hold_a_proof_of_payment(server, payer):
    asked = server.http.post(QUOTE, json=ORDER)
    paid = server.http.post(PAY, json=payer.settlement(asked.json()))
    served = payer.quote(asked.json()["paymentId"])
    refused = server.http.post(PAY, json=payer.settlement(asked.json()))
    session = server.http.post(SESSIONS, json={"maxSpend": "1.00", "duration": 60})
    answers = (asked, paid, served, refused, session)
    assert [answer.status_code for answer in answers] == [402, 200, 200, 409, 402]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


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
