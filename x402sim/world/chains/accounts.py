"""The accounts that have tokens and native currency at the start of a world."""

import hashlib
from collections.abc import Mapping

import msgspec

from x402sim.chain.fees import PLENTY_WEI
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.payer.wallet import Wallet
from x402sim.protocol import phrase
from x402sim.protocol.crypto import Address
from x402sim.rng import Rng

ACCOUNTS, MOST_ACCOUNTS = 10, 100
ACCOUNT_BALANCE = 1000
"""The initial balance of each account, in whole tokens."""


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """The funded accounts, the token's owner and the facilitators of one world."""

    funded: tuple[Wallet, ...]
    mnemonic: str | None
    """The phrase of the funded accounts; None if they are drawn from the seed."""
    owner: Wallet
    facilitators: Mapping[str, Wallet]
    """The facilitators by name."""
    held_wei: Mapping[str, int]
    """The native balances of those facilitators that have no plenty."""

    @classmethod
    def drawn(
        cls,
        keys: Rng,
        facilitators: Mapping[str, FacilitatorSettings],
        *,
        mnemonic: str | None,
        count: int,
    ) -> "Accounts":
        """Return the accounts with keys drawn from a seed, the funded ones from a phrase if there
        is one. Raises `ValueError` for what is no phrase.
        """
        first, *others = facilitators
        if mnemonic is None:
            funded = [keys.secret(f"account {n}") for n in range(count)]
        else:
            if mnemonic != phrase.KNOWN:  # to check one takes half a second, a start little more
                Wallet.from_mnemonic(mnemonic)
            funded = phrase.keys_of(mnemonic, count)
        return cls(
            funded=tuple(map(Wallet, funded)),
            mnemonic=mnemonic,
            owner=Wallet(keys.secret("token owner")),
            facilitators={first: Wallet(keys.secret("facilitator"))}
            | {name: Wallet(keys.secret(f"facilitator {name}")) for name in others},
            held_wei={
                name: round(settings.native * 10**18)
                for name, settings in facilitators.items()
                if settings.native is not None
            },
        )

    @property
    def origin(self) -> bytes:
        """What a chain file stores of the funded accounts: nothing if they are the usual ten drawn
        from the seed.
        """
        if self.mnemonic is None and len(self.funded) == ACCOUNTS:
            return b""
        return hashlib.sha256(b"".join(wallet.address_bytes for wallet in self.funded)).digest()

    @property
    def native(self) -> dict[Address, int]:
        """Their initial native balances, in wei, to pay for gas."""
        return {wallet.address_bytes: PLENTY_WEI for wallet in self.funded} | {
            wallet.address_bytes: self.held_wei.get(name, PLENTY_WEI)
            for name, wallet in self.facilitators.items()
        }
