"""The settings of a deployment (2.8), and the limits of section 8.

Clauses: 2.8/settings, 8/quote-price, 8/timeout, 8/cache-lifetime, 8/cache-sweep,
8/indexer-interval, 8/indexer-batch.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from coincurve import PrivateKey

from x402sim.bounded import MIB, Limits
from x402sim.protocol.crypto import Address, address_of, from_hex, parse_address
from x402sim.protocol.networks import TESTNET, Network, network_named
from x402sim.rng import Rng
from x402sim.service.policies import ServicePolicy
from x402sim.service.upstream.cronos import CRONOS
from x402sim.service.upstream.dialect import Dialect
from x402sim.spec.decisions import Decisions


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one service; amounts in base units, durations in seconds.

    A quote costs 10000 base units (8/quote-price).
    """

    private_key: bytes = field(repr=False)
    """The server wallet's key: it receives payments and pays refunds."""
    facilitator_url: str
    explorer_url: str
    rpc_url: str
    dialect: Dialect = CRONOS
    """How the facilitator is spoken to; no environment variable sets it."""
    network: Network = TESTNET
    recipient: Address | None = None
    """The payee, by default the server wallet, which always receives deposits."""
    secret: bytes = field(default_factory=lambda: Rng().secret("ids"), repr=False)
    """The key that seals payment and session ids. It is random, and never derived from the private
    key: whoever reads that key could then forge payment ids with any price."""
    decisions: Decisions = field(default_factory=Decisions)
    policy: ServicePolicy = field(default_factory=ServicePolicy)
    """What it does about lost answers, its claim, refunds and so on: `service/policies`."""

    quote_price_base: int = 10_000
    max_timeout_s: int = 300
    entitlement_lifetime_s: int = 24 * 3600
    entitlement_sweep_s: int = 3600
    indexer_interval_s: int = 300
    indexer_batch: int = 100
    final_depth: int = 12
    """Blocks on top of a transfer's block until it is not looked at again (8/final-depth)."""

    reconcile_interval_s: int = 15
    session_sweep_s: int = 10
    verify_timeout_s: float = 30
    settle_timeout_s: float = 60
    explorer_timeout_s: float = 10
    max_answer_bytes: int = MIB
    """The most that is read of an answer of facilitator, explorer and node."""
    log_search_blocks: int | None = None
    """How many blocks back to search for a lost settlement; None for the whole chain."""

    @cached_property
    def key(self) -> PrivateKey:
        """The server wallet's key, ready to sign."""
        return PrivateKey(self.private_key)

    @cached_property
    def wallet(self) -> Address:
        """The server wallet's address."""
        return address_of(self.key.public_key)

    @cached_property
    def id_secret(self) -> bytes:
        """The 32 bytes that seal payment ids and session ids."""
        return hashlib.sha256(b"x402sim ids" + self.secret).digest()

    @property
    def verify_limits(self) -> Limits:
        """The limits of the facilitator's answer to verify."""
        return self._limits(self.verify_timeout_s)

    @property
    def settle_limits(self) -> Limits:
        """The limits of the facilitator's answer to settle."""
        return self._limits(self.settle_timeout_s)

    @property
    def explorer_limits(self) -> Limits:
        """The limits of an answer of the explorer or the node."""
        return self._limits(self.explorer_timeout_s)

    def _limits(self, deadline_s: float) -> Limits:
        return Limits(max_answer_bytes=self.max_answer_bytes, deadline_s=deadline_s)

    @property
    def pay_to(self) -> Address:
        """The merchant address of the requirements (2.1/pay-to)."""
        return self.recipient or self.wallet


def settings_from_env(env: Mapping[str, str]) -> Settings:
    """Return the settings named in section 2.8 from environment variables (2.8/settings).

    PRIVATE_KEY, FACILITATOR_URL, EXPLORER_URL and RPC_URL are needed; NETWORK,
    MERCHANT_ADDRESS, TOKEN_ADDRESS and FINAL_DEPTH (blocks, default 12) have defaults. Raises
    `ValueError` naming the variable that is missing, empty or wrong.
    """
    network = network_named(env.get("NETWORK", TESTNET.name))
    if "TOKEN_ADDRESS" in env:
        network = replace(network, asset=parse_address(env["TOKEN_ADDRESS"]))
    merchant = env.get("MERCHANT_ADDRESS")
    return Settings(
        private_key=from_hex(_needed(env, "PRIVATE_KEY"), 32),
        facilitator_url=_needed(env, "FACILITATOR_URL"),
        explorer_url=_needed(env, "EXPLORER_URL"),
        rpc_url=_needed(env, "RPC_URL"),
        network=network,
        recipient=parse_address(merchant) if merchant else None,
        final_depth=_count(env, "FINAL_DEPTH", Settings.final_depth),
    )


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable that is a count; raises `ValueError` if it is not."""
    value = env.get(name, "") or str(default)
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"the environment variable {name} is a number from 0, not {value!r}")
    return int(value)


def _needed(env: Mapping[str, str], name: str) -> str:
    """Return a variable; raises `ValueError` if it is missing or empty."""
    value = env.get(name, "")
    if not value:
        raise ValueError(f"the environment variable {name} is not set")
    return value
