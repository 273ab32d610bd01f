"""The payment records: claimed, then settled or failed, and later completed with a block.

Each authorization presented for a payment id is an attempt with its own record. At most one attempt
of a payment id is settled. The table `protocol.states.PAYMENT` has the states of an attempt and the
moves; the updates below are made from this table.
Clauses: 2.4/record, 2.4/block-null, 3/record-outlives-cache, 4.1/store-settled,
5/stored-records, 6/reputation, 8/indexer-batch.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from x402sim.protocol import states
from x402sim.protocol.crypto import Address
from x402sim.protocol.states import PaymentEvent, PaymentState
from x402sim.service.policies import Reputation, Track
from x402sim.service.store.database import Database
from x402sim.service.store.session_budgets import NewSession, SessionBudgets


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to pay a payment id: the record of section 2.4 (`messages.PaymentRecord`), and
    further columns.

    `payer`, `nonce` (32 bytes) and `valid_before_s` are the claimed authorization: None for an
    unreadable header. `is_authorized`: the authorization makes the required transfer. Other headers
    cannot pay, and only one attempt can claim an authorization. `nonce_confirmed_unused`: the chain
    has reported the nonce unused since the authorization was presented; before, an authorized
    attempt is not sent to the facilitator. `offered_id` is the payment id of the 402 behind a
    payment in one step, if the payer has sent the id. `wait_s` is a pending attempt's last wait in
    seconds, 0 before the first look. `failed_at` is the chain's height at the report that the
    attempt can never be paid.
    """

    payment_id: str
    tx_hash: str | None = None
    from_address: str
    to_address: str
    amount: str
    resource_url: str
    block_number: int | None = None
    timestamp: int = 0
    payer: Address | None
    nonce: bytes | None
    valid_before_s: int | None
    header: str
    duration: int
    offered_id: str | None
    is_authorized: bool
    nonce_confirmed_unused: bool
    state: PaymentState = PaymentState.NEW
    number: int = 0
    """The row's number in the database, 0 before the insertion."""
    wait_s: float = 0.0
    failed_at: int | None = None

    @property
    def is_pending(self) -> bool:
        """Whether nobody knows yet if the attempt will be settled."""
        return self.state is not PaymentState.SETTLED and self.state is not PaymentState.FAILED

    @property
    def status(self) -> str:
        """What payers see of the state, derived as in the database; the service tests the state."""
        return "pending" if self.is_pending else self.state.value


_READ = Attempt.__struct_fields__
_COLUMNS = ", ".join("attempt" if name == "number" else name for name in _READ)
_REQUIRED = (field.name for field in fields(Attempt) if field.required)
_CLAIM = tuple(dict.fromkeys(("payment_id", "offered_id", *_REQUIRED, "timestamp", "state")))
"""The columns of a claim, first the parameters of `_RIVAL`; the database derives the status."""
_claimed = attrgetter(*_CLAIM)
_RIVAL = (
    "(payment_id IN (?1, ?2) OR offered_id = ?1) AND is_authorized "
    "AND (state = 'settled' OR state = 'in flight' OR state = 'maybe submitted')"
)
"""A rival: another payment for the same 402, in one step or in two, perhaps settled.

?1 is the payment id, and ?2 the offered id. Within one service, a lock serializes the requests for
a payment id, and `resume_earlier` finds a rival. Between services on one store, only the claiming
statement can find a rival; without the condition, two headers for a payment id could both settle.
"""
_NO_RIVAL = f"NOT EXISTS(SELECT 1 FROM payments WHERE {_RIVAL})"
_INSERT = (
    f"INSERT INTO payments({', '.join(_CLAIM)}) "
    f"SELECT {', '.join(f'?{n}' for n in range(1, len(_CLAIM) + 1))} "
    f"WHERE {_NO_RIVAL} ON CONFLICT DO NOTHING"
)


def _in(before: Iterable[str]) -> str:
    """Return the SQL condition for an attempt in some states.

    Each update has the condition, although the caller has just read the state: several services of
    a world may work on one store, with separate locks. SQLite would make a temporary table for IN
    with more than two values.
    """
    return "attempt = ?1 AND (" + " OR ".join(f"state = '{each}'" for each in before) + ")"


def _update(event: PaymentEvent, others: str = "") -> str:
    """Return the statement for an event: the move of the state, and other columns."""
    moved = {before: after for before, after in states.moves(event).items() if before != after}
    cases = " ".join(f"WHEN '{before}' THEN '{after}'" for before, after in moved.items())
    return f"UPDATE payments SET state = CASE state {cases} END{others} WHERE {_in(moved)}"


_NOT_TAKEN, _MAYBE_TAKEN = _update(PaymentEvent.NOT_TAKEN), _update(PaymentEvent.MAYBE_TAKEN)
_NOT = PaymentState.NOT_SUBMITTED
_RESUME = (
    f"UPDATE payments SET state = '{states.moves(PaymentEvent.PRESENTED)[_NOT]}' "
    f"WHERE attempt = ?3 AND state = '{_NOT}' AND {_NO_RIVAL}"
)
_SETTLE = _update(PaymentEvent.PAID, ", tx_hash = ?2, block_number = NULL, is_deep = 0") + (
    " AND NOT EXISTS(SELECT 1 FROM payments AS other WHERE other.status = 'settled' "
    "AND other.payment_id = payments.payment_id) AND NOT (state = 'failed' AND EXISTS("
    "SELECT 1 FROM payments AS other WHERE other.status != 'failed' AND other.is_authorized "
    "AND other.payer = payments.payer AND other.nonce = payments.nonce))"
)
"""Nothing is updated if another attempt has settled this payment id. Nor if this attempt had failed
and another attempt has claimed the authorization since, and gets the payment."""
_UNDO = (
    _update(PaymentEvent.UNDONE, ", block_number = NULL, is_deep = 0, look_s = 0, wait_s = 0")
    + " AND block_number IS NOT NULL"
)
_FAIL = {
    event: _update(event, ", failed_at = ?2, is_deep = 0") + " RETURNING payment_id"
    for event in (PaymentEvent.NEVER, PaymentEvent.PAID_AGAIN)
}
_DROP, _FORGET = (
    f"DELETE FROM payments WHERE {_in(states.moves(event))}"
    for event in (PaymentEvent.DROPPED, PaymentEvent.FORGOTTEN)
)
_SET_BLOCK = (
    "UPDATE payments SET tx_hash = ?2, block_number = ?3, is_deep = ?4 "
    f"WHERE {_in(states.moves(PaymentEvent.IN_BLOCK))}"
)
_SET_DEEP = f"UPDATE payments SET is_deep = 1 WHERE {_in(states.moves(PaymentEvent.DEEP))}"
_SELECT = f"SELECT {_COLUMNS} FROM payments WHERE "


def _rank(attempt: Attempt) -> tuple[int, int]:
    rank = {PaymentState.SETTLED: 2, PaymentState.FAILED: 0}.get(attempt.state, 1)
    return rank, attempt.number


class PaymentRecords:
    """The payment records in the database."""

    def __init__(self, database: Database, sessions: SessionBudgets) -> None:
        self._db = database
        self._sessions = sessions

    def _found(self, where: str, *values: Any) -> list[Attempt]:
        found = []
        for row in self._db.execute(_SELECT + where, *values):
            values_of = dict(zip(_READ, row, strict=True))
            values_of["state"] = PaymentState(values_of["state"])
            for flag in ("is_authorized", "nonce_confirmed_unused"):
                values_of[flag] = bool(values_of[flag])  # SQLite has integers
            found.append(Attempt(**values_of))
        return found

    def get(self, payment_id: str) -> Attempt | None:
        """Return the attempt with the outcome of a payment id.

        The settled attempt, or else the newest pending attempt, or else the newest failed attempt.
        """
        return max(self.attempts(payment_id), key=_rank, default=None)

    def find_for_client(self, payment_id: str) -> Attempt | None:
        """Return the attempt of a payment id, or of the one-step payment for the same 402."""
        attempts, answer = self.attempts(payment_id), self.answer_to(payment_id)
        return max(attempts + self.attempts(answer or ""), key=_rank, default=None)

    def attempts(self, payment_id: str) -> list[Attempt]:
        """Return every attempt to pay a payment id, oldest first."""
        return self._found("payment_id = ? ORDER BY attempt", payment_id)

    def attempt(self, number: int) -> Attempt | None:
        """Return one attempt."""
        return next(iter(self._found("attempt = ?", number)), None)

    def reload(self, attempt: Attempt) -> Attempt | None:
        """Return an attempt as stored now; None if an older database was restored meanwhile."""
        found = self.attempt(attempt.number)
        return found if found and found.payment_id == attempt.payment_id else None

    def answer_to(self, offered_id: str) -> str | None:
        """Return the id of the one-step payment for this 402: the settled, or the newest."""
        sql = (
            "SELECT payment_id FROM payments WHERE offered_id = ? "
            "ORDER BY status = 'settled' DESC, attempt DESC LIMIT 1"
        )
        return next((str(row[0]) for row in self._db.execute(sql, offered_id)), None)

    def newest(self, limit: int) -> list[Attempt]:
        """Return the attempts of `get` for the payment ids of the newest attempts, oldest first."""
        ids = "SELECT payment_id FROM payments ORDER BY attempt DESC LIMIT ?"
        found: dict[str, Attempt] = {}
        for attempt in self._found(f"payment_id IN ({ids}) ORDER BY attempt", limit):
            found[attempt.payment_id] = max(
                found.pop(attempt.payment_id, attempt), attempt, key=_rank
            )
        return list(found.values())

    def settled(self) -> list[Attempt]:
        """Return the settled attempts, oldest first."""
        return self._found("status = 'settled' ORDER BY attempt")

    def has_any(self) -> bool:
        """Tell whether the database has any payment."""
        return bool(self._db.one("SELECT EXISTS (SELECT 1 FROM payments)")[0])

    def count(self) -> int:
        """Return the number of payment ids."""
        return int(self._db.one("SELECT count(DISTINCT payment_id) FROM payments")[0])

    def pending(self, now_s: float, limit: int) -> list[Attempt]:
        """Return pending attempts due for a look now.

        At most `limit` attempts with a possible submission come first, then as many without a
        submission: anybody can make the latter without paying. In each part, attempts without any
        look come first, oldest first, and then the longest waits. The cost does not grow with the
        number of attempts.
        """
        due = (
            "status = 'pending' AND (state != 'not submitted') = ? AND look_s <= ? "
            "ORDER BY look_s, timestamp, attempt LIMIT ?"
        )
        return self._found(due, 1, now_s, limit) + self._found(due, 0, now_s, limit)

    def unresolved(self) -> int:
        """Return the number of pending attempts."""
        sql = "SELECT count(*) FROM payments WHERE status = 'pending'"
        return int(self._db.one(sql)[0])

    def grants(self, payment_id: str, resource: str) -> bool:
        """Tell whether a settled record is for exactly this resource (5/stored-records).

        Any age will do (3/record-outlives-cache).
        """
        sql = (
            "SELECT 1 FROM payments WHERE payment_id = ? AND resource_url = ? "
            "AND status = 'settled'"
        )
        return self._db.one(sql, payment_id, resource) is not None

    def paid_by(self, tx_hash: str) -> str | None:
        """Return the id of the settled payment with this transaction, or None."""
        sql = "SELECT payment_id FROM payments WHERE tx_hash = ? AND status = 'settled'"
        return next((str(row[0]) for row in self._db.execute(sql, tx_hash)), None)

    # --- the moves of protocol.states.PAYMENT ------------------------------------------

    def insert_pending(self, new: Attempt) -> Attempt | None:
        """Record a new attempt as pending; None if the authorization or the 402 is claimed already.

        The block is null until the indexer finds the block (2.4/block-null).
        """
        done = self._db.execute(_INSERT, *_claimed(new))
        return replace(new, number=done.lastrowid) if done.rowcount else None

    def rival(self, payment_id: str, offered_id: str | None) -> Attempt | None:
        """Return a rival (`_RIVAL`), or None."""
        return next(iter(self._found(_RIVAL, payment_id, offered_id)), None)

    def resume(self, attempt: Attempt, offered_id: str | None) -> Attempt | None:
        """Record another sending of an attempt to the facilitator; None if the attempt has a rival.

        One statement looks for the rival and writes, because another service may claim the same 402
        at the same moment. `offered_id` is the payment id of the request's 402.
        """
        after = PaymentState(states.moves(PaymentEvent.PRESENTED)[attempt.state])
        if attempt.state is PaymentState.NOT_SUBMITTED:
            if not self._db.changed(_RESUME, attempt.payment_id, offered_id, attempt.number):
                return None
        elif attempt.state is PaymentState.IN_FLIGHT:
            self.mark_maybe_submitted(attempt.number)
        return replace(attempt, state=after)

    def confirm_unused(self, number: int) -> None:
        """Record the chain's report: the nonce of a claimed authorization is unused."""
        self._db.execute(
            "UPDATE payments SET nonce_confirmed_unused = 1 "
            "WHERE attempt = ? AND status = 'pending'",
            number,
        )

    def mark_maybe_submitted(self, number: int) -> None:
        """Record that the facilitator has an attempt, and may submit the authorization."""
        self._db.execute(_MAYBE_TAKEN, number)

    def mark_not_submitted(self, number: int) -> None:
        """Record that no facilitator has an attempt: the payment id is open for another header.

        Nothing changes if another service has sent the attempt meanwhile.
        """
        self._db.execute(_NOT_TAKEN, number)

    def drop_claim(self, number: int) -> None:
        """Delete an attempt with a header unable to pay.

        Nothing changes if another service has sent the attempt meanwhile.
        """
        self._db.execute(_DROP, number)

    def forget(self, number: int) -> None:
        """Delete a pending attempt, although the attempt may be paid: a naive policy does this."""
        self._db.execute(_FORGET, number)

    def mark_settled(self, number: int, tx_hash: str, session: NewSession | None) -> bool:
        """Store an attempt as settled (4.1/store-settled), together with the new `session`.

        A deposit with an older session keeps the session and the amount. False without a record, if
        another service on this store has settled the attempt, or if the payment belongs to another
        attempt (`_SETTLE`).
        """
        if session is None:
            return self._db.changed(_SETTLE, number, tx_hash)
        with self._db.transaction():
            is_news = self._db.changed(_SETTLE, number, tx_hash)
            if is_news:
                self._sessions.open(number, session)
        return is_news

    def mark_reorged(self, number: int) -> bool:
        """Make a settled payment pending again after the chain has undone the block.

        A pending payment grants nothing, nor does the payment's session. False for a payment
        without a block or not settled: another service may have been faster.
        """
        return self._db.changed(_UNDO, number)

    def fail(self, number: int, height: int, why: PaymentEvent = PaymentEvent.NEVER) -> bool:
        """Mark an attempt as failed: at this height, the chain excludes a payment.

        `why` is PAID_AGAIN for an attempt paid after another attempt had paid for the payment id.
        The session of a settled attempt ends. The authorization is kept, because a reorganisation
        may make the transfer after all. False for a failed attempt.
        """
        with self._db.transaction():
            failed = self._db.one(_FAIL[why], number, height)
            if failed is not None and self._settled(failed[0]) is None:
                self._sessions.cancel(failed[0])
        return failed is not None

    def is_paid_otherwise(self, attempt: Attempt) -> bool:
        """Tell whether another attempt has settled the same payment id."""
        settled = self._settled(attempt.payment_id)
        return settled is not None and settled != attempt.number

    def is_claimed(self, payer: Address, nonce: bytes) -> bool:
        """Tell whether any attempt claims an authorization, for any payment id."""
        sql = (
            "SELECT 1 FROM payments WHERE payer = ? AND nonce = ? "
            "AND status != 'failed' AND is_authorized"
        )
        return self._db.one(sql, payer, nonce) is not None

    def _settled(self, payment_id: str) -> int | None:
        sql = "SELECT attempt FROM payments WHERE payment_id = ? AND status = 'settled'"
        row = self._db.one(sql, payment_id)
        return int(row[0]) if row else None

    # --- for the indexer --------------------------------------------------------------

    def unindexed(self, limit: int) -> list[Attempt]:
        """Return settled payments without a block, newest first.

        At most `limit` payments (8/indexer-batch).
        """
        newest = (
            "block_number IS NULL AND status = 'settled' "
            "ORDER BY timestamp DESC, attempt DESC LIMIT ?"
        )
        return self._found(newest, limit)

    def shallow(self, limit: int) -> list[Attempt]:
        """Return settled payments in a block not deep enough yet, oldest first."""
        return self._found(
            "block_number IS NOT NULL AND status = 'settled' AND NOT is_deep "
            "ORDER BY timestamp, attempt LIMIT ?",
            limit,
        )

    def shallow_failures(self, limit: int) -> list[Attempt]:
        """Return failed attempts within reach of a reorganisation, oldest first."""
        oldest = "status = 'failed' AND NOT is_deep ORDER BY timestamp, attempt LIMIT ?"
        return self._found(oldest, limit)

    def set_deep(self, number: int) -> None:
        """Record that no reorganisation is expected to reach an attempt."""
        self._db.execute(_SET_DEEP, number)

    def backlog(self) -> int:
        """Return the number of settled records without a block."""
        sql = "SELECT count(*) FROM payments WHERE block_number IS NULL AND status = 'settled'"
        return int(self._db.one(sql)[0])

    def set_block(
        self, number: int, tx_hash: str, block_number: int, *, is_deep: bool = False
    ) -> None:
        """Complete a settled record with transaction and block (8/indexer-query).

        With `is_deep`, nobody looks at the payment again.
        """
        self._db.execute(_SET_BLOCK, number, tx_hash, block_number, is_deep)

    def update_reputation(self, reputation: Reputation) -> None:
        """Set the reputation of each resource from the payments in blocks (6/reputation).

        The cost does not grow with the number of payments.
        """
        matched = self._db.execute("SELECT * FROM matched WHERE payments > 0").fetchall()
        with self._db.transaction():
            self._db.execute("DELETE FROM reputation")
            for resource, payments, served in matched:
                value = reputation.of(Track(payments, served))
                self._db.execute("INSERT INTO reputation VALUES (?, ?)", resource, value)

    def reputations(self) -> dict[str, int]:
        """Return the reputation of every resource at the last update."""
        return {str(path): int(n) for path, n in self._db.execute("SELECT * FROM reputation")}

    def reputation(self, resource: str) -> int | None:
        """Return the reputation of a resource at the last update; None without an update."""
        row = self._db.one("SELECT payments FROM reputation WHERE resource_url = ?", resource)
        return int(row[0]) if row else None
