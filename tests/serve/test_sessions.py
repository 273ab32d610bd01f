"""Session budgets: one deposit, spent a request at a time, the rest refunded at expiry."""

import re
import time

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
    in_parallel,
    refusal,
    started,
    statuses,
)
from tests.serve.hosted import hosted, status_and_text
from x402sim.protocol.refusals import RequestError

UNKNOWN = "session_" + "0" * 40


# --- opening one -------------------------------------------------------------------------


@pytest.mark.clause("2.6/id-prefix", "4.4/deposit-402", "4.4/deposit-flow", "2.6/remaining")
def test_create_then_402_then_pay_then_201(server, payer):
    asked = payer.ask_session("1.25", 600)
    assert asked["error"] == "Payment Required"
    wanted = asked["paymentRequirements"]
    assert (wanted["resource"], wanted["maxAmountRequired"]) == (SESSIONS, "1250000")
    assert "1250000" in asked["message"]

    began_ms = server.state()["now"]
    assert payer.pay(asked).status_code == 200
    answer = payer.create(asked["paymentId"], "1.25", 600)
    assert answer.status_code == 201
    session = answer.json()
    assert began_ms + 600_000 <= session.pop("expiresAt") <= server.state()["now"] + 600_000
    assert re.fullmatch("session_[0-9a-f]{40}", session.pop("sessionId"))
    assert session == {
        "deposited": "1250000",
        "released": "0",
        "remaining": "1250000",
        "status": "active",
    }
    assert payer.balance == 100_000_000 - 1_250_000
    assert payer.transfers == 1


@pytest.mark.clause("3/deposit-makes-session")
def test_the_session_begins_when_the_deposit_settles_not_when_it_is_asked_for(server, payer):
    sessions = server.state()["rows"]["sessions"]
    asked = payer.ask_session("0.05")
    assert payer.pay(asked).status_code == 200
    assert server.state()["rows"]["sessions"] == sessions + 1


# --- one deposit, one session ------------------------------------------------------------


@pytest.mark.clause("3/deposit-makes-session", "7/payment-already-settled")
def test_ten_payments_and_ten_requests_at_once_make_one_session(server, payer):
    asked = payer.ask_session("0.05")
    body = payer.settlement(asked)
    sessions = server.state()["rows"]["sessions"]
    answers = in_parallel(*[lambda: server.http.post(PAY, json=body)] * 10)
    assert statuses(answers) == {200: 1, 409: 9}
    answers = in_parallel(*[lambda: payer.create(asked["paymentId"], "0.05")] * 10)
    assert statuses(answers) == {201: 10}
    assert len({answer.text for answer in answers}) == 1
    assert server.state()["rows"]["sessions"] == sessions + 1
    assert payer.transfers == 1


# --- spending it -------------------------------------------------------------------------


@pytest.mark.clause("5/session-condition")
def test_an_unknown_session_is_402_and_cannot_be_looked_at(server):
    for session_id in ("", "session_", UNKNOWN, "☃", "' OR 1=1 --"):
        headers = {"X-Session-Id": session_id.encode()}
        assert server.http.post(QUOTE, json=ORDER, headers=headers).status_code == 402
    answer = server.http.get(f"/api/sessions/{UNKNOWN}")
    assert refusal(answer) == status_and_text(RequestError.UNKNOWN_SESSION)


def test_a_session_does_not_pay_for_another_session(payer):
    session_id = payer.open("1.00")["sessionId"]
    asked = {"maxSpend": "0.10", "duration": 60}
    headers = {"X-Session-Id": session_id}
    answer = payer.server.http.post(SESSIONS, json=asked, headers=headers)
    assert answer.status_code == 402
    assert payer.session(session_id)["released"] == "0"


# --- the order of things -----------------------------------------------------------------


BAD_ORDERS = [
    {},
    ORDER | {"side": "sideways"},
    ORDER | {"pair": "btc/usd"},
    ORDER | {"leverage": 0},
    ORDER | {"leverage": "10"},
    ORDER | {"sizeUsd": -1},
    [ORDER],
    None,
]


@pytest.mark.clause("1/unpaid-402", "5/session-condition", "5/session-debit")
def test_a_bad_body_is_402_unpaid_and_400_paid_and_costs_nothing(payer):
    payment_id, session_id = payer.paid(), payer.open("0.01")["sessionId"]
    for body in BAD_ORDERS:
        assert payer.quote(body=body).status_code == 402
        assert payer.quote(session_id=UNKNOWN, body=body).status_code == 402
        for proof in ({"payment_id": payment_id}, {"session_id": session_id}):
            answer = payer.quote(**proof, body=body)
            assert refusal(answer) == status_and_text(RequestError.INVALID_BODY), body
        assert payer.session(session_id)["released"] == "0"
    assert payer.quote(payment_id).status_code == 200
    assert payer.quote(session_id=session_id).status_code == 200, "nothing was debited"


@pytest.mark.clause("5/session-condition")
def test_a_session_that_is_spent_or_over_is_402_whatever_the_body(server, payer):
    """The gate comes first: it knows that this session cannot pay, even before it has expired."""
    spent, over = payer.open("0.01")["sessionId"], payer.open("0.01", 1)["sessionId"]
    assert payer.quote(session_id=spent).status_code == 200
    ends_ms = payer.session(over)["expiresAt"]
    time.sleep(max(0.0, (ends_ms - server.state()["now"]) / 1000) + 0.01)
    for session_id in (spent, over):
        assert payer.quote(session_id=session_id, body={}).status_code == 402
        assert payer.quote(session_id=session_id).status_code == 402
    assert payer.session(over)["released"] == "0"


@pytest.mark.clause("5/cache-first", "5/session-condition")
def test_with_both_proofs_the_session_pays_only_if_the_payment_id_does_not(payer):
    payment_id, session_id = payer.paid(), payer.open("0.02")["sessionId"]
    assert payer.quote(payment_id, session_id).status_code == 200
    assert payer.session(session_id)["released"] == "0"
    assert payer.quote("pay_unknown", session_id).status_code == 200
    assert payer.session(session_id)["released"] == "10000"
    assert payer.quote(payment_id, UNKNOWN).status_code == 200


# --- the end -----------------------------------------------------------------------------


def _refunds(server: Server, payer: Payer) -> list[int]:
    return [amount for _, _, amount in server.transfers(server.ready["payTo"], payer.address)]


@pytest.mark.clause("3/expiry-refund", "5/session-debit")
def test_debits_that_race_with_the_expiry(server, payer):
    """Whoever wins, what was served and what is refunded are the deposit."""
    session_id = payer.open("0.20", 60)["sessionId"]
    spend = [lambda: payer.quote(session_id=session_id)] * 19
    *answers, _ = in_parallel(*spend, lambda: server.advance(60))
    served = statuses(answers).get(200, 0)
    ended = payer.session(session_id)
    assert int(ended["released"]) == served * PRICE
    assert _refunds(server, payer) == [200_000 - served * PRICE]
    assert payer.balance == 100_000_000 - served * PRICE


@pytest.mark.clause("3/refund-once", "3/expiry-refund")
def test_a_refund_is_not_repeated_by_a_restart(tmp_path):
    file = tmp_path / "kept.db"
    with hosted(file=file) as server:
        payer = server.payer()
        session_id = payer.open("0.29", 60)["sessionId"]
        payer.quote(session_id=session_id)
        server.advance(61)
        ended, held = payer.session(session_id), payer.balance
        assert ended["status"] == "refunded"
    with hosted(file=file) as server:
        payer = Payer(server, payer.wallet)
        server.advance(86_400)
        assert payer.session(session_id) == ended
        assert _refunds(server, payer) == [280_000]
        assert payer.balance == held
        assert payer.quote(session_id=session_id).status_code == 402
        server.assert_money_is_conserved(100_000_000)


@pytest.mark.clause("3/refund-once", "3/expiry-refund")
def test_a_refund_that_was_still_in_the_mempool_at_a_kill_is_paid_once(tmp_path):
    """The chain has the refund, the database does not know yet: the nonce tells."""
    db = str(tmp_path / "killed.db")
    with started("--db", db) as server:
        payer = server.payer()
        session_id = payer.open("0.29", 60)["sessionId"]
        server.sim("mining", automine=False)
        assert _expire_and_kill(server) == "killed"
    with hosted(file=db) as server:
        payer = Payer(server, payer.wallet)
        for _ in range(2):
            server.advance(61)
            assert payer.session(session_id)["status"] == "refunded"
            assert _refunds(server, payer) == [290_000]
        assert payer.balance == 100_000_000


def _expire_and_kill(server: Server) -> str:
    """Let the sessions expire, and kill the server while their refunds wait to be mined."""

    def expire() -> str:
        try:
            server.advance(61)
        except httpx.TransportError:
            return "killed"
        return "answered"

    def kill() -> None:
        for _ in range(500):
            if server.state()["chain"]["waiting"]:
                break
            time.sleep(0.01)
        server.kill()

    return in_parallel(expire, kill)[0]


def test_after_all_this_the_money_adds_up(server):
    server.assert_money_is_conserved(int(server.state()["chain"]["supply"]) - 10_000_000_000)
