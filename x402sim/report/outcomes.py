"""What became of each payment id, and of each session's budget, as far as the journal says?

The service's own events decide. Where they are missing (a service behind a URL), the
answers that the payers got stand in for them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from x402sim.journal import Event
from x402sim.protocol.refusals import Refusal
from x402sim.report.reading import PAY, SERVICE, Reading, crosses_a_wire, is_, words

STATUSES = ("settled", "pending", "failed", "refused", "unpaid")
CHANGES = ("opened", "debited", "expired", "refunded", "failed")
_STILL_OPEN = tuple(
    refusal.value for refusal in (Refusal.PENDING, Refusal.UNREACHABLE, Refusal.FAILED)
)
_MAY_STILL = "may still"
"""The service says so in every refusal that does not end a payment."""


@dataclass(slots=True)
class Payment:
    """What became of one payment id; `unresolved` counts its attempts whose end is not known."""

    payment_id: str
    payer: str | None = None
    resource: str | None = None
    amount_base: int | None = None
    asked_ms: int | None = None
    settled_ms: int | None = None
    indexed_ms: int | None = None
    tx: str | None = None
    over: str = "unpaid"
    unresolved: int = 0

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        return "pending" if self.unresolved and not self.is_final else self.over

    @property
    def is_final(self) -> bool:
        """Whether no attempt changes it any more: it was paid, or its transaction reverted."""
        return self.over == "settled" or (self.over == "failed" and self.tx is not None)

    def refuse(self, text: str) -> None:
        """One attempt was refused, with this text."""
        if self.is_final or _MAY_STILL in text:
            return
        if text.startswith(Refusal.MISMATCH.value):  # what was tried before is untouched
            self.unresolved = max(0, self.unresolved - 1)
            self.over = "refused" if self.over == "unpaid" else self.over
        else:
            self.unresolved, self.over = 0, "refused"


@dataclass(frozen=True, slots=True)
class Inclusion:
    """How a transaction stands in the chain: in which block, with which gas."""

    block: int
    gas: int


class Payments:
    """Follows every payment id through a journal's events."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._asked: dict[int, Event] = {}
        self.found: dict[str, Payment] = {}
        self.included: dict[str, Inclusion] = {}
        """The transactions that stand in the chain at the end."""
        self._is_seen = any(
            is_(event, SERVICE, "payment settled") or is_(event, SERVICE, "payment refused")
            for event in reading.events
        )
        for event in reading.events:
            if event.actor == SERVICE:
                if event.event in _HEAR:
                    _HEAR[event.event](self, event)
            elif event.actor == "chain":
                self._on_chain(event)
            elif crosses_a_wire(event) and event.data["to"] == SERVICE:
                self._by_payer(event)

    def _of(self, payment_id: str) -> Payment:
        return self.found.setdefault(payment_id, Payment(payment_id))

    # --- what a payer sees -----------------------------------------------------------

    def _by_payer(self, event: Event) -> None:
        number = event.data["exchange"]
        if event.event == "request":
            self._asked[number] = event
            self._request(event)
        elif number in self._asked:
            self._answer(self._asked.pop(number), event)

    def _request(self, event: Event) -> None:
        payment_id = words(event.data.get("payment_id"))
        if payment_id is None or not event.data["path"].endswith(PAY):
            return
        payment = self._of(payment_id)
        payment.unresolved += 1
        if payment.settled_ms is None:
            payment.payer = event.actor

    def _answer(self, request: Event, answer: Event) -> None:
        payment_id, status = words(answer.data.get("payment_id")), answer.data.get("status")
        error = words(answer.data.get("error"))
        if payment_id is not None and status == 402 and error == "Payment Required":
            self._asked_for(self._of(payment_id), request, answer)
        elif request.data["path"].endswith(PAY) and not self._is_seen:
            self._told(request, answer)

    def _asked_for(self, payment: Payment, request: Event, answer: Event) -> None:
        if payment.asked_ms is None:
            payment.asked_ms = answer.at_ms
            payment.payer = payment.payer or answer.actor
            payment.resource = payment.resource or request.data["path"]

    def _told(self, request: Event, answer: Event) -> None:
        """Believe what the payer was told, for want of the service's own word."""
        payment_id, error = words(request.data.get("payment_id")), words(answer.data.get("error"))
        if payment_id is None or answer.event != "answer":
            return
        payment = self._of(payment_id)
        if answer.data["status"] == 200:
            payment.over, payment.settled_ms = "settled", answer.at_ms
            payment.tx = words(answer.data.get("tx_hash"))
        elif error is not None and error not in _STILL_OPEN:
            payment.refuse(error)

    # --- what the service says -------------------------------------------------------

    def _settled(self, event: Event) -> None:
        payment = self._of(event.data["payment_id"])
        payment.over, payment.settled_ms = "settled", event.at_ms
        payment.tx, payment.resource = event.data["tx_hash"], event.data["resource"]
        payment.amount_base = int(event.data["amount_base"])
        payment.payer = self._reading.name(event.data["payer"])

    def _refused(self, event: Event) -> None:
        self._of(event.data["payment_id"]).refuse(event.data["reason"])

    def _failed(self, event: Event) -> None:
        payment = self._of(event.data["payment_id"])
        payment.unresolved, payment.over = 0, "failed"

    def _indexed(self, event: Event) -> None:
        self._of(event.data["payment_id"]).indexed_ms = event.at_ms

    # --- what the chain did ----------------------------------------------------------

    def _on_chain(self, event: Event) -> None:
        data = event.data
        if event.event == "mined":
            self.included[data["tx"]] = Inclusion(data["block"], data["gas"])
        elif event.event == "undone":
            self.included.pop(data["tx"], None)


_HEAR: dict[str, Callable[[Payments, Event], None]] = {
    "payment settled": Payments._settled,
    "payment refused": Payments._refused,
    "payment failed": Payments._failed,
    "payment indexed": Payments._indexed,
}


@dataclass(slots=True)
class Session:
    """A session's budget: deposited, released by requests and paid back, in base units."""

    session_id: str
    payment_id: str
    payer: str
    expires_ms: int
    deposited: int
    released: int = 0
    refunded: int = 0
    last: str = "opened"

    @property
    def remaining(self) -> int:
        """What is left of the budget; nothing if its deposit failed."""
        return 0 if self.last == "failed" else self.deposited - self.released - self.refunded


class Sessions:
    """Follows every session through a journal's events."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: dict[str, Session] = {}
        self._due: list[tuple[int, int, Session]] = []

    def changes(self) -> Iterator[tuple[Event, Session]]:
        """Yield each event that changes a session, and the session after it.

        What changed is `session.last`, one of `CHANGES`.
        """
        for event in self._reading.events:
            follow = _FOLLOW.get(event.event) if event.actor == SERVICE else None
            for session in follow(self, event.data) if follow else ():
                yield event, session

    def _opened(self, data: dict[str, Any]) -> Iterator[Session]:
        payer = self._reading.name(data["payer"])
        session = Session(
            data["session_id"], data["payment_id"], payer, data["expires_ms"],
            data["deposited_base"],
        )  # fmt: skip
        self._known[session.session_id] = session
        heappush(self._due, (session.expires_ms, len(self._known), session))
        yield session

    def _debited(self, data: dict[str, Any]) -> Iterator[Session]:
        for session in self._of(data):
            session.released, session.last = data["released_base"], "debited"
            yield session

    def _refunded(self, data: dict[str, Any]) -> Iterator[Session]:
        for session in self._of(data):
            session.refunded, session.last = int(data["amount_base"]), "refunded"
            yield session

    def _of(self, data: dict[str, Any]) -> list[Session]:
        """Return the session an event is about; none if it began before the journal."""
        session = self._known.get(data["session_id"])
        return [session] if session else []

    def _expired(self, data: dict[str, Any]) -> Iterator[Session]:
        """Expire as many as the event says: those that were due first."""
        left = data["count"]
        while left and self._due:
            session = heappop(self._due)[2]
            if session.last != "failed":
                session.last = "expired"
                left -= 1
                yield session

    def _failed(self, data: dict[str, Any]) -> Iterator[Session]:
        """End the session whose deposit turns out to have failed."""
        for session in self._known.values():
            if session.payment_id == data["payment_id"]:
                session.last = "failed"
                yield session


_FOLLOW: dict[str, Callable[[Sessions, dict[str, Any]], Iterator[Session]]] = {
    "session opened": Sessions._opened,
    "session debited": Sessions._debited,
    "session refunded": Sessions._refunded,
    "sessions expired": Sessions._expired,
    "payment failed": Sessions._failed,
}
