"""Looks at everything after a restart, through public HTTP, and has it judged.

The order matters, as background work goes on meanwhile: the ledger is read before and after the
service is asked. A refund must belong to a session that was seen later; access must have been
paid by a transfer that is seen later.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.crash.deployment import Deployment
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
from tests.crash.ledger import Ledger, Transfer, explorer_confirms, read_ledger
from tests.crash.load import access, expect, send
from tests.crash.memory import Attempt, Memory
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


@dataclass(frozen=True, slots=True)
class _Answer:
    has_access: bool
    session: dict[str, Any] | None
    record: dict[str, Any] | None


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
    before = read_ledger(deployment)
    answers = {attempt.payment_id: answer for attempt, _, answer in _asked(deployment, memories)}
    after = read_ledger(deployment)
    good = set() if is_over else _send_what_was_charged(deployment, memories, answers, after)
    payments = [
        PaymentSeen(
            attempt=attempt,
            charges=after.charges.get(attempt.nonce, []),
            has_access=answers[attempt.payment_id].has_access,
            record=answers[attempt.payment_id].record,
            is_header_good=attempt.nonce in good,
        )
        for memory in memories
        for attempt in memory.attempts
    ]
    sessions = _sessions(payments, answers, read_ledger(deployment))
    refunds = [each for each in before.transfers if each.sender == deployment.wallet]
    return Audit(
        violations=[
            *_judged(payments, sessions, is_over=is_over),
            *judge_refunds(sessions, refunds, is_over=is_over),
            *judge_transfers(payments, _sent_by_payers(payments, before)),
            *_unconfirmed(deployment, payments, confirmed),
            *_balances(deployment, {each.attempt.payer for each in payments}),
            *_complaints(deployment, memories),
        ],
        did=_counted(memories, payments) + Counter(sessions=len(sessions), refunds=len(refunds)),
        resent=len(good),
    )


def _counted(memories: list[Memory], payments: list[PaymentSeen]) -> Counter[str]:
    attempts = [each.attempt for each in payments]
    charges = sum(bool(each.charges) for each in payments)
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
    return not any(
        answer.session and _is_owed(attempt, answer.session)
        for attempt, _, answer in _asked(deployment, memories)
    )


def is_quiet(deployment: Deployment, memories: list[Memory]) -> bool:
    """Tell whether no refund is owed and no payment is pending."""
    return are_refunded(deployment, memories) and not any(
        answer.record and answer.record["status"] == "pending"
        for *_, answer in _asked(deployment, memories)
    )


def _asked(
    deployment: Deployment, memories: list[Memory]
) -> Iterator[tuple[Attempt, Memory, _Answer]]:
    """Ask the service about each header that was signed."""
    for memory in memories:
        for attempt in memory.attempts:
            yield attempt, memory, _ask(deployment, attempt, memory)


def _send_what_was_charged(
    deployment: Deployment, memories: list[Memory], answers: dict[str, _Answer], ledger: Ledger
) -> set[str]:
    """Ask again about what was charged and gives no access; first send its header again.

    Renews `answers`. Returns the nonces of the headers that were sent and not refused for good.
    """
    good = set()
    for memory in memories:
        for attempt in memory.attempts:
            is_charged = attempt.nonce in ledger.charges
            if is_charged and not answers[attempt.payment_id].has_access:
                if not attempt.is_left_alone and _send_until_decided(deployment, attempt, memory):
                    good.add(attempt.nonce)
                answers[attempt.payment_id] = _ask(deployment, attempt, memory)
    return good


def _is_owed(deposit: Attempt, view: dict[str, Any]) -> bool:
    if view["status"] == "active":
        return bool(deposit.session_body["duration"] < 60)
    return bool(view["status"] == "expired" and int(view["remaining"]))


def _ask(deployment: Deployment, attempt: Attempt, memory: Memory) -> _Answer:
    """Ask for the record, then for what was paid for.

    A pending payment may be settled between the two: whoever's record is settled has access after.
    """
    http = deployment.service
    found = http.get(f"/api/payments/{attempt.payment_id}")
    expect(found, {200, 404}, "a payment record", memory)
    record = found.json() if found.status_code == 200 else None
    answer = access(http, attempt)
    expect(answer, {200, CREATED, 402}, "an audited payment id", memory)
    session = answer.json() if answer.status_code == CREATED else None
    return _Answer(answer.status_code in (200, CREATED), session, record)


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


def _sessions(
    payments: list[PaymentSeen], answers: dict[str, _Answer], ledger: Ledger
) -> list[SessionSeen]:
    found = []
    for each in payments:
        view = answers[each.attempt.payment_id].session
        if view is not None:
            tx_hash = view.get("refundTxHash")
            refund = ledger.by_hash(tx_hash) if tx_hash else []
            found.append(SessionSeen(deposit=each.attempt, view=view, refund=refund))
    return found


def _judged(
    payments: list[PaymentSeen], sessions: list[SessionSeen], *, is_over: bool
) -> list[str]:
    by_id: dict[str, list[PaymentSeen]] = defaultdict(list)
    for each in payments:
        by_id[each.attempt.payment_id].append(each)
    wrong = [w for each in payments for w in judge_payment(each, is_over=is_over)]
    wrong += [w for each in by_id.values() for w in judge_payment_id(each)]
    for session in sessions:
        wrong += judge_session(session, price=PRICE, is_over=is_over)
        session.deposit.released = max(session.deposit.released, int(session.view["released"]))
    return wrong


def _sent_by_payers(payments: list[PaymentSeen], ledger: Ledger) -> list[Transfer]:
    payers = {each.attempt.payer for each in payments}
    return [each for each in ledger.transfers if each.sender in payers]


def _complaints(deployment: Deployment, memories: list[Memory]) -> list[str]:
    """Return what was complained about since the last audit."""
    said = [*deployment.complaints, *(each for memory in memories for each in memory.complaints)]
    deployment.complaints.clear()
    for memory in memories:
        memory.complaints.clear()
    return said


def _unconfirmed(
    deployment: Deployment, payments: list[PaymentSeen], confirmed: set[str]
) -> list[str]:
    wrong = []
    for tx_hash in {each.attempt.receipt for each in payments} - confirmed - {None}:
        if explorer_confirms(deployment, tx_hash):
            confirmed.add(tx_hash)
        else:
            wrong.append(f"the explorer does not confirm the receipt {tx_hash}")
    return wrong


def _balances(deployment: Deployment, payers: set[str]) -> list[str]:
    """Compare the payers' balances with the transfers, at a moment when none is under way."""
    began = {each["address"].lower(): int(each["balance"]) for each in deployment.began}
    for _ in range(RESENDS):
        before = read_ledger(deployment)
        now = {payer: deployment.world.balance(payer) for payer in payers}
        if read_ledger(deployment) == before:
            return [
                wrong
                for payer in payers
                for wrong in judge_balance(
                    payer, before=began[payer], now=now[payer], moves=before.transfers
                )
            ]
    return ["the ledger never came to rest"]
