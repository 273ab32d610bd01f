"""The judge notices each thing that a crash could do wrong."""

from dataclasses import replace

import pytest

from tests.crash.judge import (
    PaymentSeen,
    SessionSeen,
    judge_balance,
    judge_payment,
    judge_payment_id,
    judge_refunds,
    judge_session,
    judge_transfers,
)
from tests.crash.ledger import Transfer
from tests.crash.memory import Attempt

PRICE = 10_000
PAID = Transfer("0xpayer", "0xmerchant", PRICE, "0xpaid")
BACK = Transfer("0xwallet", "0xpayer", 20_000, "0xback")


def attempt(**known: object) -> Attempt:
    return Attempt(
        **{
            "payer": "0xpayer", "pay_to": "0xmerchant", "amount": PRICE, "nonce": "0x01",
            "payment_id": "pay_1", "resource": "quote", "body": {}, "receipt": "0xpaid",
        } | known
    )  # fmt: skip


def payment(**seen: object) -> PaymentSeen:
    """A payment that was answered, and is as it should be."""
    return PaymentSeen(
        **{
            "attempt": attempt(), "charges": [PAID], "has_access": True,
            "record": {"status": "settled", "tx_hash": "0xpaid"}, "is_header_good": False,
        } | seen
    )  # fmt: skip


def session(refund: list[Transfer] | None = None, **view: object) -> SessionSeen:
    """A session of 30000 that served one request and was refunded."""
    deposit = attempt(resource="deposit", amount=30_000, spent=1, session_body={"duration": 1})
    return SessionSeen(
        deposit=deposit,
        view={
            "sessionId": "session_1", "deposited": "30000", "released": "10000",
            "remaining": "20000", "status": "refunded",
        } | view,
        refund=[BACK] if refund is None else refund,
    )  # fmt: skip


UNANSWERED = attempt(receipt=None)
LEFT_ALONE = attempt(receipt=None, nonce="0x02", sent=1)
OPEN = {"attempt": UNANSWERED, "record": {"status": "pending"}}


@pytest.mark.parametrize(
    "seen",
    [
        payment(),
        payment(**OPEN, charges=[], has_access=False),
        payment(**OPEN, has_access=False, is_header_good=True),
        payment(attempt=LEFT_ALONE, has_access=False, record={"status": "pending"}),
        payment(attempt=attempt(receipt=None, is_final=True), charges=[], has_access=False),
    ],
    ids=["paid", "not charged", "charged, its header is good", "charged, pending", "refused"],
)
def test_what_may_be(seen: PaymentSeen) -> None:
    assert judge_payment(seen, is_over=False) == []
    assert judge_payment_id([seen]) == []


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (payment(charges=[PAID, replace(PAID, tx_hash="0xtwice")]), "charged 2 times"),
        (payment(charges=[replace(PAID, amount=1)]), "charged otherwise than signed"),
        (payment(charges=[replace(PAID, to="0xthief")]), "charged otherwise than signed"),
        (payment(**OPEN, has_access=False), "its header is refused for good"),
        (payment(attempt=LEFT_ALONE, has_access=False, record=None), "its record is {}"),
        (payment(has_access=False), "its receipt is not served any more"),
        (payment(record=None), "its record is {}"),
        (payment(record={"status": "settled", "tx_hash": "0xother"}), "its record is"),
        (payment(charges=[]), "a transaction that did not charge it"),
        (payment(attempt=attempt(receipt=None, is_final=True)), "refused as final, and charged"),
    ],
)  # fmt: skip
def test_what_no_crash_may_do_to_a_payment(seen: PaymentSeen, wrong: str) -> None:
    assert any(wrong in each for each in judge_payment(seen, is_over=False))


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (payment(**OPEN, has_access=False, is_header_good=True), "no access at the end"),
        (payment(**OPEN, charges=[], has_access=False), "still pending"),
    ],
)
def test_what_may_not_be_left_at_the_end(seen: PaymentSeen, wrong: str) -> None:
    assert any(wrong in each for each in judge_payment(seen, is_over=True))


def test_two_charges_for_one_payment_id() -> None:
    (wrong,) = judge_payment_id([payment(), payment()])
    assert "2 headers were charged" in wrong


def test_access_that_nobody_paid_for() -> None:
    (wrong,) = judge_payment_id([payment(charges=[])])
    assert "no money moved" in wrong


def test_a_session_that_is_as_it_should_be() -> None:
    assert judge_session(session(), price=PRICE, is_over=True) == []
    assert judge_session(session([], status="active"), price=PRICE, is_over=False) == []


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (session(deposited="20000", remaining="10000"), "30000 were deposited"),
        (session(released="0", remaining="30000"), "it served 10000"),
        (session(released="20000", remaining="10000"), "it served 10000"),
        (session([]), "its refund is []"),
        (session([replace(BACK, amount=30_000)]), "the rest is 20000"),
        (session([replace(BACK, to="0xthief")]), "the rest is 20000"),
        (session(status="expired"), "still owed at the end"),
        (session(status="active"), "has not ended"),
    ],
)
def test_what_no_crash_may_do_to_a_session(seen: SessionSeen, wrong: str) -> None:
    assert any(wrong in each for each in judge_session(seen, price=PRICE, is_over=True))


def test_what_a_session_once_said_is_not_taken_back() -> None:
    seen = session()
    seen.deposit.unanswered, seen.deposit.released = 5, 20_000
    (wrong,) = judge_session(seen, price=PRICE, is_over=False)
    assert "it served 20000" in wrong


def test_each_refund_is_of_one_session_and_arrives_once() -> None:
    assert judge_refunds([session()], [BACK], is_over=True) == []
    assert judge_refunds([session(status="expired")], [], is_over=False) == []
    (twice,) = judge_refunds([session()], [BACK, BACK], is_over=False)
    assert "1 refunds too many of 20000" in twice
    (early,) = judge_refunds([session(status="active")], [BACK], is_over=False)
    assert "1 refunds too many" in early
    (never,) = judge_refunds([session(), session()], [BACK], is_over=True)
    assert "1 refunds of 20000 to 0xpayer never arrived" in never


def test_balances_and_transfers_add_up() -> None:
    moves = [PAID, BACK]
    assert judge_balance("0xpayer", before=50_000, now=60_000, moves=moves) == []
    (wrong,) = judge_balance("0xpayer", before=50_000, now=59_999, moves=moves)
    assert "has 59999, its transfers leave 60000" in wrong
    assert judge_transfers([payment()], [PAID]) == []
    (stolen,) = judge_transfers([payment()], [replace(PAID, tx_hash="0xstolen")])
    assert "nobody signed" in stolen
