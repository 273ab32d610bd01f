"""The chain backend `Node`: an existing node, in real time, without control of its blocks."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from x402sim.chain.base import ChainError
from x402sim.protocol.crypto import PrivateKey, parse_address, parse_key
from x402sim.protocol.networks import Network
from x402sim.spec.needs import Need
from x402sim.world.chains.backend import ChainRequest, OpenChain, require_evm
from x402sim.world.loop import run_anywhere

KEYS = "X402SIM_CHAIN_KEYS"
"""The environment variable with the private keys for a node, comma-separated."""


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """The JSON-RPC node at `url`; needs the extra `evm`.

    `token` is the token's address there, and its name, version and decimals are then what its
    contract says; by default the network's own. With `deploy` a new token is deployed first.
    `keys` are private keys, by default those in X402SIM_CHAIN_KEYS: the first pays for gas, and
    a minter's, if listed, mints for payers. Raises `ValueError` for an
    invalid URL or address.
    """

    url: str
    token: str | None = None
    deploy: bool = False
    keys: tuple[str, ...] = ()
    kind = "node"
    is_virtual = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a node's URL is http://HOST:PORT, not {self.name!r}")
        if self.token is not None and self.deploy:
            raise ValueError("name a token that is on the node, or deploy a new one, not both")
        if self.token is not None:
            try:
                parse_address(self.token)
            except ValueError as wrong:
                raise ValueError(f"the token: {wrong}") from None

    def __repr__(self) -> str:
        return f"Node({self.name!r})"

    @property
    def name(self) -> str:
        """The URL without path and password, which are often secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def open(self, request: ChainRequest) -> OpenChain:
        """Connect to the node, deploy the token if asked to; raises `ChainError`."""
        require_evm(request)
        if request.has_block_time:
            raise ChainError(f"a block time cannot be set: {self.name} mines at its own pace")
        if request.gas_price or request.accounts.held_wei:
            raise ChainError(f"gas_price_gwei and native cannot be set: {self.name} has its own")
        from x402sim.chain.node.external import ExternalChain
        from x402sim.chain.rpc.node import node_rpc_app

        network, keys = self._network(request.network), keys_of(self.keys, os.environ)
        balances = request.balances

        async def connect() -> ExternalChain:
            chain = await ExternalChain.open(
                self.url,
                network,
                request.clock,
                keys,
                deploy=self.deploy,
                read=self.token is not None,
            )
            if self.deploy:
                await asyncio.gather(*(chain.fund(*each) for each in balances.items()))
            return chain

        try:
            chain = run_anywhere(connect)
        except TimeoutError as late:
            raise ChainError(str(late)) from late
        funds = {Need.FUNDS} if chain.owner in chain.keys else set()
        return OpenChain(
            chain=chain,
            network=chain.network,
            facilitator=PrivateKey(keys[0]),
            rpc_app=node_rpc_app(chain, may_write=request.unlocked),
            offers=frozenset({Need.OBSERVE_CHAIN, *funds}),
        )

    def _network(self, network: Network) -> Network:
        return network if self.token is None else replace(network, asset=parse_address(self.token))


def keys_of(given: tuple[str, ...], environ: Mapping[str, str]) -> list[bytes]:
    """Return the given private keys, or those in `KEYS`. Raises `ChainError` that shows no key."""
    text = ",".join(given) if given else environ.get(KEYS, "")
    try:
        keys = [parse_key(key.strip()) for key in text.split(",") if key.strip()]
    except ValueError:
        where, wanted = "keys" if given else KEYS, "private keys as 0x and 64 hex digits"
        raise ChainError(f"{where}: expected {wanted}, with commas") from None
    if not keys:
        raise ChainError(f"{KEYS} must hold private keys: the first pays for gas on the node")
    return keys
