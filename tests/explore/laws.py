"""The laws that must hold at the end of every run."""

from dataclasses import dataclass
from enum import Enum

from x402sim.text.printable import printable_lines


class Law(Enum):
    """The invariants of a finished run; the value is one sentence."""

    PAID_IS_SERVED = "money that moved for an order gives access, or was refunded"
    FINAL_IS_FINAL = "a header that was refused for good is not charged afterwards"
    CHARGED_ONCE = "a service charges once for one order, whatever is presented for it"
    SERVED_ONCE = "a payment in one step is served once, and what its payer names stays open to it"
    ONE_NAME = "of two payments with one name, a service settles one"
    UNSOLD = "a method that an endpoint does not sell gets nothing"
    SERVED_AFTER_PAID = "nothing is served before the money for it has moved"
    SERVED_IS_PAID = "access is granted only while the money for it stands on the chain"
    ONLY_WHAT_WAS_BOUGHT = "a payment gives access to the resource that it was for, to no other"
    RECORD_NAMES_IT = "records and receipts name the transaction that paid"
    ONE_TRANSFER_PAYS_ONCE = "one transfer pays for one payment id, at one deployment"
    RECEIPT_STAYS = "who has a receipt has access whenever it asks, while its money stands"
    SESSION_IS_DEPOSIT = "a session has exactly the budget that was deposited"
    SESSION_SERVES = "a session that has budget and time is served"
    DEBITS_ARE_SERVED = "a session has released exactly the price of what it was served"
    REFUND_IS_THE_REST = "each session's payer got back, once, exactly what was not served"
    RESOLVED = "no payment is pending after its authorization has expired"
    ANSWERED = "every request is answered"
    NO_SERVER_ERROR = "a service answers no 5xx but the 502 and 503 that are documented"
    NO_EXCEPTION = "no task raises"
    TIME_PASSES = "time passes, and nothing waits for ever"


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that a run broke, and how."""

    law: Law
    how: str

    def __str__(self) -> str:
        return printable_lines(f"{self.law.value}: {self.how}")
