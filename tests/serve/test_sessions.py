"""Session budgets: one deposit, spent a request at a time, the rest refunded at expiry."""

import re
import time

import httpx
import pytest

from tests.serve.driver import (
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


@pytest.mark.clause("5/session-condition", "5/session-debit", "2.6/remaining", "1/repeat-served")
def test_a_budget_for_three_quotes_serves_three(server, payer):
    session_id = payer.open("0.03")["sessionId"]
    for served in (1, 2, 3):
        answer = payer.quote(session_id=session_id)
        assert answer.status_code == 200
        assert "quote" in answer.json()
        budget = payer.session(session_id)
        assert budget["released"] == str(served * PRICE)
        assert budget["remaining"] == str((3 - served) * PRICE)
    fourth = payer.quote(session_id=session_id)
    assert fourth.status_code == 402
    assert fourth.json()["paymentRequirements"]["resource"] == QUOTE
    assert payer.quote(session_id=session_id, body={}).status_code == 402, "the gate comes first"
    budget = payer.session(session_id)
    assert (budget["released"], budget["remaining"]) == ("30000", "0")
    assert payer.transfers == 1, "no debit is a transfer"


def test_a_session_does_not_pay_for_another_session(payer):
    session_id = payer.open("1.00")["sessionId"]
    asked = {"maxSpend": "0.10", "duration": 60}
    headers = {"X-Session-Id": session_id}
    answer = payer.server.http.post(SESSIONS, json=asked, headers=headers)
    assert answer.status_code == 402
    assert payer.session(session_id)["released"] == "0"
    answer = payer.server.http.get(f"/api/sessions/{UNKNOWN}")
    assert refusal(answer) == status_and_text(RequestError.UNKNOWN_SESSION)


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
