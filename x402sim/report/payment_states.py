"""The state of each payment id, and of each session's budget, at the end of a journal.

The service's own events say it. Where a journal has none (a service behind a URL), the
answers that the payers received are used instead.
"""

from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np

from x402sim import events
from x402sim.protocol.refusals import Refusal, RequestError, is_final
from x402sim.report.columns import Table, in_rounds, in_turn, tables
from x402sim.report.exchanges import payers_exchanges
from x402sim.report.reading import Reading

STATUSES = ("settled", "pending", "failed", "refused", "unpaid")
_UNPAID, _SETTLED, _FAILED, _REFUSED = map(
    STATUSES.index, ("unpaid", "settled", "failed", "refused")
)
CHANGES = ("opened", "debited", "expired", "refunded", "failed")


@dataclass(slots=True)
class SessionState:
    """A session's budget: deposited, released by requests and paid back, in base units."""

    at_ms: int
    session_id: str
    payment_id: str
    payer: str
    expires_ms: int
    deposited_base: int
    released_base: int = 0
    refunded_base: int = 0
    last: str = "opened"
    """The last change, and `at_ms` its moment."""
    tx: str | None = None
    """The transaction of the last change: of the deposit if it opened, of the refund, or None."""

    @property
    def remaining_base(self) -> int:
        """What is left of the budget; nothing if its deposit failed."""
        left_base = self.deposited_base - self.released_base - self.refunded_base
        return 0 if self.last == "failed" else left_base


class Payments:
    """What became of each payment id, by the number of its text; `ids` are those that appear.

    Each column is an array; None, -1, or 0 for a text, is missing. `_unresolved` counts the
    attempts whose end is not known, and `_over` is a place in `STATUSES`.
    """

    def __init__(self, reading: Reading) -> None:
        every = payers_exchanges(reading.journal)
        sent, ended, payers = every.sent, every.ended, every.sent.mapped("actor", str)
        is_asked = every.to_service & every.by_payers
        offered = is_asked & every.asks
        tried = is_asked & every.pays & (sent["payment_id"] != 0)
        settled, refused, failed, undone, replaced, indexed = tables(
            reading.journal, events.PaymentSettled, events.PaymentRefused, events.PaymentFailed,
            events.PaymentUndone, events.TransactionReplaced, events.PaymentIndexed,
        )  # fmt: skip
        has_events = bool(len(settled["seq"]) or len(refused["seq"]))
        is_paid, is_over, leaves_earlier = _answers(ended, has_events=has_events)
        paid, over = tried & is_paid, tried & is_over
        size = len(sent.texts.all)
        self.payer, self.amount_base = np.full((2, size), None)
        self.resource, self.tx, self._unresolved = np.zeros((3, size), "int64")
        self.asked_ms, self.settled_ms, self.indexed_ms = np.full((3, size), -1)
        self._over = np.full(size, _UNPAID)
        self.ids = in_rounds(
            ended.where(offered).rounds(
                self._offered, payer=payers[offered], resource=sent["path"][offered]
            ),
            sent.where(tried).rounds(self._tried, payer=payers[tried]),
            ended.where(paid).rounds(self._paid, of=sent["payment_id"][paid]),
            ended.where(over).rounds(
                self._refuse,
                of=sent["payment_id"][over],
                final=is_over[over],
                leaves_earlier=leaves_earlier[over],
            ),
            settled.rounds(self._settled, payer=settled.mapped("payer", reading.name)),
            refused.rounds(self._refuse),
            failed.rounds(self._failed),
            undone.rounds(self._undone),
            replaced.rounds(self._replaced),
            indexed.rounds(self._indexed),
        )

    @property
    def status(self) -> Any:
        """The place of each state in `STATUSES`."""
        is_pending = (self._unresolved > 0) & ~self._is_final(slice(None))
        return np.where(is_pending, STATUSES.index("pending"), self._over)

    def _is_final(self, of: Any) -> Any:
        """Tell whether no attempt changes it any more: it was paid, or its transaction reverted."""
        over = self._over[of]
        return (over == _SETTLED) | ((over == _FAILED) & (self.tx[of] != 0))

    # --- what a payer sees -----------------------------------------------------------

    def _offered(self, of: Any, at_ms: Any, payer: Any, resource: Any) -> None:
        is_first = self.asked_ms[of] < 0
        self.asked_ms[of] = np.where(is_first, at_ms, self.asked_ms[of])
        is_new = is_first & (self.payer[of] == None)  # noqa: E711 - an array
        self.payer[of] = np.where(is_new, payer, self.payer[of])
        is_new = is_first & (self.resource[of] == 0)
        self.resource[of] = np.where(is_new, resource, self.resource[of])

    def _tried(self, of: Any, payer: Any) -> None:
        self._unresolved[of] += 1
        self.payer[of] = np.where(self.settled_ms[of] < 0, payer, self.payer[of])

    def _paid(self, of: Any, at_ms: Any, tx_hash: Any) -> None:
        self._over[of], self.settled_ms[of], self.tx[of] = _SETTLED, at_ms, tx_hash

    # --- what the service says -------------------------------------------------------

    def _settled(
        self, of: Any, at_ms: Any, tx_hash: Any, resource: Any, amount_base: Any, payer: Any
    ) -> None:
        self._paid(of, at_ms, tx_hash)
        self.resource[of], self.amount_base[of], self.payer[of] = resource, amount_base, payer

    def _refuse(self, of: Any, final: Any, leaves_earlier: Any) -> None:
        """One attempt was refused; see `events.PaymentRefused` for the two facts."""
        counts = final.astype("bool") & ~self._is_final(of)
        of, leaves = of[counts], leaves_earlier[counts].astype("bool")
        over, left = self._over[of], np.maximum(self._unresolved[of] - 1, 0)
        self._unresolved[of] = np.where(leaves, left, 0)
        self._over[of] = np.where(leaves & (over != _UNPAID), over, _REFUSED)

    def _failed(self, of: Any) -> None:
        self._unresolved[of], self._over[of] = 0, _FAILED

    def _undone(self, of: Any) -> None:
        self._unresolved[of], self._over[of] = 1, _UNPAID

    def _replaced(self, of: Any, tx_hash: Any) -> None:
        self.tx[of] = tx_hash

    def _indexed(self, of: Any, at_ms: Any) -> None:
        self.indexed_ms[of] = at_ms


def _answers(ended: Table, *, has_events: bool) -> tuple[Any, Any, Any]:
    """Return which answers say that a payment is paid, or refused for good, and whether a refusal
    leaves earlier attempts as they are. With events of the services, these count."""
    status, stated = ended["status"], ended["final"]
    # a service refuses these before it looks at the payment
    is_unread = ended.those("error", lambda error: bool(RequestError.named(error or "")))
    is_unread &= status < 500
    is_paid = ~is_unread & (status == 200) & ~np.bool_(has_events)
    by_text = ended.those("error", lambda error: error is not None and is_final(error))
    final = np.where(stated == None, by_text, stated).astype("bool")  # noqa: E711 - an array
    is_refused = (ended["error"] != 0) & final & ~is_paid & ~np.bool_(has_events)

    def leaves_earlier(error: str | None) -> bool:
        refusal = Refusal.named(error or "")
        return refusal is not None and refusal.row.leaves_earlier

    return is_paid, is_unread | is_refused, is_unread | ended.those("error", leaves_earlier)


class SessionStates:
    """Follows every session's budget; `changes` has it after each change."""

    def __init__(self, reading: Reading) -> None:
        self.changes: list[SessionState] = []
        self._name = reading.name
        self._found: dict[str, SessionState] = {}
        self._by_deposit: dict[str, SessionState] = {}
        self._txs: dict[str, str] = {}
        """The transaction of each payment so far."""
        self._due: dict[str, list[tuple[int, int, SessionState]]] = {}
        """By service: the sessions that can expire, the first to be due first."""
        opened, debited, credited, refunded, undone, expired, settled, replaced, failed = tables(
            reading.journal, events.SessionOpened, events.SessionDebited, events.DebitUndone,
            events.SessionRefunded, events.RefundUndone, events.SessionsExpired,
            events.PaymentSettled, events.TransactionReplaced, events.PaymentFailed,
        )  # fmt: skip
        if not len(opened["seq"]):
            return
        in_turn(
            settled.calls(self._paid),
            replaced.calls(self._paid),
            failed.calls(self._failed),
            opened.calls(self._opened),
            debited.calls(self._debited),
            credited.calls(self._credited),
            refunded.calls(self._refunded),
            undone.calls(self._unrefunded),
            expired.calls(self._expired),
        )

    def _change(self, at_ms: int, session: SessionState, to: str, tx: str | None = None) -> None:
        """Note a session after a change, which a transaction may have made."""
        session.at_ms, session.last, session.tx = at_ms, to, tx
        self.changes.append(copy(session))

    def _paid(self, payment_id: str, tx_hash: str) -> None:
        self._txs[payment_id] = tx_hash

    def _failed(self, at_ms: int, payment_id: str) -> None:
        if session := self._by_deposit.get(payment_id):
            self._change(at_ms, session, "failed")

    def _opened(
        self, at_ms: int, session_id: str, payment_id: str, payer: str, expires_ms: int,
        deposited_base: int, actor: str,
    ) -> None:  # fmt: skip
        session = SessionState(
            at_ms=at_ms,
            session_id=session_id,
            payment_id=payment_id,
            payer=self._name(payer),
            expires_ms=expires_ms,
            deposited_base=deposited_base,
        )
        self._found[session_id] = self._by_deposit[payment_id] = session
        heappush(self._due.setdefault(actor, []), (expires_ms, len(self._found), session))
        self._change(at_ms, session, "opened", self._txs.get(payment_id))

    def _debited(
        self, at_ms: int, session_id: str, released_base: int, to: str = "debited"
    ) -> None:
        if session := self._found.get(session_id):
            session.released_base = released_base
            self._change(at_ms, session, to)

    def _credited(self, at_ms: int, session_id: str, released_base: int) -> None:
        self._debited(at_ms, session_id, released_base, "debit undone")

    def _refunded(self, at_ms: int, session_id: str, tx_hash: str, amount_base: int) -> None:
        if session := self._found.get(session_id):
            session.refunded_base = amount_base
            self._change(at_ms, session, "refunded", tx_hash)

    def _unrefunded(self, at_ms: int, session_id: str) -> None:
        """The chain has undone the refund."""
        if session := self._found.get(session_id):
            session.refunded_base = 0
            self._change(at_ms, session, "expired")

    def _expired(self, at_ms: int, actor: str, count: int) -> None:
        """Expire so many sessions of a service: those that were due first."""
        due = self._due.get(actor, [])
        while count and due:
            session = heappop(due)[2]
            if session.last != "failed":
                count -= 1
                self._change(at_ms, session, "expired")
