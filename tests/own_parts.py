"""Policies of a user's own, which several tests give to a service; notebooks 10, 11, 13 and 15 explain them."""

from dataclasses import dataclass
from typing import Any

from x402sim.policies import ChainFinding, Proof, Track


@dataclass(frozen=True)
class ServeConfirmed:
    """Serve what has so many blocks on top of its transfer."""

    blocks: int

    async def serves(self, proof: Proof) -> bool:
        if not proof.is_settled:
            return False
        confirmations = await proof.confirmations()
        return confirmations is not None and confirmations >= self.blocks


@dataclass(frozen=True)
class SettleAgain:
    """Ask the facilitator again after a lost answer, and then the chain."""

    wait_s: float = 1.0

    async def resolve(self, payment: Any) -> None:
        for _ in range(3):
            await payment.wait(self.wait_s)
            if await payment.settle_again() is not ChainFinding.UNKNOWN:
                break
        await payment.ask_chain()


@dataclass(frozen=True)
class CacheControl:
    """Answer paid requests with these headers."""

    control: str | None = None
    vary: str | None = None

    def headers(self) -> dict[str, str]:
        given = {"cache-control": self.control, "vary": self.vary}
        return {name: text for name, text in given.items() if text is not None}


class ServedShare:
    """Count the share of the payments that were served, in thousandths."""

    counts_served = True

    def of(self, track: Track) -> int:
        return round(1000 * (track.served + 1) / (track.matched + 2))
