"""The policies of what is served, and of what is paid back of a session.

Clauses: 3/expiry-refund, 5/cache-first, 5/stored-records.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from x402sim.text.arguments import WholeFromZero, ZeroToOne, explained


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """A payment id or a session id that a request shows, for the resource that it asks for.

    `is_settled`: the money for it has moved, as far as the service knows (section 5).
    """

    is_settled: bool
    is_claimed: Callable[[], bool]
    """Tells whether a header that can pay for it was presented, and may still be settled."""
    draw: Callable[[str], float]
    """Returns a number in [0, 1) that depends on the world's seed, the id and the name given."""
    depth: int | None | UnsetType = UNSET

    @property
    def confirmations(self) -> int | None:
        """The blocks on top of the transfer that pays for it; None if no block has it.

        For a policy with `counts_confirmations = True` only: the chain is asked at each request.
        """
        if self.depth is UNSET:
            raise TypeError(
                "a policy that reads proof.confirmations says so: counts_confirmations = True"
            )
        return self.depth


class ServePolicy(Protocol):
    """Which proofs of payment are served; any other request gets a 402."""

    def serves(self, proof: Proof) -> bool:
        """Tell whether the request is served."""


@dataclass(frozen=True, slots=True)
class ServeSettled:
    """The default: serve what is settled."""

    def serves(self, proof: Proof) -> bool:
        """Tell whether it is settled."""
        return proof.is_settled


@explained
@dataclass(frozen=True, slots=True)
class ServeConfirmed:
    """Serve what is settled once `blocks` are on top of the block with its transfer.

    If before each block the newest ones are replaced with p, and each reorganisation goes one
    deeper with q (`x402sim.backends.Reorgs`), what is served is lost with 1 - Π(1 - p·q^t), over t
    from `blocks` on. Until then a request gets a 402: a payer with `PayAndWait` asks again.
    """

    blocks: WholeFromZero
    counts_confirmations = True

    def serves(self, proof: Proof) -> bool:
        """Tell whether it is settled, and deep enough in the chain now."""
        if not proof.is_settled or proof.confirmations is None:
            return False
        return proof.confirmations >= self.blocks


@dataclass(frozen=True, slots=True)
class ServeBeforeSettle:
    """Naive: serve before the settlement, as soon as the facilitator has verified a header.

    In two steps, the payment id is served while it is settled; in one, the settlement begins after
    the answer.
    """

    before_settlement = True

    def serves(self, proof: Proof) -> bool:
        """Tell whether it is settled, or may still be."""
        return proof.is_settled or proof.is_claimed()


@explained
@dataclass(frozen=True, slots=True)
class FailToServe:
    """A seller that takes the money and, with a probability, never serves for it.

    It is drawn once for each payment and each session. Their requests get a 402 again.
    """

    probability: ZeroToOne

    def serves(self, proof: Proof) -> bool:
        """Tell whether it is settled and this payment is one of those that are served."""
        return proof.is_settled and proof.draw("serve") >= self.probability


# --- what caches are told ----------------------------------------------------------------


class CachePolicy(Protocol):
    """What the headers of a protected content tell the caches on its way."""

    def headers(self) -> dict[str, str]:
        """Return the headers."""


@dataclass(frozen=True, slots=True)
class NoStore:
    """The default: no cache stores it."""

    def headers(self) -> dict[str, str]:
        """Return the header that says so."""
        return {"cache-control": "no-store"}


@explained
@dataclass(frozen=True, slots=True)
class CacheControl:
    """Naive, unless it says private: headers with which a shared cache may store it.

    control
        The text of Cache-Control, such as "public, max-age=60" or "private"; default None, which
        sends no such header, so that a cache may store it for as long as it likes.
    vary
        The request's headers on which the content depends, such as "X-Payment-Id"; default None.
    """

    control: str | None = None
    vary: str | None = None

    def headers(self) -> dict[str, str]:
        """Return those of the two that are given."""
        given = {"cache-control": self.control, "vary": self.vary}
        return {name: text for name, text in given.items() if text is not None}


# --- what is paid back of a session ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSession:
    """A session whose time is over: `deposited_base` and, of that, `unspent_base` (base units)."""

    deposited_base: int
    unspent_base: int


@dataclass(frozen=True, slots=True)
class PayBack:
    """What to pay back: `amount_base` units, `after_s` seconds from the session's end."""

    amount_base: int
    after_s: float = 0.0


class RefundPolicy(Protocol):
    """What is paid back of a session's unspent balance."""

    def refund(self, session: EndedSession) -> PayBack | None:
        """Return what to pay back and when; None for never."""


@dataclass(frozen=True, slots=True)
class RefundAtExpiry:
    """The default: the whole unspent balance, at the first sweep after the session's end."""

    def refund(self, session: EndedSession) -> PayBack | None:
        """Return the unspent balance."""
        return PayBack(session.unspent_base)


@dataclass(frozen=True, slots=True)
class NeverRefund:
    """Naive, or worse: what is left of a deposit is kept."""

    def refund(self, session: EndedSession) -> PayBack | None:
        """Return None."""
        return None
