"""What does a world need to know of a chain backend?

A backend declares its capabilities: `is_virtual` and `is_persistent` before it is opened,
`OpenChain.offers` afterwards. No other code asks which backend it is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.applications import Starlette

from x402sim.chain.base import WorldChain
from x402sim.chain.ledger.token_rules import TokenRules
from x402sim.clock import Clock
from x402sim.protocol.crypto import Address
from x402sim.protocol.networks import Network
from x402sim.spec.needs import Need
from x402sim.world.chains.people import People


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a world asks of its chain; a backend that cannot do it raises `ChainError`."""

    network: Network
    clock: Clock
    people: People
    secret: bytes
    """Marks a chain file as belonging to this world's database."""
    has_payments: bool
    """Whether that database has payments, which an empty chain would contradict."""
    file: Path | None
    block_time_s: float | None
    unlocked: bool
    """Whether the RPC sends transactions for the funded accounts."""
    token_rules: TokenRules
    without_token_rules: tuple[str, ...]
    """The tables of `token_rules` that have rules left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenChain:
    """A chain that is open: its seam, its JSON-RPC, and what a story may ask of it."""

    chain: WorldChain
    network: Network
    """The network, with the address of the token that is really there."""
    facilitator: Address
    """The account that settles."""
    rpc_app: Starlette
    offers: frozenset[Need]


class ChainBackend(Protocol):
    """A chain that a world can run on."""

    @property
    def kind(self) -> str:
        """One word for programs: "ledger", "anvil" or "node"."""

    @property
    def name(self) -> str:
        """What a person types for it; of a URL only the host, as the rest is often secret."""

    @property
    def is_virtual(self) -> bool:
        """Whether its blocks follow the world's clock, so that all time can be simulated."""

    @property
    def is_persistent(self) -> bool:
        """Whether it outlives the world, so that keys and ids must never come twice."""

    def open(self, opening: Opening) -> OpenChain:
        """Open the chain; blocks until it is ready.

        Raises `ChainError` that says what is missing, and `sqlite3.Error` for its file.
        """
