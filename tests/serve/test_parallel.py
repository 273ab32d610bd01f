"""Many at once: one payment id settles once, one authorization pays once."""

import time
from typing import Any

import httpx
import pytest

from tests.serve.driver import PAY, PRICE, Server, in_parallel, refusal, statuses
from tests.serve.hosted import status_and_text
from x402sim.protocol.refusals import Refusal

TEXT = Refusal.ALREADY_SETTLED.text


def _pay_at_once(server: Server, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    return in_parallel(*[lambda b=body: server.http.post(PAY, json=b) for body in bodies])


@pytest.mark.clause("4.1/order", "7/payment-already-settled")
@pytest.mark.parametrize("headers", [1, 20])
@pytest.mark.parametrize("is_held", [False, True], ids=["at once", "before a block"])
def test_twenty_requests_for_one_id(server, payer, headers, is_held):
    """Held, all twenty are inside at the same time: no block comes until all have arrived."""
    asked = payer.ask()
    bodies = [payer.settlement(asked) for _ in range(headers)] * (20 // headers)
    assert len({body["paymentHeader"] for body in bodies}) == headers
    if is_held:
        answers, sent = _send_before_a_block(server, bodies)
        assert sent == 1, "one transaction for one payment id"
    else:
        answers = _pay_at_once(server, bodies)
    assert statuses(answers) == {200: 1, 409: 19}
    assert {answer.json().get("error") for answer in answers} == {None, TEXT}
    assert (payer.balance, payer.transfers) == (100_000_000 - PRICE, 1)
    assert payer.quote(asked["paymentId"]).status_code == 200


@pytest.mark.clause("4.1/order", "7/payment-already-settled")
def test_twenty_payers_for_one_id_at_once(server):
    payers = [server.payer("1.00") for _ in range(20)]
    asked = payers[0].ask()
    bodies = [payer.settlement(asked) for payer in payers]
    answers = _pay_at_once(server, bodies)
    assert statuses(answers) == {200: 1, 409: 19}
    assert sum(payer.transfers for payer in payers) == 1
    charged = [payer.address for payer in payers if payer.transfers]
    record = server.record(asked)
    assert [record["from_address"]] == charged


@pytest.mark.clause("5/nonce-once", "7/nonce-already-used")
@pytest.mark.parametrize("is_held", [False, True], ids=["at once", "before a block"])
def test_one_authorization_under_ten_ids(server, payer, is_held):
    several = [payer.ask() for _ in range(10)]
    signed = payer.sign(several[0]["paymentRequirements"])
    bodies = [payer.settlement(asked, signed) for asked in several]
    if is_held:
        answers, sent = _send_before_a_block(server, bodies)
        assert sent == 1
    else:
        answers = _pay_at_once(server, bodies)
    assert statuses(answers) == {200: 1, 409: 9}
    assert {a.json().get("error") for a in answers} == {None, Refusal.NONCE_USED.text}
    assert payer.transfers == 1
    served = [payer.quote(asked["paymentId"]).status_code for asked in several]
    assert served == [200 if answer.status_code == 200 else 402 for answer in answers]


@pytest.mark.clause("7/insufficient-balance")
def test_money_for_three_and_ten_payments_at_once(server):
    payer = server.payer("0.03")
    bodies = [payer.settlement(payer.ask()) for _ in range(10)]
    answers = _pay_at_once(server, bodies)
    assert statuses(answers) == {200: 3, 402: 7}
    assert (payer.balance, payer.transfers) == (0, 3)


def test_forty_payments_at_once_all_settle(server, payer):
    bodies = [payer.settlement(payer.ask()) for _ in range(40)]
    answers = _pay_at_once(server, bodies)
    assert statuses(answers) == {200: 40}
    assert len({answer.json()["txHash"] for answer in answers}) == 40
    assert (payer.balance, payer.transfers) == (100_000_000 - 40 * PRICE, 40)


@pytest.mark.clause("5/nonce-once")
def test_the_service_and_a_stranger_submit_one_authorization_at_once(server, payer):
    """Somebody else brings the signed header to the facilitator at the same moment.

    If that is done before the service has asked the chain, the authorization was used before.
    """
    for _ in range(5):
        asked = payer.ask()
        signed = payer.sign(asked["paymentRequirements"])
        before = payer.transfers
        direct = {
            "x402Version": 1,
            "paymentHeader": signed,
            "paymentRequirements": asked["paymentRequirements"],
        }
        answers = in_parallel(
            lambda a=asked, s=signed: payer.pay(a, s),
            *[lambda d=direct: server.http.post("/facilitator/v2/x402/settle", json=d)] * 4,
        )
        paid = answers[0].status_code
        if paid != 200:
            assert refusal(answers[0]) == status_and_text(Refusal.NONCE_USED)
        assert payer.transfers == before + 1
        assert payer.quote(asked["paymentId"]).status_code == (200 if paid == 200 else 402)


def test_after_all_this_the_money_adds_up(server):
    server.assert_money_is_conserved(int(server.state()["chain"]["supply"]) - 10_000_000_000)
    server.advance(400)  # every header that was refused is over
    assert server.state()["pendingPayments"] == 0


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
