"""What is answered on the way of a payment is for nobody else."""

from tests.serve.driver import ORDER, PAY, QUOTE, SESSIONS


def test_no_cache_stores_what_may_hold_a_proof_of_payment(server, payer):
    asked = server.http.post(QUOTE, json=ORDER)
    paid = server.http.post(PAY, json=payer.settlement(asked.json()))
    served = payer.quote(asked.json()["paymentId"])
    refused = server.http.post(PAY, json=payer.settlement(asked.json()))
    session = server.http.post(SESSIONS, json={"maxSpend": "1.00", "duration": 60})
    answers = (asked, paid, served, refused, session)
    assert [answer.status_code for answer in answers] == [402, 200, 200, 409, 402]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
