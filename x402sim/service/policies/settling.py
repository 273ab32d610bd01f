"""The policies of a settlement: whether it is verified first, and when its claim is written.

Clauses: 4.1/order, 4.1/verify-signature.
"""

from dataclasses import dataclass
from typing import Literal, Protocol


class VerifyPolicy(Protocol):
    """Which payments the facilitator verifies before it settles them."""

    def verifies(self, amount_base: int) -> bool:
        """Tell whether a payment of this amount, in base units, is verified."""


@dataclass(frozen=True, slots=True)
class VerifyFirst:
    """The default: each payment is verified before it is settled (4.1/order)."""

    def verifies(self, amount_base: int) -> bool:
        """Always True."""
        return True


@dataclass(frozen=True, slots=True)
class SkipVerify:
    """Settle at once: one call fewer, and a bad signature is refused only by the settlement."""

    def verifies(self, amount_base: int) -> bool:
        """Always False."""
        return False


Step = Literal["verify", "settle"]
"""A step that the claim can be written before; otherwise it is written after "settle"."""


class ClaimPolicy(Protocol):
    """When the claim is written: from then on a crash or a lost answer loses nothing."""

    def claims_before(self, step: Step) -> bool:
        """Tell whether the claim is written before this step."""


@dataclass(frozen=True, slots=True)
class ClaimFirst:
    """The default: the claim is written before anybody is asked to move money."""

    def claims_before(self, step: Step) -> bool:
        """Always True."""
        return True


@dataclass(frozen=True, slots=True)
class ClaimAfterVerify:
    """Write the claim after the verification: a bad header leaves no record."""

    def claims_before(self, step: Step) -> bool:
        """Only before the settlement."""
        return step == "settle"


@dataclass(frozen=True, slots=True)
class ClaimAfterSettle:
    """Naive: nothing is written before the facilitator has said that the money moved.

    A lost answer or a crash before that leaves no record: there is nothing that the policy
    `lost_answer` could look up, and the payer is charged and not served. For the same reason it
    grants one authorization once where several services of one merchant have each its own
    database: whoever loses the race to settle has no claim that the chain could prove paid. With
    claims, each finds that its merchant was paid, and grants.
    """

    def claims_before(self, step: Step) -> bool:
        """Always False."""
        return False


@dataclass(frozen=True, slots=True)
class NoClaim:
    """Naive: nothing reserves an authorization: one payment, many grants.

    In one step, it is served as often as it is sent. In two, it is as `ClaimAfterSettle`; with
    `ServeBeforeSettle`, it is served for each payment id for which it is sent before it is settled.
    """

    reserves = False

    def claims_before(self, step: Step) -> bool:
        """Always False."""
        return False
