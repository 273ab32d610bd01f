"""The chain backend `Ledger`: in memory, fast and deterministic, with every control."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.rpc.app import rpc_app
from x402sim.protocol.crypto import from_hex
from x402sim.spec.needs import Need
from x402sim.world.chains.backend import ChainRequest, OpenChain

CHAIN = ".chain"
"""What the name of a chain's file has more than its database's."""
_OFFERS = frozenset(
    {Need.FUNDS, Need.OBSERVE_CHAIN, Need.CONTROL_CHAIN, Need.CLOCK, Need.FIAT_TOKEN}
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A chain in memory with Circle's token, FiatToken v2.2 behind its proxy: its rules, words and
    gas. With a database FILE it is stored in FILE.chain.
    """

    kind = name = "ledger"
    is_virtual = True

    def open(self, request: ChainRequest) -> OpenChain:
        """Open the chain; raises `ChainError` and `sqlite3.Error` for its file."""
        accounts = request.accounts
        chain = LedgerChain(
            request.network,
            request.clock,
            owner=accounts.owner.address_bytes,
            balances=request.balances,
            native=accounts.native,
            has_history=request.has_payments,
            accounts=accounts.origin,
            origin=hashlib.sha256(b"origin" + request.secret).digest(),
            file=chain_file(request.file) if request.file else None,
            database=request.file,
            left_out=request.without_token_rules,
            gas_price=request.gas_price,
            calls_at_block_time=request.calls_at_block_time,
        )
        keys = [from_hex(wallet.private_key, 32) for wallet in accounts.funded]
        return OpenChain(
            chain=chain,
            network=request.network,
            rpc_app=rpc_app(chain, keys=keys, unlocked=request.unlocked),
            offers=_OFFERS,
        )


def chain_file(file: Path) -> Path:
    """Return the file of the chain that belongs to a database."""
    return file.with_name(file.name + CHAIN)
