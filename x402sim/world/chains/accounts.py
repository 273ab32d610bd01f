"""The accounts that have tokens and native currency at the start of a world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from x402sim.chain.ledger.ledger import PLENTY_WEI
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address
from x402sim.rng import Rng

ACCOUNTS = 10
ACCOUNT_BALANCE = 1000
"""The initial balance of each account, in whole tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The funded accounts, the token's owner and the facilitators of one world."""

    funded: tuple[Wallet, ...]
    owner: Wallet
    facilitators: Mapping[str, Wallet]
    """The facilitators by name; the first is the one that an existing node's key stands for."""

    @classmethod
    def drawn(cls, keys: Rng, facilitators: Sequence[str] = ("facilitator",)) -> "Accounts":
        """Return the accounts with keys drawn from a seed."""
        others = {name: Wallet(keys.secret(f"facilitator {name}")) for name in facilitators[1:]}
        return cls(
            funded=tuple(Wallet(keys.secret(f"account {n}")) for n in range(ACCOUNTS)),
            owner=Wallet(keys.secret("token owner")),
            facilitators={facilitators[0]: Wallet(keys.secret("facilitator")), **others},
        )

    @property
    def facilitator(self) -> Wallet:
        """The first facilitator."""
        return next(iter(self.facilitators.values()))

    @property
    def native(self) -> dict[Address, int]:
        """Their initial native balances, in wei, to pay for gas."""
        return {
            wallet.address_bytes: PLENTY_WEI
            for wallet in (*self.funded, *self.facilitators.values())
        }
