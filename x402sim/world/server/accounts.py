"""Chooses the accounts that a server funds, if no phrase is given.

They are those that users of anvil and Hardhat know. With a seed, and on an existing node, they are
drawn from the seed: on a public node anybody could take what the known accounts receive. A
database keeps the accounts that it was begun with.
"""

from pathlib import Path

from x402sim.chain.ledger.operation_log import begun_with
from x402sim.protocol.phrase import KNOWN
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.ledger import chain_file

_WITHOUT_ACCOUNTS = 3
"""The number of a genesis's arguments in a file whose accounts were drawn."""


def phrase_of(
    mnemonic: str | None, *, seed: int | None, chain: ChainBackend, file: Path | None
) -> str | None:
    """Return the phrase of a server's accounts; None if they are drawn from the seed."""
    if mnemonic is not None or seed is not None or chain.is_persistent:
        return mnemonic
    begun = begun_with(chain_file(file)) if file else None
    return None if begun is not None and len(begun) == _WITHOUT_ACCOUNTS else KNOWN
