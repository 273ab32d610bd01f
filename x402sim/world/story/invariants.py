"""What must hold after every event of every run, whatever the story.

Money is conserved; no session spends more than its deposit; access is granted only for
money that moved; a payment id is paid at most once. Each is read from the chain and
the database, never from what was answered.
"""

from collections.abc import Callable, Iterator

from x402sim.journal import Event
from x402sim.world.assembly.parts import Parts

CONSERVED = "invariant/value-conserved"
WITHIN_DEPOSIT = "invariant/released-within-deposit"
GRANTED_IF_PAID = "invariant/granted-only-if-transferred"
PAID_ONCE = "invariant/one-transfer-per-payment"


class Invariants:
    """Watches a world's journal; `broken` is told what does not hold, once for each case."""

    def __init__(self, parts: Parts, broken: Callable[[str, str, str], None]) -> None:
        self._parts, self._broken = parts, broken
        self._supply = parts.watch.supply_base
        self._moved: dict[str, list[tuple[str, str, int]]] = {}
        """What each transaction has moved, as the chain says: from, to, base units."""
        self._minted: dict[str, int] = {}
        self._is_settled = True
        self._presented: dict[str, set[str]] = {}
        self._paid: dict[str, set[str]] = {}
        self._told: set[tuple[str, str]] = set()
        self.checked = 0

    def __call__(self, event: Event) -> None:
        """Look at one event and at what it may have changed."""
        self.checked += 1
        if event.actor == "chain":  # between its own events a block is only half told
            self._is_settled = False
        else:
            for clause, expected, actual in self._conserved():
                self._tell(clause, expected, actual)
        for clause, expected, actual in self._look(event):
            self._tell(clause, expected, actual)

    def _tell(self, clause: str, expected: str, actual: str) -> None:
        if (clause, actual) not in self._told:
            self._told.add((clause, actual))
            self._broken(clause, expected, actual)

    def _look(self, event: Event) -> Iterator[tuple[str, str, str]]:
        match event.actor, event.event:
            case "chain", "transfer" | "undone":
                self._count(event)
            case "chain", "authorization":
                yield from self._paid_once(event)
            case "service", "session debited" | "session opened" | "session refunded":
                yield from self._within_deposit(str(event.data["session_id"]))
            case "service", "payment settled":
                yield from self._granted_if_paid(event)
            case _, "request" if "authorization" in event.data and "payment_id" in event.data:
                ids = self._presented.setdefault(event.data["authorization"], set())
                ids.add(event.data["payment_id"])

    def _count(self, event: Event) -> None:
        """Remember what each transaction has moved and minted."""
        tx = event.data["tx"]
        if event.event == "undone":
            self._minted.pop(tx, None)
            self._moved.pop(tx, None)
            return
        sender, to = event.data["sender"].lower(), event.data["to"].lower()
        amount_base = int(event.data["amount_base"])
        self._moved.setdefault(tx, []).append((sender, to, amount_base))
        if int(sender, 16) == 0:
            self._minted[tx] = self._minted.get(tx, 0) + amount_base

    def _conserved(self) -> Iterator[tuple[str, str, str]]:
        """What all accounts hold is what was minted."""
        if self._is_settled:
            return
        self._is_settled = True
        minted = self._supply + sum(self._minted.values())
        held = self._parts.watch.supply_base
        if held != minted:
            yield CONSERVED, f"{minted} base units", f"{held} base units"

    def _within_deposit(self, session_id: str) -> Iterator[tuple[str, str, str]]:
        """What a session has released and what was paid back is not more than its deposit."""
        session = self._parts.service.store.sessions.get(session_id)
        if session is None:
            return
        refunded = session.remaining if session.refund_status == "settled" else 0
        out = session.released + refunded
        if not 0 <= session.released <= out <= session.deposited:
            yield WITHIN_DEPOSIT, f"at most {session.deposited}", f"{out} of {session_id}"

    def _granted_if_paid(self, event: Event) -> Iterator[tuple[str, str, str]]:
        """The transaction that a grant names moved exactly this amount from this payer."""
        stored = self._parts.service.store.payments.get(event.data["payment_id"])
        if stored is None:
            return
        moved, record = self._moved.get(event.data["tx_hash"].lower(), []), stored.record
        wanted = record.from_address.lower(), record.to_address.lower(), int(record.amount)
        if wanted not in moved:
            yield GRANTED_IF_PAID, f"a transfer of {wanted}", f"{moved} for {record.payment_id}"

    def _paid_once(self, event: Event) -> Iterator[tuple[str, str, str]]:
        """Of the authorizations presented for one payment id only, at most one was settled."""
        authorization = str(event.data["authorization"])
        ids = self._presented.get(authorization, set())
        if event.data["use"] != "used" or len(ids) != 1:
            return
        (payment_id,) = ids
        paid = self._paid.setdefault(payment_id, set())
        paid.add(authorization)
        if len(paid) > 1:
            yield PAID_ONCE, "at most 1 transfer", f"{len(paid)} transfers for {payment_id}"
