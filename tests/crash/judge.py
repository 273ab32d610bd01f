"""What the law of money says of what was attempted between crashes, where the payers know little.

A charge may have no answer yet: then its header is still good, or its record is pending and the
service resolves it by itself. What was served lies between what was answered and what was asked.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.money import (
    Law,
    Place,
    Transfer,
    Violation,
    access_is_paid,
    charged_as_signed,
    charged_once,
    is_resolved,
    names_what_paid,
    receipt_stays,
    refunds_are_the_rest,
    refused_for_good,
    session_is_right,
)

Resource = Literal["quote", "deposit"]


@dataclass(slots=True)
class Attempt:
    """One payment header for one payment id; amounts are base units, addresses lower-case."""

    payer: str
    pay_to: str
    amount: int
    nonce: str
    payment_id: str
    resource: Resource
    body: dict[str, Any]
    """The body of POST /api/pay."""
    session_body: dict[str, Any] = field(default_factory=dict)
    """The body of POST /api/sessions/create, of a deposit."""
    receipt: str | None = None
    """The transaction hash of the first receipt that was answered."""
    is_final: bool = False
    """Whether a refusal said that this header was not charged and never will be."""
    sent: int = 0
    spent: int = 0
    """Requests that the session of this deposit was served."""
    unanswered: int = 0
    """Requests with that session whose answer was lost."""
    released: int = 0
    """The most that the service ever said to have released, in base units."""
    is_active: bool = True
    """Whether the session may still pay, as far as the payer knows."""

    # what the newest audit has seen
    charges: list[Transfer] = field(default_factory=list)
    """The transfers on the ledger that used this authorization."""
    has_access: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    """The answer of GET /api/payments/{id}; empty if there is no record."""
    is_good: bool = False
    """Whether the header, sent again, was answered with a receipt or may be sent once more."""
    view: dict[str, Any] = field(default_factory=dict)
    """The session of a paid deposit, as the service shows it."""
    refund: list[Transfer] = field(default_factory=list)
    """The transfers of the transaction that the session names as its refund."""

    @property
    def is_open(self) -> bool:
        """Whether the payer may still send this header."""
        return self.receipt is None and not self.is_final

    @property
    def is_left_alone(self) -> bool:
        """Whether its payer never sends it twice: the service must find out by itself."""
        return self.sent > 0 and int(self.nonce, 16) % 2 == 0


@dataclass(slots=True)
class Memory:
    """What the payer of one account remembers."""

    attempts: list[Attempt] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Answers that break a rule by themselves."""
    resends: int = 0
    replays: int = 0


# --- what the law says of it --------------------------------------------------------------


def judge_payment(attempt: Attempt, *, is_over: bool) -> Iterator[Violation]:
    """Judge one header; at the end (`is_over`) nothing may be left undecided."""
    what, record = f"payment {attempt.payment_id[:14]} nonce {attempt.nonce[:10]}", attempt.record
    signed = attempt.payer, attempt.pay_to, attempt.amount
    yield from charged_as_signed(what, attempt.charges, signed)
    if attempt.charges and not attempt.has_access:
        is_open = attempt.is_good
        if attempt.is_left_alone:
            is_open = record.get("status") == "pending"
        if is_over or not is_open:
            yield Violation(Law.PAID_IS_SERVED, f"{what} paid: no access, its record is {record}")
    if attempt.receipt:
        paid = {charge.tx_hash for charge in attempt.charges}
        yield from receipt_stays(what, has_access=attempt.has_access)
        yield from names_what_paid(f"the receipt of {what}", attempt.receipt, paid)
        recorded = record.get("tx_hash") if record.get("status") == "settled" else None
        yield from names_what_paid(f"the record of {what}", recorded, {attempt.receipt})
    if attempt.is_final:
        yield from refused_for_good(what, attempt.charges)
    if is_over:
        yield from is_resolved(what, record.get("status"))


def judge_payment_id(seen: list[Attempt]) -> Iterator[Violation]:
    """Judge all headers that were signed for one payment id."""
    what = f"payment id {seen[0].payment_id[:14]}"
    paid = [charge.tx_hash for each in seen for charge in each.charges]
    yield from charged_once(what, sum(bool(each.charges) for each in seen))
    if seen[0].has_access:
        yield from access_is_paid(what, paid)


def judge_session(deposit: Attempt, *, price: int, is_over: bool) -> Iterator[Violation]:
    """Judge one session; at the end every session that has ended is refunded."""
    view = deposit.view
    what, rest = f"session {view['sessionId'][:16]}", int(view["remaining"])
    least = max(deposit.spent * price, deposit.released)
    most = (deposit.spent + deposit.unanswered) * price
    yield from session_is_right(what, view, deposit.amount, (least, most))
    refunds = [(each.to, each.amount) for each in deposit.refund]
    wrong = ""
    match view["status"]:
        case "refunded" if refunds != [(deposit.payer, rest)]:
            wrong = f"says refunded, its refund is {refunds}, the rest is {rest}"
        case "expired" if is_over and rest:
            wrong = f"still owes {rest} at the end"
        case "active" if is_over and deposit.session_body["duration"] < 60:
            wrong = "has not ended at the end"
    if wrong:
        yield Violation(Law.REFUND_IS_THE_REST, f"{what} {wrong}")


def judge_refunds(
    wallet: str, sessions: list[Attempt], paid_back: list[Transfer], *, is_over: bool
) -> Iterator[Violation]:
    """Judge all transfers out of the server wallet: each is the refund of one ended session."""
    owed, sent = (defaultdict[Place, Counter[int]](Counter) for _ in range(2))
    for seen in sessions:
        if seen.view["status"] != "active" and (rest := int(seen.view["remaining"])):
            owed[wallet, seen.payer][rest] += 1
    for each in paid_back:
        sent[wallet, each.to][each.amount] += 1
    for place in owed.keys() | sent.keys():
        yield from refunds_are_the_rest(place, owed[place], sent[place], is_over=is_over)
