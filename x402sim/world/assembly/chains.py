"""What does a world stand on: a ledger in memory, an anvil of its own, or somebody's node?"""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from x402sim.chain.base import ChainError, Control
from x402sim.chain.ledger.ledger import PLENTY_WEI, Ledger
from x402sim.chain.ledger.token_rules import TokenRules
from x402sim.chain.rpc.app import rpc_app
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.networks import Network
from x402sim.rng import Rng
from x402sim.world.loop import VirtualLoop, run_anywhere

if TYPE_CHECKING:
    from x402sim.world.assembly.parts import Recipe

LEDGER, ANVIL = "ledger", "anvil"
KEYS = "X402SIM_CHAIN_KEYS"
"""The environment variable with the keys for a node of somebody else, with commas: the first
pays for gas, and the owner's of the token, if it is among them, mints."""
ACCOUNTS = 10
PAYER_BALANCE_BASE = 1_000_000_000
"""What each account starts with: 1000.00 of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A chain, ready to stand on.

    The token of its network may be a new one; the facilitator is the account that settles,
    `rpc_app` the JSON-RPC that is shown.
    """

    chain: Control
    network: Network
    facilitator: Address
    rpc_app: ASGIApp


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Who is to be there from the beginning."""

    accounts: tuple[Wallet, ...]
    owner: Wallet
    facilitator: Wallet

    @classmethod
    def drawn(cls, keys: Rng) -> "People":
        """Return those whose keys are drawn from a seed."""
        return cls(
            accounts=tuple(Wallet(keys.secret(f"account {n}")) for n in range(ACCOUNTS)),
            owner=Wallet(keys.secret("token owner")),
            facilitator=Wallet(keys.secret("facilitator")),
        )

    @property
    def balances(self) -> dict[Address, int]:
        """The tokens they begin with, in base units."""
        return {wallet.address_bytes: PAYER_BALANCE_BASE for wallet in self.accounts}

    @property
    def native(self) -> dict[Address, int]:
        """The gas money they begin with, in wei."""
        return {wallet.address_bytes: PLENTY_WEI for wallet in (*self.accounts, self.facilitator)}


def check_chain(chain: str) -> None:
    """Raise `ValueError` unless `chain` says what to stand on."""
    if chain not in (LEDGER, ANVIL) and not is_url(chain):
        raise ValueError(f"a chain is {LEDGER}, {ANVIL}, or the URL of a node, not {chain!r}")


def shown(chain: str) -> str:
    """Return a chain as it can be told: of a URL, only the host, as the rest is often secret."""
    if not is_url(chain):
        return chain
    parts = urlsplit(chain)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def is_url(chain: str) -> bool:
    """Tell whether a chain is a node of somebody else, where time is real."""
    return chain.startswith(("http://", "https://"))


def open_ground(
    recipe: "Recipe", clock: Clock, people: People, secret: bytes, *, has_payments: bool
) -> Ground:
    """Return what a recipe's world stands on; blocks until it is there.

    Raises `ChainError` that says what is missing.
    """
    if recipe.chain == LEDGER:
        return _ledger(recipe, clock, people, secret, has_payments)
    _require_possible(recipe)
    if recipe.chain == ANVIL:
        return _anvil(recipe, clock, people)
    return _external(recipe, clock, people)


def _require_possible(recipe: "Recipe") -> None:
    if find_spec("web3") is None:
        raise ChainError("a real chain needs web3: pip install 'x402sim[evm]'")
    if recipe.file is not None and recipe.chain == ANVIL:
        raise ChainError("anvil forgets its chain, so a database would outlive its payments")
    changed = [name for name, _ in recipe.without if name in ("transfer", "receive", "cancel")]
    if changed:
        raise ChainError(f"the rules of a real token cannot be left out: {', '.join(changed)}")
    if is_url(recipe.chain) and recipe.block_time_s is not None:
        raise ChainError(f"{shown(recipe.chain)} has a block time of its own")


def _ledger(
    recipe: "Recipe", clock: Clock, people: People, secret: bytes, has_payments: bool
) -> Ground:
    ledger = Ledger(
        recipe.network,
        clock,
        owner=people.owner.address_bytes,
        balances=people.balances,
        native=people.native,
        has_history=has_payments,
        origin=hashlib.sha256(b"origin" + secret).digest(),
        file=recipe.file.with_name(recipe.file.name + ".chain") if recipe.file else None,
        rules=TokenRules(*(recipe.rules(name) for name in ("transfer", "receive", "cancel"))),
    )
    accounts = [wallet.address_bytes for wallet in people.accounts]
    return Ground(
        chain=ledger,
        network=recipe.network,
        facilitator=people.facilitator.address_bytes,
        rpc_app=rpc_app(ledger, accounts=accounts, unlocked=recipe.unlocked),
    )


def _anvil(recipe: "Recipe", clock: Clock, people: People) -> Ground:
    from x402sim.chain.node.anvil_chain import AnvilChain
    from x402sim.chain.rpc.node import node_rpc_app

    chain = AnvilChain(
        recipe.network,
        clock,
        owner=people.owner.address_bytes,
        balances=people.balances,
        native=people.native,
        in_line=_is_virtual(),
    )
    return Ground(
        chain=chain,
        network=recipe.network,
        facilitator=people.facilitator.address_bytes,
        rpc_app=node_rpc_app(chain, may_write=recipe.unlocked),
    )


def _external(recipe: "Recipe", clock: Clock, people: People) -> Ground:
    from x402sim.chain.node.external import ExternalChain
    from x402sim.chain.rpc.node import node_rpc_app

    network, keys = _with_token(recipe), keys_of(os.environ)

    async def begin() -> ExternalChain:
        chain = await ExternalChain.open(recipe.chain, network, clock, keys, deploy=recipe.deploy)
        if recipe.deploy:
            await asyncio.gather(*(chain.fund(*each) for each in people.balances.items()))
        return chain

    try:
        chain = run_anywhere(begin)
    except TimeoutError as late:
        raise ChainError(str(late)) from late
    return Ground(
        chain=chain,
        network=chain.network,
        facilitator=chain.keys[0],
        rpc_app=node_rpc_app(chain, may_write=recipe.unlocked),
    )


def keys_of(environ: Mapping[str, str]) -> list[bytes]:
    """Return the keys for a node of somebody else; raises `ChainError`, showing none."""
    from x402sim.chain.node.sender import read_keys

    try:
        keys = read_keys(environ.get(KEYS, ""))
    except ValueError as wrong:
        raise ChainError(f"{KEYS}: {wrong}") from None
    if not keys:
        raise ChainError(f"{KEYS} must hold private keys: the first pays for gas on the node")
    return keys


def _with_token(recipe: "Recipe") -> Network:
    if recipe.token is None:
        return recipe.network
    try:
        return replace(recipe.network, asset=parse_address(recipe.token))
    except ValueError as wrong:
        raise ChainError(f"the token: {wrong}") from None


def _is_virtual() -> bool:
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return False
    return isinstance(loop, VirtualLoop)
