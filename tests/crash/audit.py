"""Looks at everything after a restart, through public HTTP, and has it judged.

The order matters, as background work goes on meanwhile: the ledger is read before and after the
service is asked. A refund must belong to a session that was seen later; access must have been
paid by a transfer that is seen later.
"""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from tests.crash.deployment import Deployment
from tests.crash.judge import judge_payment, judge_payment_id, judge_refunds, judge_session
from tests.crash.load import access, expect, send
from tests.crash.memory import Attempt, Memory
from tests.money import Violation, balance_is_the_sum, money_is_signed
from tests.serve.driver import PRICE
from x402sim.spec.decisions import Decisions

RESENDS = 20
PAUSE_S = 0.25
PAID = "payments on the ledger"
CREATED = Decisions().session_created_status


@dataclass(frozen=True, slots=True)
class Audit:
    """What one audit saw, and what is wrong."""

    violations: list[str]
    did: Counter[str]
    """How much there was of what, by name."""
    resent: int
    """Charges whose payer got access only by sending the header again."""


def audit(
    deployment: Deployment,
    memories: list[Memory],
    confirmed: set[str],
    *,
    is_over: bool,
) -> Audit:
    """Audit the ledger and the service's answers against what the payers remember.

    `confirmed` keeps the receipts that the explorer has confirmed. At the end (`is_over`)
    nothing may be open any more.
    """
    before = deployment.ledger()
    attempts = look(deployment, memories)
    after = deployment.ledger()
    for attempt in attempts:
        attempt.charges = after.charges(attempt.nonce)
        attempt.is_good = False
    if not is_over:
        _send_what_was_charged(deployment, memories)
    sessions, last = [each for each in attempts if each.view], deployment.ledger()
    for each in sessions:
        each.refund = last.by_hash(each.view.get("refundTxHash"))
    refunds = [each for each in before.transfers if each.sender == deployment.wallet]
    payers = {each.payer for each in attempts}
    signed = {charge.tx_hash for each in attempts for charge in each.charges}
    laws = [
        *_judged(attempts, sessions, is_over=is_over),
        *judge_refunds(deployment.wallet, sessions, refunds, is_over=is_over),
        *money_is_signed(before.transfers, payers, signed),
        *_balances(deployment, payers),
    ]
    return Audit(
        violations=[
            *map(str, laws),
            *_unconfirmed(deployment, attempts, confirmed),
            *_complaints(deployment, memories),
        ],
        did=_counted(memories, attempts) + Counter(sessions=len(sessions), refunds=len(refunds)),
        resent=sum(each.is_good for each in attempts),
    )


def _counted(memories: list[Memory], attempts: list[Attempt]) -> Counter[str]:
    charges = sum(bool(each.charges) for each in attempts)
    return Counter(
        {
            "headers signed": len(attempts),
            PAID: charges,
            "receipts answered": sum(each.receipt is not None for each in attempts),
            "payments without a first answer": charges
            - sum(each.receipt is not None and each.sent == 1 for each in attempts),
            "headers sent again": sum(memory.resends for memory in memories),
            "replays refused": sum(memory.replays for memory in memories),
            "session requests served": sum(each.spent for each in attempts),
        }
    )


def are_refunded(deployment: Deployment, memories: list[Memory]) -> bool:
    """Tell whether every session that should have ended is paid back."""
    return not any(_is_owed(each) for each in look(deployment, memories))


def is_quiet(deployment: Deployment, memories: list[Memory]) -> bool:
    """Tell whether no refund is owed and no payment is pending."""
    return not any(
        _is_owed(each) or each.record.get("status") == "pending"
        for each in look(deployment, memories)
    )


def look(deployment: Deployment, memories: list[Memory]) -> list[Attempt]:
    """Ask the service about each header that was signed; return them all."""
    found = [(each, memory) for memory in memories for each in memory.attempts]
    for attempt, memory in found:
        _ask(deployment, attempt, memory)
    return [attempt for attempt, _ in found]


def _send_what_was_charged(deployment: Deployment, memories: list[Memory]) -> None:
    """Ask again about what was charged and gives no access; first send its header again."""
    for memory in memories:
        for attempt in memory.attempts:
            if attempt.charges and not attempt.has_access:
                if not attempt.is_left_alone:
                    attempt.is_good = _send_until_decided(deployment, attempt, memory)
                _ask(deployment, attempt, memory)


def _is_owed(deposit: Attempt) -> bool:
    match deposit.view:
        case {"status": "active"}:
            return bool(deposit.session_body["duration"] < 60)
        case {"status": "expired", "remaining": rest}:
            return bool(int(rest))
    return False


def _ask(deployment: Deployment, attempt: Attempt, memory: Memory) -> None:
    """Ask for the record, then for what was paid for.

    A pending payment may be settled between the two: whoever's record is settled has access after.
    """
    http = deployment.service
    found = http.get(f"/api/payments/{attempt.payment_id}")
    expect(found, {200, 404}, "a payment record", memory)
    attempt.record = found.json() if found.status_code == 200 else {}
    answer = access(http, attempt)
    expect(answer, {200, CREATED, 402}, "an audited payment id", memory)
    attempt.view = answer.json() if answer.status_code == CREATED else {}
    attempt.has_access = answer.status_code in (200, CREATED)


def _send_until_decided(deployment: Deployment, attempt: Attempt, memory: Memory) -> bool:
    """Send a charged header until there is access; tell whether it is never refused for good."""
    for _ in range(RESENDS):
        memory.resends += 1
        if send(deployment.service, attempt, memory):
            return True
        if access(deployment.service, attempt).status_code in (200, CREATED):
            return True
        if attempt.is_final:
            return False
        time.sleep(PAUSE_S)
    return True


def _judged(attempts: list[Attempt], sessions: list[Attempt], *, is_over: bool) -> list[Violation]:
    by_id: dict[str, list[Attempt]] = defaultdict(list)
    for each in attempts:
        by_id[each.payment_id].append(each)
    wrong = [w for each in attempts for w in judge_payment(each, is_over=is_over)]
    wrong += [w for each in by_id.values() for w in judge_payment_id(each)]
    for each in sessions:
        wrong += judge_session(each, price=PRICE, is_over=is_over)
        each.released = max(each.released, int(each.view["released"]))
    return wrong


def _complaints(deployment: Deployment, memories: list[Memory]) -> list[str]:
    """Return what was complained about since the last audit."""
    said = []
    for each in (deployment, *memories):
        said += each.complaints
        each.complaints.clear()
    return said


def _unconfirmed(deployment: Deployment, attempts: list[Attempt], confirmed: set[str]) -> list[str]:
    wrong = []
    for tx_hash in {each.receipt for each in attempts} - confirmed - {None}:
        if deployment.explorer_confirms(tx_hash):
            confirmed.add(tx_hash)
        else:
            wrong.append(f"the explorer does not confirm the receipt {tx_hash}")
    return wrong


def _balances(deployment: Deployment, payers: set[str]) -> list[Violation]:
    """Compare the payers' balances with the transfers, at a moment when none is under way."""
    began = {each["address"].lower(): int(each["balance"]) for each in deployment.began}
    for _ in range(RESENDS):
        before = deployment.ledger()
        now = {payer: deployment.world.balance(payer) for payer in payers}
        if deployment.ledger() == before:
            return [
                wrong
                for payer in payers
                for wrong in balance_is_the_sum(
                    payer, before=began[payer], now=now[payer], moves=before.transfers
                )
            ]
    raise AssertionError("the ledger never came to rest")
