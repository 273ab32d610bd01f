"""The judge notices each thing that a crash could do wrong, by the law that it breaks.

That it accuses nobody is seen by the campaign itself, which ends without a violation.
"""

from collections.abc import Iterator

import pytest

from tests.crash.judge import Attempt, judge_payment, judge_payment_id, judge_refunds, judge_session
from tests.money import Law, Transfer, Violation, balance_is_the_sum, money_is_signed

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


def end_of(deposit: Attempt, *, is_over: bool = True) -> Iterator[Violation]:
    return judge_session(deposit, price=PRICE, is_over=is_over)


def of_payment(*, is_over: bool = False, **seen: object) -> Iterator[Violation]:
    return judge_payment(payment(**seen), is_over=is_over)


def refunds(*sessions: Attempt, paid: list[Transfer], is_over: bool = False) -> Iterator[Violation]:
    return judge_refunds("0xwallet", list(sessions), paid, is_over=is_over)


def said_more() -> Attempt:
    """A session that once said to have released more than it says now."""
    seen = session()
    seen.unanswered, seen.released = 5, 20_000
    return seen


@pytest.mark.parametrize(
    ("found", "law", "says"),
    [
        (of_payment(charges=[PAID, PAID._replace(tx_hash="0xtwice")]), Law.CHARGED_ONCE, "2 times"),
        (of_payment(charges=[PAID._replace(amount=1)]), Law.MONEY_IS_SIGNED, "otherwise"),
        (of_payment(charges=[PAID._replace(to="0xthief")]), Law.MONEY_IS_SIGNED, "otherwise"),
        (of_payment(**OPEN, has_access=False), Law.PAID_IS_SERVED, "no access"),
        (of_payment(**LEFT_ALONE, has_access=False, record={}), Law.PAID_IS_SERVED, "is {}"),
        (of_payment(has_access=False), Law.RECEIPT_STAYS, "now no access"),
        (of_payment(record={}), Law.RECORD_NAMES_IT, "names None, not ['0xpaid']"),
        (of_payment(record={"status": "settled", "tx_hash": "0xother"}), Law.RECORD_NAMES_IT,
         "names 0xother, not ['0xpaid']"),
        (of_payment(record={"status": "pending", "tx_hash": "0xpaid"}), Law.RECORD_NAMES_IT,
         "names None"),
        (of_payment(charges=[]), Law.RECORD_NAMES_IT, "names 0xpaid, not []"),
        (of_payment(**REFUSED), Law.FINAL_IS_FINAL, "refused as final, and charged"),
        (of_payment(**OPEN, has_access=False, is_good=True, is_over=True), Law.PAID_IS_SERVED, ""),
        (of_payment(**OPEN, charges=[], has_access=False, is_over=True), Law.RESOLVED, "for ever"),
        (judge_payment_id([payment(), payment()]), Law.CHARGED_ONCE, "2 times"),
        (judge_payment_id([payment(charges=[])]), Law.SERVED_IS_PAID, "no money stands"),
        (end_of(session(deposited="20000", remaining="10000")), Law.SESSION_IS_DEPOSIT, "30000"),
        (end_of(session(released="0", remaining="30000")), Law.DEBITS_ARE_SERVED, "10000 to 10000"),
        (end_of(session(released="20000", remaining="10000")), Law.DEBITS_ARE_SERVED, "to 10000"),
        (end_of(session(remaining="0")), Law.DEBITS_ARE_SERVED, "has 0, released 10000"),
        (end_of(session([])), Law.REFUND_IS_THE_REST, "its refund is []"),
        (end_of(session([BACK._replace(amount=30_000)])), Law.REFUND_IS_THE_REST, "rest is 20000"),
        (end_of(session([BACK._replace(to="0xthief")])), Law.REFUND_IS_THE_REST, "rest is 20000"),
        (end_of(session(status="expired")), Law.REFUND_IS_THE_REST, "still owes 20000 at the end"),
        (end_of(session(status="active")), Law.REFUND_IS_THE_REST, "has not ended"),
        (end_of(said_more(), is_over=False), Law.DEBITS_ARE_SERVED, "served 20000 to 60000"),
        (refunds(session(), paid=[BACK, BACK]), Law.REFUND_IS_THE_REST, "got 20000, 20000"),
        (refunds(session(status="active"), paid=[BACK]), Law.REFUND_IS_THE_REST, "owed nothing"),
        (refunds(session(), session(), paid=[BACK], is_over=True), Law.REFUND_IS_THE_REST,
         "0xpayer is owed 20000, 20000, and got 20000"),
        (refunds(paid=[BACK._replace(to="0xthief")]), Law.REFUND_IS_THE_REST, "0xthief is owed no"),
        (balance_is_the_sum("0xpayer", before=50_000, now=59_999, moves=MOVES),
         Law.BALANCE_IS_THE_SUM, "leave 60000"),
        (money_is_signed([PAID._replace(tx_hash="0xstolen")], {"0xpayer"}, {"0xpaid"}),
         Law.MONEY_IS_SIGNED, "nobody signed"),
    ],
)  # fmt: skip
def test_what_no_crash_may_do(found: Iterator[Violation], law: Law, says: str) -> None:
    assert any(each.law is law and says in each.how for each in found)


def test_what_is_as_it_should_be_breaks_no_law() -> None:
    honest = [
        *of_payment(is_over=True),
        *of_payment(**OPEN, is_good=True, has_access=False),
        *of_payment(**LEFT_ALONE, has_access=False, record={"status": "pending"}),
        *judge_payment_id([payment()]),
        *end_of(session()),
        *refunds(session(), paid=[BACK], is_over=True),
        *refunds(session(), paid=[]),
        *balance_is_the_sum("0xpayer", before=50_000, now=60_000, moves=MOVES),
        *money_is_signed(MOVES, {"0xpayer"}, {"0xpaid"}),
    ]
    assert honest == []
