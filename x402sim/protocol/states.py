"""The states of payments and sessions, the events, and the service's actions.

Each machine is a table, with a row for each state and event. Without a row, nothing changes. The
store takes the expected and the written state of each update from the rows of `PAYMENT`.
The guide prints both tables. Clauses: 2.4/record, 3/pending-resolved, 3/expiry-refund.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

SessionState = Literal["active", "expired", "refunding", "refunded"]


class PaymentState(StrEnum):
    """The stored state of an attempt to pay a payment id.

    Payers see a `status`: all states but the last two are "pending".
    """

    NEW = "new"
    """Without a record."""
    NOT_SUBMITTED = "not submitted"
    """Claimed, and no facilitator has it: another header may be presented for the payment id."""
    IN_FLIGHT = "in flight"
    """Claimed, and being sent for the first time. If the process dies, nobody knows the outcome,
    and the state stays: the next request assumes `MAYBE_SUBMITTED`."""
    MAYBE_SUBMITTED = "maybe submitted"
    """Claimed, and a facilitator got the authorization: perhaps paid, until the chain says no."""
    SETTLED = "settled"
    """Paid: the only state with access."""
    FAILED = "failed"
    """Without access: never to be paid, unless a reorganisation of the chain makes the transfer
    after all; or paid although another attempt had paid for the payment id."""


class PaymentEvent(StrEnum):
    """What can happen to an attempt; the value completes "when ..."."""

    PRESENTED = "a request presents its payment header"
    RIVAL = "a request presents another header for its payment id"
    NOT_TAKEN = "the facilitator was not called, or has refused without taking it"
    MAYBE_TAKEN = "the facilitator may submit it, as its answer is lost or does not deny it"
    PAID = "the facilitator or the chain reports that its money has moved"
    PAID_AGAIN = "its money has moved, and another attempt has paid for its payment id"
    NOT_YET = "the chain reports that its nonce is unused, and still valid"
    UNDONE = "its transfer was in a block, and the chain reports that its nonce is unused"
    NEVER = "the chain proves that it can never pay (too late, cancelled, or used otherwise)"
    SILENT = "the chain's node does not answer"
    IN_BLOCK = "the block of its transfer is found"
    DEEP = "so many blocks are on top that no reorganisation is expected"
    DROPPED = "the facilitator refuses it, and its header cannot pay"
    FORGOTTEN = "the policy forgets it"
    RESTARTED = "the process of the service ends, and starts again"


@dataclass(frozen=True, slots=True)
class Move:
    """One row: in the state `before`, `event` leads to `after`; the service `does` something."""

    before: str
    event: str
    after: str
    does: str


_NEW, _NOT, _FLIGHT, _MAYBE, _SETTLED, _FAILED = PaymentState
_E = PaymentEvent

PAYMENT: tuple[Move, ...] = (
    Move(_NEW, _E.PRESENTED, _FLIGHT, "claims its nonce and the payment id; verifies, settles"),
    Move(_NOT, _E.PRESENTED, _FLIGHT, "sends it, if no other header may pay for the same 402"),
    Move(_NOT, _E.RIVAL, _NOT, "admits the other, which may pay first"),
    Move(_NOT, _E.MAYBE_TAKEN, _MAYBE, "answers that it may still be paid"),
    Move(_NOT, _E.PAID, _SETTLED, "grants access: somebody else has submitted it"),
    Move(_NOT, _E.PAID_AGAIN, _FAILED, "records that it was paid again, for nothing"),
    Move(_NOT, _E.NOT_YET, _NOT, "notes that its nonce is unused: a later use is its own"),
    Move(_NOT, _E.SILENT, _NOT, "asks again, less and less often"),
    Move(_NOT, _E.NEVER, _FAILED, "keeps the record; another attempt may claim its nonce"),
    Move(_NOT, _E.DROPPED, _NEW, "deletes the record"),
    Move(_NOT, _E.FORGOTTEN, _NEW, "deletes the record"),
    Move(_NOT, _E.RESTARTED, _NOT, "asks the chain at once, and then less and less often"),
    Move(_FLIGHT, _E.PRESENTED, _MAYBE, "asks the chain, and sends it again: its process died"),
    Move(_FLIGHT, _E.RIVAL, _FLIGHT, "refuses the other, as this one may still settle"),
    Move(_FLIGHT, _E.NOT_TAKEN, _NOT, "answers that nothing was charged; another may be signed"),
    Move(_FLIGHT, _E.MAYBE_TAKEN, _MAYBE, "answers that it may still be paid"),
    Move(_FLIGHT, _E.PAID, _SETTLED, "grants access, and opens the session of a deposit"),
    Move(_FLIGHT, _E.PAID_AGAIN, _FAILED, "records that it was paid again, for nothing"),
    Move(_FLIGHT, _E.NOT_YET, _FLIGHT, "notes that its nonce is unused: a later use is its own"),
    Move(_FLIGHT, _E.SILENT, _FLIGHT, "asks again, less and less often"),
    Move(_FLIGHT, _E.NEVER, _FAILED, "keeps the record; another attempt may claim its nonce"),
    Move(_FLIGHT, _E.DROPPED, _NEW, "deletes the record"),
    Move(_FLIGHT, _E.FORGOTTEN, _NEW, "deletes the record: only a naive policy does this"),
    Move(_FLIGHT, _E.RESTARTED, _FLIGHT, "asks the chain at once, and then less and less often"),
    Move(_MAYBE, _E.PRESENTED, _MAYBE, "asks the chain, and sends it again"),
    Move(_MAYBE, _E.RIVAL, _MAYBE, "refuses the other, as this one may still settle"),
    Move(_MAYBE, _E.PAID, _SETTLED, "grants access, and opens the session of a deposit"),
    Move(_MAYBE, _E.PAID_AGAIN, _FAILED, "records that it was paid again, for nothing"),
    Move(_MAYBE, _E.NOT_YET, _MAYBE, "notes that its nonce is unused: a later use is its own"),
    Move(_MAYBE, _E.SILENT, _MAYBE, "asks again, less and less often"),
    Move(_MAYBE, _E.NEVER, _FAILED, "keeps the record; another attempt may claim its nonce"),
    Move(_MAYBE, _E.FORGOTTEN, _NEW, "deletes the record: only a naive policy does this"),
    Move(_MAYBE, _E.RESTARTED, _MAYBE, "asks the chain at once, and then less and less often"),
    Move(_SETTLED, _E.PRESENTED, _SETTLED, "refuses it: already settled"),
    Move(_SETTLED, _E.RIVAL, _SETTLED, "refuses the other: already settled"),
    Move(_SETTLED, _E.PAID, _SETTLED, "stores the block, and a transaction that has replaced it"),
    Move(_SETTLED, _E.NOT_YET, _SETTLED, "waits: its transaction may still come into a block"),
    Move(_SETTLED, _E.UNDONE, _MAYBE, "ends the access: a reorganisation has undone the transfer"),
    Move(_SETTLED, _E.NEVER, _FAILED, "ends the access and the session: undone, and now too late"),
    Move(_SETTLED, _E.IN_BLOCK, _SETTLED, "stores the block"),
    Move(_SETTLED, _E.DEEP, _SETTLED, "looks at it no more"),
    Move(_FAILED, _E.PRESENTED, _FAILED, "asks the chain, and admits it as a new attempt or not"),
    Move(_FAILED, _E.RIVAL, _FAILED, "admits the other"),
    Move(_FAILED, _E.PAID, _SETTLED, "grants access: a reorganisation has made the transfer"),
    Move(_FAILED, _E.DEEP, _FAILED, "looks at it no more"),
)
"""The moves of one attempt to pay a payment id: at most one attempt for an id is settled."""

SESSION: tuple[Move, ...] = (
    Move("new", "its deposit settles", "active", "adds the deposit to its budget"),
    Move("active", "its time is over", "expired", "records what is unspent as a due refund"),
    Move("active", "its deposit has failed", "expired", "ends it: nothing is owed"),
    Move("active", "a debit without an answer is undone", "active", "adds it to the budget"),
    Move("expired", "a debit without an answer is undone", "expired", "adds it to what is due"),
    Move("expired", "its refund is about to be sent", "refunding", "fixes its amount for ever"),
    Move("expired", "the failed deposit that ended it settles", "active", "keeps its budget"),
    Move("refunding", "a debit without an answer is undone", "expired", "owes another refund"),
    Move("refunding", "its unspent balance is paid back", "refunded", "stores the transaction"),
    Move("refunded", "a debit without an answer is undone", "expired", "owes another refund"),
    Move("refunded", "the chain has undone the refund", "refunding", "pays it back again"),
)
"""The moves of a session. Only an active session with a settled deposit can pay.

A refund, once perhaps sent, is never sent with another amount: the chain may have the first
transfer already, would settle the first, and the difference would be lost. The session's holder
sees "refunding" as "expired".
"""


def moves(event: PaymentEvent) -> dict[str, str]:
    """Return the states after an event, by the states before."""
    return {move.before: move.after for move in PAYMENT if move.event == event}
