"""The policies of a service: one small object for each choice that the specification leaves.

`ServicePolicy` holds five policies: of lost answers, verification, the claim, what is served, and
the cache headers. Each is an object with one method and replaces one step of the service; an object
of your own with that method works, too. The default policies keep every invariant. A naive policy
breaks an invariant, to show the cost. The reputation has a policy of its own,
`Settings.reputation`.
Clauses: 3/pending-resolved, 4.1/order, 4.1/verify-signature, 5/cache-first,
5/stored-records, 6/reputation.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from x402sim.protocol.refusals import ChainFinding
from x402sim.text.arguments import ZeroToOne, explained
from x402sim.text.words import changed

# --- a settlement whose answer was lost -----------------------------------------------


class PendingPayment(Protocol):
    """A claimed payment whose outcome is not known."""

    async def ask_chain(self) -> ChainFinding:
        """Ask the chain's node; the record follows what it says, and a paid payment is granted."""

    async def settle_again(self) -> ChainFinding:
        """Send it to the facilitator once more; one that is settled now is granted.

        PAID if it is settled. NOT_YET if it was refused, and UNKNOWN if the answer is lost again;
        the record stays pending then.
        """

    async def wait(self, seconds: float) -> None:
        """Let time pass; other requests for this payment id wait, too."""

    def forget(self) -> None:
        """Delete the record. The payer gets the answer that nothing was charged."""


class LostAnswerPolicy(Protocol):
    """What to do about a payment whose settlement was not answered."""

    async def resolve(self, payment: PendingPayment) -> None:
        """Find out what became of it, or do not.

        Called in the request that lost the answer, and then again and again in the background
        while the record is pending.
        """


@dataclass(frozen=True, slots=True)
class Reconcile:
    """The default: ask the chain at once, and in the background until it says yes or never."""

    async def resolve(self, payment: PendingPayment) -> None:
        """Ask the chain."""
        await payment.ask_chain()


@dataclass(frozen=True, slots=True)
class Forget:
    """Naive: a lost answer is taken for a refusal, and the record is deleted.

    With probability p of a lost answer, a payer is charged and not served with p, and charged
    again with p if it signs another authorization.
    """

    async def resolve(self, payment: PendingPayment) -> None:
        """Delete the record."""
        payment.forget()


# --- a settlement: what is verified, and when its claim is written --------------------


class VerifyPolicy(Protocol):
    """Chooses the payments that the facilitator verifies before the settlement."""

    def verifies(self, amount_base: int) -> bool:
        """Tell whether a payment of this amount, in base units, is verified."""


@dataclass(frozen=True, slots=True)
class VerifyFirst:
    """The default: each payment is verified before it is settled (4.1/order)."""

    def verifies(self, amount_base: int) -> bool:
        """Always True."""
        return True


class ClaimPolicy(Protocol):
    """When the claim is written: from then on a crash or a lost answer loses nothing."""

    def claims_before(self, step: Literal["verify", "settle"]) -> bool:
        """Tell whether the claim is written before this step; otherwise it is written last."""


@dataclass(frozen=True, slots=True)
class ClaimFirst:
    """The default: the claim is written before any request to move money."""

    def claims_before(self, step: Literal["verify", "settle"]) -> bool:
        """Always True."""
        return True


@dataclass(frozen=True, slots=True)
class ClaimAfterSettle:
    """Naive: nothing is written before the facilitator has answered that the money moved.

    A lost answer or a crash before that leaves no record: there is nothing that the policy
    `lost_answer` could look up, and the payer is charged and not served. For the same reason, of
    several services of one merchant with a database each, only one grants an authorization: a
    service that loses the race to settle has no claim that the chain could prove paid. With claims,
    each service finds that the merchant was paid, and grants.
    """

    def claims_before(self, step: Literal["verify", "settle"]) -> bool:
        """Always False."""
        return False


@dataclass(frozen=True, slots=True)
class NoClaim:
    """Naive: nothing reserves an authorization, so one payment may be granted many times.

    In one step, an authorization is served as often as it is sent. In two steps, this policy does
    as `ClaimAfterSettle`; with `ServeBeforeSettle`, one authorization buys an answer for each
    payment id that comes with it before the settlement.
    """

    def claims_before(self, step: Literal["verify", "settle"]) -> bool:
        """Always False."""
        return False


# --- what is served -------------------------------------------------------------------


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """A payment id or a session id in a request for a resource.

    `is_settled`: the money for it has moved, as far as the service knows (section 5).
    """

    is_settled: bool
    is_claimed: Callable[[], bool]
    """Tells whether a header that can pay for it was presented, and may still be settled."""
    confirmations: Callable[[], Awaitable[int | None]]
    """Asks the chain's node how many blocks are on top of the transfer; None if no block has the
    transfer, or if the node does not answer."""
    draw: Callable[[str], float]
    """Returns a number in [0, 1) that depends on the world's seed, the id and the name given."""


class ServePolicy(Protocol):
    """Which proofs of payment are served; any other request gets a 402."""

    async def serves(self, proof: Proof) -> bool:
        """Tell whether the request is served."""


@dataclass(frozen=True, slots=True)
class ServeSettled:
    """The default: serve what is settled."""

    async def serves(self, proof: Proof) -> bool:
        """Tell whether it is settled."""
        return proof.is_settled


@dataclass(frozen=True, slots=True)
class ServeBeforeSettle:
    """Naive: serve before the settlement, as soon as the facilitator has verified a header.

    In two steps, the payment id is served while it is settled; in one, the settlement begins after
    the answer.
    """

    async def serves(self, proof: Proof) -> bool:
        """Tell whether the payment is settled, or is claimed and may still be settled."""
        return proof.is_settled or proof.is_claimed()


@explained
@dataclass(frozen=True, slots=True)
class FailToServe:
    """A seller that takes the money and, with a probability, never serves for it.

    Whether to serve is drawn once for each payment and each session. If not, every request with it
    gets a 402 again.
    """

    probability: ZeroToOne

    async def serves(self, proof: Proof) -> bool:
        """Tell whether the payment is settled, and drawn among the served payments."""
        return proof.is_settled and proof.draw("serve") >= self.probability


# --- the cache headers ------------------------------------------------------------------


class CachePolicy(Protocol):
    """Returns the headers that tell caches how to treat a paid answer."""

    def headers(self) -> dict[str, str]:
        """Return the headers."""


@dataclass(frozen=True, slots=True)
class NoStore:
    """The default: no cache stores it."""

    def headers(self) -> dict[str, str]:
        """Return the header `no-store`."""
        return {"cache-control": "no-store"}


# --- the reputation, which the indexer updates once it has matched payments -----------


class Track(msgspec.Struct, frozen=True):
    """The sales of a resource.

    `matched` counts the settled payments in a block, and `served` the matched payments with a
    served answer.
    """

    matched: int = 0
    served: int = 0


class Reputation(Protocol):
    """Computes the reputation of a resource."""

    @property
    def counts_served(self) -> bool:
        """Whether the service must record which payments it has served."""

    def of(self, track: Track) -> int:
        """Return the reputation; the highest is the best."""


@dataclass(frozen=True, slots=True)
class MatchedPayments:
    """The default: how many payments are in a block.

    It counts sales. A seller that takes the money and serves nobody has the same reputation as an
    honest seller with as many sales.
    """

    counts_served = False

    def of(self, track: Track) -> int:
        """Return the number of payments."""
        return track.matched


# --- all of them ----------------------------------------------------------------------


@explained
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServicePolicy:
    """What a service does about lost answers, verification, its claim and requests.

    lost_answer
        What to do about a settlement without an answer: `Reconcile()` (the default), `Forget()`.
    verify
        Which payments to verify before settling: `VerifyFirst()` (the default), all.
    claim
        When to write the payment's claim: `ClaimFirst()` (the default), `ClaimAfterSettle()`,
        `NoClaim()`.
    serve
        Which paid requests to serve: `ServeSettled()` (the default), `ServeBeforeSettle()`,
        `FailToServe(...)`.
    cache
        What to tell caches of a protected content: `NoStore()` (the default).

    All are in `x402sim.policies`, and each has one method; an object of your own with that method
    works, too (the guide's page own-parts.md).

    >>> from x402sim.policies import Forget
    >>> ServicePolicy(lost_answer=Forget())
    ServicePolicy(lost_answer=Forget())
    >>> class VerifyDear:
    ...     def verifies(self, amount_base):
    ...         return amount_base >= 20_000
    >>> ServicePolicy(verify=VerifyDear())
    ServicePolicy(verify=VerifyDear(...))
    """

    lost_answer: LostAnswerPolicy = Reconcile()
    verify: VerifyPolicy = VerifyFirst()
    claim: ClaimPolicy = ClaimFirst()
    serve: ServePolicy = ServeSettled()
    cache: CachePolicy = NoStore()

    @property
    def reserves(self) -> bool:
        """Whether `claim` ever reserves an authorization for one payment id."""
        return not isinstance(self.claim, NoClaim)

    @property
    def serves_first(self) -> bool:
        """Whether `serve` serves a payment in one step before it is settled."""
        return isinstance(self.serve, ServeBeforeSettle)

    def __repr__(self) -> str:
        return changed(self)
