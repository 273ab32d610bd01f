"""What the payers remember: every payment header they signed, and what was answered to it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tests.money import Transfer

Resource = Literal["quote", "deposit"]


@dataclass(slots=True)
class Attempt:
    """One payment header for one payment id; amounts are base units, addresses lower-case."""

    payer: str
    pay_to: str
    amount: int
    nonce: str
    payment_id: str
    resource: Resource
    body: dict[str, Any]
    """The body of POST /api/pay."""
    session_body: dict[str, Any] = field(default_factory=dict)
    """The body of POST /api/sessions/create, of a deposit."""
    receipt: str | None = None
    """The transaction hash of the first receipt that was answered."""
    is_final: bool = False
    """Whether a refusal said that this header was not charged and never will be."""
    sent: int = 0
    spent: int = 0
    """Requests that the session of this deposit was served."""
    unanswered: int = 0
    """Requests with that session whose answer was lost."""
    released: int = 0
    """The most that the service ever said to have released, in base units."""
    is_active: bool = True
    """Whether the session may still pay, as far as the payer knows."""

    # what the newest audit has seen
    charges: list[Transfer] = field(default_factory=list)
    """The transfers on the ledger that used this authorization."""
    has_access: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    """The answer of GET /api/payments/{id}; empty if there is no record."""
    is_good: bool = False
    """Whether the header, sent again, was answered with a receipt or may be sent once more."""
    view: dict[str, Any] = field(default_factory=dict)
    """The session of a paid deposit, as the service shows it."""
    refund: list[Transfer] = field(default_factory=list)
    """The transfers of the transaction that the session names as its refund."""

    @property
    def is_open(self) -> bool:
        """Whether the payer may still send this header."""
        return self.receipt is None and not self.is_final

    @property
    def is_left_alone(self) -> bool:
        """Whether its payer never sends it twice: the service must find out by itself."""
        return self.sent > 0 and int(self.nonce, 16) % 2 == 0


@dataclass(slots=True)
class Memory:
    """What the payer of one account remembers."""

    attempts: list[Attempt] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Answers that break a rule by themselves."""
    resends: int = 0
    replays: int = 0
