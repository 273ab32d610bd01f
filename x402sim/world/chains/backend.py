"""The interface of chain backends.

A backend declares its capabilities: `is_virtual` before it is opened, `OpenChain.offers`
afterwards. No other code depends on which backend it is.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.applications import Starlette

from x402sim.chain.base import Chain, ChainError
from x402sim.clock import Clock
from x402sim.protocol.crypto import Address, PrivateKey
from x402sim.protocol.networks import Network
from x402sim.spec.needs import Need
from x402sim.world.chains.accounts import ACCOUNT_BALANCE, Accounts


class ChainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A world's demands on its chain; a backend that cannot meet them raises `ChainError`."""

    network: Network
    clock: Clock
    accounts: Accounts
    secret: bytes
    """The id of this world's database, which a chain file stores."""
    has_payments: bool
    """Whether that database has payments, which an empty chain cannot have."""
    file: Path | None
    has_block_time: bool
    """Whether the world decides when blocks come."""
    unlocked: bool
    """Whether the RPC signs transactions for the funded accounts."""
    gas_price: Callable[[], int] | None = None
    """The price in wei of a unit of gas now; None: the network's base fee."""
    calls_at_block_time: bool = False
    """Whether calls in the newest state are judged at its block's time, and not now."""
    without_token_rules: tuple[tuple[str, str], ...] = ()
    """The token's rules to leave out: (name of the table, clause)."""

    @property
    def balances(self) -> dict[Address, int]:
        """The funded accounts' initial token balances, in the network's base units."""
        balance_base = ACCOUNT_BALANCE * 10**self.network.decimals
        return {wallet.address_bytes: balance_base for wallet in self.accounts.funded}


class OpenChain(msgspec.Struct, frozen=True, kw_only=True):
    """An open chain: its interface, its JSON-RPC and the needs that it meets."""

    chain: Chain
    network: Network
    """The network, with the address of the token on this chain."""
    rpc_app: Starlette
    offers: frozenset[Need]
    facilitator: PrivateKey | None = None
    """The key of the account that submits the settlements of every facilitator; None if each has
    its own."""


def require_evm(request: ChainRequest) -> None:
    """Raise `ChainError` without web3, or if the world leaves out rules of the token."""
    if find_spec("web3") is None:
        raise ChainError("a real chain needs web3: pip install 'x402sim[evm]'")
    if request.without_token_rules:
        tables = ", ".join(table for table, _ in request.without_token_rules)
        raise ChainError(f"the rules of a real token cannot be left out: {tables}")


class ChainBackend(Protocol):
    """A chain that a world can run on."""

    @property
    def kind(self) -> str:
        """The kind in JSON: "ledger", "anvil" or "node"."""

    @property
    def name(self) -> str:
        """The name on the command line; of a URL only the host, as the rest is often secret."""

    @property
    def is_virtual(self) -> bool:
        """Whether its blocks follow the world's clock, which virtual time requires.

        If not, it is an existing node, which outlives the world: keys and ids must never repeat.
        """

    def open(self, request: ChainRequest) -> OpenChain:
        """Open the chain; blocks until it is ready.

        Raises `ChainError` that says what is missing, and `sqlite3.Error` for the chain's file.
        """
