"""The table of a payment's states and events: the service makes its moves, and no other."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import ANY

import pytest
from msgspec import convert

from tests.rig import ServiceRig, broken, lose_request, only, scene
from tests.service.standard import submit
from x402sim.protocol.messages import SettlementRequest
from x402sim.protocol.refusals import ChainFinding, SettlementRefused
from x402sim.protocol.states import (
    PAYMENT,
    SESSION,
    Move,
    PaymentEvent,
    PaymentState,
    moves,
)
from x402sim.service import payments
from x402sim.service.reconcile import ChainAnswer, follow, grant
from x402sim.service.store import Store
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.session_budgets import NewSession
from x402sim.service.upstream.chain import NonceUse

OFF_CHAIN = "0x" + "ab" * 32
USED = NonceUse(block_number=5, tx_hash=OFF_CHAIN, canceled=False, transfer=None)


Happens = Callable[[ServiceRig, Attempt], object]


async def present(rig: ServiceRig, sent: SettlementRequest) -> None:
    """What `pay` does with a header before it sends it."""
    request = await payments.validate(rig.service, sent)
    try:
        presented = rig.service.store.payments.attempts(request.payment_id)
        attempt = await payments.resume_earlier(rig.service, request, presented)
        attempt = attempt or await payments.admit(rig.service, request)
        payments.ensure_claimed(rig.service, request, attempt)
    except SettlementRefused:
        pass


def finds(finding: ChainFinding, use: NonceUse | None = None) -> Happens:
    return lambda rig, at: follow(rig.service, at, ChainAnswer(finding, use, height=1))


def moves_by(method: str, *more: object) -> Happens:
    return lambda rig, at: getattr(rig.service.store.payments, method)(at.number, *more)


def restart(rig: ServiceRig, _: Attempt) -> None:
    rig.service.store.end_waits("payments")
    rig.restart()


HAPPENS: dict[PaymentEvent, Happens] = {
    PaymentEvent.NOT_TAKEN: moves_by("mark_not_submitted"),
    PaymentEvent.MAYBE_TAKEN: moves_by("mark_maybe_submitted"),
    PaymentEvent.PAID: finds(ChainFinding.PAID, USED),
    PaymentEvent.PAID_AGAIN: finds(ChainFinding.PAID, USED),
    PaymentEvent.NOT_YET: finds(ChainFinding.NOT_YET),
    PaymentEvent.UNDONE: finds(ChainFinding.NOT_YET),
    PaymentEvent.NEVER: finds(ChainFinding.NEVER),
    PaymentEvent.SILENT: finds(ChainFinding.UNKNOWN),
    PaymentEvent.IN_BLOCK: moves_by("set_block", OFF_CHAIN, 5),
    PaymentEvent.DEEP: moves_by("set_deep"),
    PaymentEvent.DROPPED: moves_by("drop_claim"),
    PaymentEvent.FORGOTTEN: moves_by("forget"),
    PaymentEvent.RESTARTED: restart,
}


async def in_state(
    rig: ServiceRig, state: PaymentState
) -> tuple[SettlementRequest, SettlementRequest, Attempt]:
    """Return a header, another one for its payment id, and the attempt of the first that is stored
    in this state."""
    required = await rig.ask()
    sent, other = (convert(rig.settlement(required), SettlementRequest) for _ in range(2))
    request = await payments.validate(rig.service, sent)
    attempt = payments.ensure_claimed(
        rig.service, request, await payments.admit(rig.service, request)
    )
    store = rig.service.store
    if state is PaymentState.NEW:
        store.payments.drop_claim(attempt.number)
    else:
        store.execute("UPDATE payments SET state = ?, tx_hash = ?", state, OFF_CHAIN)
    return sent, other, attempt


def copy_settled(rig: ServiceRig, attempt: Attempt, changed: str) -> None:
    """Store another attempt that has paid, equal but for one column."""
    names = rig.service.store.execute("SELECT name FROM pragma_table_info('payments')").fetchall()
    column, _, value = changed.split()
    same = ", ".join(name for (name,) in names if name not in ("attempt", "state", column))
    rig.service.store.execute(
        f"INSERT INTO payments(state, {column}, {same}) SELECT 'settled', {value}, {same} "
        "FROM payments WHERE attempt = ?",
        attempt.number,
    )


@pytest.mark.parametrize("state", [each for each in PaymentState if each != PaymentState.NEW])
@scene
async def test_the_status_of_a_state_is_that_of_the_database(
    rig: ServiceRig, state: PaymentState
) -> None:
    """A payer sees the attempt's status; the indexes go by the database's."""
    _, _, attempt = await in_state(rig, state)
    stored = rig.service.store.payments.reload(attempt)
    (status,) = rig.service.store.one("SELECT status FROM payments")
    assert stored is not None
    assert (stored.state, stored.status) == (state, status)
    assert stored.is_pending == (status == "pending")


_FREE = (PaymentState.NEW, PaymentState.NOT_SUBMITTED, PaymentState.FAILED)
"""The states in which another header for the payment id is admitted."""


@pytest.mark.parametrize("event", PaymentEvent)
@pytest.mark.parametrize("state", PaymentState)
@scene
async def test_each_cell_of_the_table(
    rig: ServiceRig, state: PaymentState, event: PaymentEvent
) -> None:
    """What an event makes of an attempt in a state; where the table has no row, nothing."""
    sent, other, attempt = await in_state(rig, state)
    store = rig.service.store
    if event is PaymentEvent.PAID_AGAIN:
        if state is PaymentState.SETTLED:
            with pytest.raises(sqlite3.IntegrityError):  # one attempt for an id is settled
                copy_settled(rig, attempt, "nonce = x'00'")
            return
        copy_settled(rig, attempt, "nonce = x'00'")
    if event is PaymentEvent.UNDONE:
        store.execute("UPDATE payments SET block_number = 5 WHERE state = 'settled'")
    before = store.execute("SELECT * FROM payments").fetchall()
    if event is PaymentEvent.PRESENTED:
        await present(rig, sent)
    elif event is PaymentEvent.RIVAL:
        await present(rig, other)
        is_admitted = len(store.execute("SELECT * FROM payments").fetchall()) > len(before)
        assert is_admitted == (state in _FREE)
        before = store.execute("SELECT * FROM payments").fetchall()
    else:
        HAPPENS[event](rig, attempt)
    after = store.execute("SELECT * FROM payments").fetchall()
    is_admitted = event is PaymentEvent.PRESENTED and state is PaymentState.NEW
    now = store.payments.attempt(attempt.number + is_admitted)  # a number is never used again
    assert (now.state if now else PaymentState.NEW) == moves(event).get(state, state)
    if state not in moves(event):
        assert after == before


DEPOSIT = NewSession("s", created_ms=1, expires_ms=2)
SESSIONS: dict[str, Callable[[Store], object]] = {
    "its deposit settles": lambda store: store.payments.mark_settled(1, OFF_CHAIN, DEPOSIT),
    "its time is over": lambda store: store.sessions.expire(10**15, 9),
    "its deposit has failed": lambda store: store.payments.fail(1, 1),
    "its refund is about to be sent": lambda store: [
        store.sessions.begin_refund(each) for each in store.sessions.refunds_due(0, 9)
    ],
    "its unspent balance is paid back": lambda store: store.sessions.refunded("s", 0, OFF_CHAIN),
    "the chain has undone the refund": lambda store: store.sessions.undo_refund("s", 0),
    "a request is debited": lambda store: store.sessions.debit("s", 1, "/", 1),
    "a debit without an answer is undone": lambda store: store.sessions.undo_debit("s", 1, "/"),
}
_SETTLES, _ENDS, _FAILS, _SENDS, _REFUNDS, _UNDOES, _DEBITS, _LEAVES = SESSIONS
WAYS = {
    "new": (),
    "active": (_SETTLES, _DEBITS),
    "expired": (_SETTLES, _DEBITS, _ENDS),
    "refunding": (_SETTLES, _DEBITS, _ENDS, _SENDS),
    "refunded": (_SETTLES, _DEBITS, _ENDS, _SENDS, _REFUNDS),
}


async def after(rig: ServiceRig, *events: str) -> str:
    """Return the state of the session of a new deposit after some events."""
    await in_state(rig, PaymentState.IN_FLIGHT)
    for event in events:
        with suppress(sqlite3.IntegrityError):  # what was not sent is not paid
            SESSIONS[event](rig.service.store)
    found = rig.service.store.sessions.get("s")
    return found.state if found else "new"


@pytest.mark.parametrize("event", SESSIONS)
@pytest.mark.parametrize("state", WAYS)
@scene
async def test_each_cell_of_the_table_of_sessions(rig: ServiceRig, state: str, event: str) -> None:
    table = {(move.before, move.event): move.after for move in SESSION}
    assert await after(rig, *WAYS[state], event) == table.get((state, event), state)


WITH_A_FAILED_DEPOSIT = {
    (_SETTLES, _FAILS): "expired",
    (_SETTLES, _FAILS, _SETTLES): "active",
    (_SETTLES, _FAILS, _ENDS): "expired",
    (_SETTLES, _FAILS, _SETTLES, _ENDS): "expired",
    (_SETTLES, _ENDS, _FAILS): "expired",
    (_SETTLES, _ENDS, _FAILS, _SETTLES): "expired",
    (_SETTLES, _ENDS, _SENDS, _REFUNDS, _FAILS): "refunded",
    (_SETTLES, _ENDS, _SENDS, _REFUNDS, _FAILS, _SETTLES): "refunded",
    (_SETTLES, _ENDS, _SENDS, _REFUNDS, _FAILS, _UNDOES): "refunding",
    (_SETTLES, _ENDS, _SENDS, _REFUNDS, _FAILS, _UNDOES, _SETTLES): "refunding",
}


@pytest.mark.parametrize("events", WITH_A_FAILED_DEPOSIT, ids=" | ".join)
@scene
async def test_a_session_whose_deposit_failed_and_settles_after_all(
    rig: ServiceRig, events: tuple[str, ...]
) -> None:
    """Only one that its failed deposit has ended is active again: no other, and no refunded one."""
    assert Move("expired", "the failed deposit that ended it settles", "active", ANY) in SESSION
    state = WITH_A_FAILED_DEPOSIT[events]
    assert await after(rig, *events) == state
    is_paid = events.count(_SETTLES) > events.count(_FAILS)
    owed = rig.service.store.sessions.refunds_due(0, 9)
    assert len(owed) == (state in ("expired", "refunding") and is_paid), (
        "once, and only if it was deposited"
    )


WITH_A_DEBIT_UNDONE = {
    (_LEAVES, _ENDS, _SENDS, _REFUNDS): ("refunded", [10_000]),
    (_ENDS, _LEAVES, _SENDS, _REFUNDS): ("refunded", [10_000]),
    (_ENDS, _SENDS, _LEAVES): ("expired", [9_999, 1]),
    (_ENDS, _SENDS, _LEAVES, _SENDS, _REFUNDS): ("refunding", [9_999, 1]),
    (_ENDS, _SENDS, _REFUNDS, _LEAVES): ("expired", [9_999, 1]),
    (_ENDS, _SENDS, _REFUNDS, _LEAVES, _LEAVES): ("expired", [9_999, 1]),
    (_ENDS, _SENDS, _REFUNDS, _UNDOES, _LEAVES): ("expired", [9_999, 1]),
    (_ENDS, _SENDS, _REFUNDS, _LEAVES, _UNDOES): ("expired", [9_999, 1]),
}


@pytest.mark.parametrize("events", WITH_A_DEBIT_UNDONE, ids=" | ".join)
@scene
async def test_a_debit_that_is_undone_is_owed_once_and_changes_no_refund_that_was_sent(
    rig: ServiceRig, events: tuple[str, ...]
) -> None:
    state, owed = WITH_A_DEBIT_UNDONE[events]
    assert await after(rig, _SETTLES, _DEBITS, *events) == state
    amounts = rig.service.store.execute("SELECT amount FROM refunds ORDER BY part").fetchall()
    assert [amount for (amount,) in amounts] == owed


@pytest.mark.parametrize("machine", [PAYMENT, SESSION], ids=["payment", "session"])
def test_a_state_and_an_event_have_one_row(machine) -> None:
    assert len({(move.before, move.event) for move in machine}) == len(machine)


@scene
async def test_a_failed_attempt_is_not_answered_as_paid_by_the_payment_of_another(
    rig: ServiceRig,
) -> None:
    """Its authorization was presented for another payment id since, and that one is paid."""
    first, second = await rig.ask(), await rig.ask()
    header, store = rig.sign(first), rig.service.store
    with broken(rig, "facilitator", only("/settle", lose_request)):
        await rig.pay(first, header)
        (failed,) = store.payments.attempts(first.json()["paymentId"])
        store.payments.fail(failed.number, 1)
        await rig.pay(second, header)
    await submit(rig, header)
    refused = await rig.pay(first, header)
    assert (refused.status_code, refused.json()["error"]) == (409, "Nonce already used")
    assert (await rig.pay(second, header)).status_code == 200
    assert rig.transfers() == 1


@pytest.mark.parametrize(
    ("state", "changed"),
    [
        (PaymentState.IN_FLIGHT, "nonce = x'00'"),  # another header has paid for its payment id
        (PaymentState.MAYBE_SUBMITTED, "nonce = x'00'"),
        (PaymentState.FAILED, "nonce = x'00'"),
        (PaymentState.FAILED, "payment_id = 'pay_other'"),  # or itself, for another payment id
    ],
)
@scene
async def test_no_answer_settles_what_another_attempt_has_paid_meanwhile(
    rig: ServiceRig, state: PaymentState, changed: str
) -> None:
    """Another process may have settled that while this one waited for the facilitator."""
    *_, attempt = await in_state(rig, state)
    store = rig.service.store
    copy_settled(rig, attempt, changed)
    before = store.execute("SELECT * FROM payments").fetchall()
    assert not grant(rig.service, attempt, "0x" + "cd" * 32)
    assert store.execute("SELECT * FROM payments").fetchall() == before


@pytest.mark.parametrize(
    ("changed", "answered"),
    [("nonce = x'00'", (200, None)), ("payment_id = 'pay_other'", (502, "Settlement failed"))],
)
@scene
async def test_what_another_attempt_has_paid_meanwhile_is_answered_by_its_record(
    rig: ServiceRig, changed: str, answered: tuple[int, str | None]
) -> None:
    """Its own receipt, or none: never one without a transaction."""
    required = await rig.ask()

    async def meanwhile(_, deliver):
        (attempt,) = rig.service.store.payments.attempts(required.json()["paymentId"])
        rig.service.store.payments.fail(attempt.number, 1)
        rig.service.store.execute("UPDATE payments SET tx_hash = ?", OFF_CHAIN)
        copy_settled(rig, attempt, changed)
        return await deliver()

    with broken(rig, "facilitator", only("/settle", meanwhile)):
        paid = await rig.pay(required)
    assert (paid.status_code, paid.json().get("error")) == answered
    assert paid.json().get("txHash") == (OFF_CHAIN if answered[0] == 200 else None)
