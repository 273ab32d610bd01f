"""The judge notices each thing that a crash could do wrong.

That it accuses nobody is seen by the campaign itself, which ends without a violation.
"""

from dataclasses import replace

import pytest

from tests.crash.judge import (
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


def payment(**known: object) -> Attempt:
    """A payment that was answered, and is as it should be."""
    return Attempt(
        **{
            "payer": "0xpayer", "pay_to": "0xmerchant", "amount": PRICE, "nonce": "0x01",
            "payment_id": "pay_1", "resource": "quote", "body": {}, "receipt": "0xpaid",
            "charges": [PAID], "has_access": True,
            "record": {"status": "settled", "tx_hash": "0xpaid"},
        } | known
    )  # fmt: skip


def session(refund: list[Transfer] | None = None, **view: object) -> Attempt:
    """A session of 30000 that served one request and was refunded."""
    return payment(
        resource="deposit", amount=30_000, spent=1, session_body={"duration": 1},
        view={
            "sessionId": "session_1", "deposited": "30000", "released": "10000",
            "remaining": "20000", "status": "refunded",
        } | view,
        refund=[BACK] if refund is None else refund,
    )  # fmt: skip


LEFT_ALONE = {"receipt": None, "nonce": "0x02", "sent": 1}
REFUSED = {"receipt": None, "is_final": True}
MOVES = [PAID, BACK]
OPEN = {"receipt": None, "record": {"status": "pending"}}


def end_of(deposit: Attempt, *, is_over: bool = True) -> list[str]:
    return judge_session(deposit, price=PRICE, is_over=is_over)


def of_payment(*, is_over: bool = False, **seen: object) -> list[str]:
    return judge_payment(payment(**seen), is_over=is_over)


def said_more() -> Attempt:
    """A session that once said to have released more than it says now."""
    seen = session()
    seen.unanswered, seen.released = 5, 20_000
    return seen


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (of_payment(charges=[PAID, replace(PAID, tx_hash="0xtwice")]), "charged 2 times"),
        (of_payment(charges=[replace(PAID, amount=1)]), "charged otherwise than signed"),
        (of_payment(charges=[replace(PAID, to="0xthief")]), "charged otherwise than signed"),
        (of_payment(**OPEN, has_access=False), "its header is refused for good"),
        (of_payment(**LEFT_ALONE, has_access=False, record={}), "its record is {}"),
        (of_payment(has_access=False), "its receipt is not served any more"),
        (of_payment(record={}), "its record is {}"),
        (of_payment(record={"status": "settled", "tx_hash": "0xother"}), "its record is"),
        (of_payment(charges=[]), "a transaction that did not charge it"),
        (of_payment(**REFUSED), "refused as final, and charged"),
        (of_payment(**OPEN, has_access=False, is_good=True, is_over=True), "no access at"),
        (of_payment(**OPEN, charges=[], has_access=False, is_over=True), "still pending"),
        (judge_payment_id([payment(), payment()]), "2 headers were charged"),
        (judge_payment_id([payment(charges=[])]), "no money moved"),
        (end_of(session(deposited="20000", remaining="10000")), "30000 were deposited"),
        (end_of(session(released="0", remaining="30000")), "it served 10000"),
        (end_of(session(released="20000", remaining="10000")), "it served 10000"),
        (end_of(session([])), "its refund is []"),
        (end_of(session([replace(BACK, amount=30_000)])), "the rest is 20000"),
        (end_of(session([replace(BACK, to="0xthief")])), "the rest is 20000"),
        (end_of(session(status="expired")), "still owed at the end"),
        (end_of(session(status="active")), "has not ended"),
        (end_of(said_more(), is_over=False), "it served 20000"),
        (judge_refunds([session()], [BACK, BACK], is_over=False), "1 refunds too many of 20000"),
        (judge_refunds([session(status="active")], [BACK], is_over=False), "1 refunds too many"),
        (judge_refunds([session(), session()], [BACK], is_over=True), "0xpayer never arrived"),
        (judge_balance("0xpayer", before=50_000, now=59_999, moves=MOVES), "leave 60000"),
        (judge_transfers([payment()], [replace(PAID, tx_hash="0xstolen")]), "nobody signed"),
    ],
)
def test_what_no_crash_may_do(found: list[str], wrong: str) -> None:
    assert any(wrong in each for each in found)
