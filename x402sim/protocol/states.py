"""The states of payments and sessions, and the legal moves between them.

Each machine is a table of moves. The store makes no move that is not in it, and the documentation
draws its diagrams from it. Clauses: 2.4/record, 3/pending-resolved, 3/expiry-refund.
"""

from dataclasses import dataclass
from typing import Literal

SessionStatus = Literal["active", "expired", "refunded"]


@dataclass(frozen=True, slots=True)
class Move:
    """One legal move; `before` None is the beginning, `after` None is the deletion of the record.

    `cause` completes "when ...".
    """

    before: str | None
    after: str | None
    cause: str


PAYMENT: tuple[Move, ...] = (
    Move(None, "pending", "a payment header is presented for a payment id"),
    Move("pending", "settled", "the facilitator or the chain says that money has moved"),
    Move("pending", "failed", "the chain proves that the authorization can never pay"),
    Move("pending", None, "the header cannot pay (wrong signature, recipient or amount)"),
    Move("settled", "pending", "the chain has undone the transfer, and may still make it"),
    Move("settled", "failed", "the chain has undone the transfer, and can never make it"),
    Move("failed", "settled", "a reorganisation of the chain made the transfer after all"),
)
"""The moves of one attempt to pay a payment id. Only a settled one grants access."""

SESSION: tuple[Move, ...] = (
    Move(None, "active", "its deposit settles"),
    Move("active", "expired", "its time is over, or its deposit has failed"),
    Move("expired", "refunded", "its unspent balance is paid back"),
    Move("refunded", "expired", "the chain has undone the refund, which is then due again"),
    Move("expired", "active", "its failed deposit has settled after all"),
)
"""The moves of a session. Only an active one whose deposit is settled can pay."""


def before(machine: tuple[Move, ...], after: str) -> tuple[str | None, ...]:
    """Return the states from which a state is reached."""
    return tuple(move.before for move in machine if move.after == after)


def mermaid(machine: tuple[Move, ...]) -> str:
    """Return the state diagram of a machine, as Mermaid text."""
    lines = (
        f"    {move.before or '[*]'} --> {move.after or '[*]'}: {move.cause}" for move in machine
    )
    return "\n".join(("stateDiagram-v2", *lines))
