"""What must hold after every crash, as pure functions of what was attempt.

Written from the ledger and the answers alone, apart from the service's code:

- money moved => access, or a header that is still good, or a pending record that the service
  resolves by itself;
- access => money moved, to the right payee, in the right amount;
- a header is charged at most once, and so is a payment id;
- a receipt that was ever answered is served for ever, with the same transaction;
- a refusal that says `final` is never followed by a charge;
- a session has released at least what it served, at most what was asked of it, and never less
  than it said before; its refund is the rest and arrives once.
"""

from collections import Counter

from tests.crash.ledger import Transfer
from tests.crash.memory import Attempt


def judge_payment(attempt: Attempt, *, is_over: bool) -> list[str]:
    """Judge one header; at the end (`is_over`) nothing may be left undecided."""
    wrong, is_charged, record = [], bool(attempt.charges), attempt.record
    if len(attempt.charges) > 1:
        wrong.append(f"charged {len(attempt.charges)} times")
    wanted = attempt.payer, attempt.pay_to, attempt.amount
    for charge in attempt.charges:
        if (charge.sender, charge.to, charge.amount) != wanted:
            wrong.append(f"charged otherwise than signed: {charge}")
    if is_charged and not attempt.has_access:
        if is_over:
            wrong.append("charged, and no access at the end")
        elif attempt.is_left_alone and record.get("status") != "pending":
            wrong.append(f"charged, no access, and its record is {record}")
        elif not attempt.is_left_alone and not attempt.is_good:
            wrong.append("charged, no access, and its header is refused for good")
    if attempt.receipt:
        if not attempt.has_access:
            wrong.append("its receipt is not served any more")
        if record.get("status") != "settled" or record.get("tx_hash") != attempt.receipt:
            wrong.append(f"its receipt names {attempt.receipt}, its record is {record}")
        if attempt.receipt not in [charge.tx_hash for charge in attempt.charges]:
            wrong.append("its receipt names a transaction that did not charge it")
    if attempt.is_final and is_charged:
        wrong.append("refused as final, and charged")
    if is_over and record.get("status") == "pending":
        wrong.append("still pending, though its window has passed")
    return [f"payment {attempt.payment_id[:14]} nonce {attempt.nonce[:10]}: {w}" for w in wrong]


def judge_payment_id(seen: list[Attempt]) -> list[str]:
    """Judge all headers that were signed for one payment id."""
    wrong, payment_id = [], seen[0].payment_id
    charged = [each for each in seen if each.charges]
    if len(charged) > 1:
        wrong.append(f"{len(charged)} headers were charged for one payment id")
    if seen[0].has_access and not charged:
        wrong.append("access, and no money moved")
    return [f"payment id {payment_id[:14]}: {w}" for w in wrong]


def judge_session(deposit: Attempt, *, price: int, is_over: bool) -> list[str]:
    """Judge one session; at the end every session that has ended is refunded."""
    view, wrong = deposit.view, []
    released, rest = int(view["released"]), int(view["remaining"])
    if int(view["deposited"]) != deposit.amount or released + rest != deposit.amount:
        wrong.append(f"{deposit.amount} were deposited, the session says {view}")
    least = max(deposit.spent * price, deposit.released)
    most = (deposit.spent + deposit.unanswered) * price
    if not least <= released <= most:
        wrong.append(f"released {released}, but it served {least} to {most}")
    refunds = [(each.to, each.amount) for each in deposit.refund]
    match view["status"]:
        case "refunded" if refunds != [(deposit.payer, rest)]:
            wrong.append(f"it says refunded, its refund is {refunds}, the rest is {rest}")
        case "expired" if is_over and rest:
            wrong.append(f"{rest} are still owed at the end")
        case "active" if is_over and deposit.session_body["duration"] < 60:
            wrong.append("it has not ended at the end")
    return [f"session {view['sessionId'][:16]}: {each}" for each in wrong]


def judge_refunds(
    sessions: list[Attempt], paid_back: list[Transfer], *, is_over: bool
) -> list[str]:
    """Judge all transfers out of the server wallet: each is the refund of one ended session."""
    owed = Counter(
        (seen.payer, int(seen.view["remaining"]))
        for seen in sessions
        if seen.view["status"] != "active" and int(seen.view["remaining"])
    )
    paid = Counter((each.to, each.amount) for each in paid_back)
    wrong = [
        f"{n} refunds too many of {amount} to {to}" for (to, amount), n in (paid - owed).items()
    ]
    if is_over:
        wrong += [
            f"{n} refunds of {amount} to {to} never arrived"
            for (to, amount), n in (owed - paid).items()
        ]
    return wrong


def judge_balance(account: str, *, before: int, now: int, moves: list[Transfer]) -> list[str]:
    """Judge one payer's balance: what it had, less its charges, plus its refunds."""
    wanted = before + sum(
        (each.amount if each.to == account else 0) - (each.amount if each.sender == account else 0)
        for each in moves
    )
    return [] if now == wanted else [f"payer {account} has {now}, its transfers leave {wanted}"]


def judge_transfers(seen: list[Attempt], sent: list[Transfer]) -> list[str]:
    """Judge all transfers of the payers: each belongs to a header that was signed."""
    known = {charge.tx_hash for each in seen for charge in each.charges}
    return [f"a transfer that nobody signed: {each}" for each in sent if each.tx_hash not in known]
