"""The networks of section 2.8: chain id, token contract and its EIP-712 domain.

Those that the public clients know are built in; any other is a row in a file of the user's. A
`Network` is handed on: its name is looked up where an option or a file is read, and nowhere else.
Clauses: 2.8/networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.eip3009 import Domain
from x402sim.text.suggest import unknown


@dataclass(frozen=True, slots=True)
class Network:
    """One selectable network: its name on the wire, its chain and its stablecoin token."""

    name: str
    chain_id: int
    asset: Address
    token_name: str
    token_symbol: str
    token_version: str
    decimals: int = 6
    domain: Domain = field(init=False, repr=False, compare=False)
    """The token's EIP-712 domain."""

    def __post_init__(self) -> None:
        domain = Domain(self.token_name, self.token_version, self.chain_id, self.asset)
        object.__setattr__(self, "domain", domain)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def caip2(self) -> str:
        """The network's name in x402 version 2 (CAIP-2), such as "eip155:84532"."""
        return f"eip155:{self.chain_id}"

    @property
    def is_test(self) -> bool:
        """Whether its chain id is that of a known test network, whose money is worth nothing."""
        return self.chain_id in TEST_CHAIN_IDS


TESTNET = Network(
    name="cronos-testnet",
    chain_id=338,
    asset=parse_address("0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0"),
    token_name="Bridged USDC (Stargate)",  # noqa: S106 - a token's name, not a password
    token_symbol="devUSDC.e",  # noqa: S106
    token_version="1",  # noqa: S106
)
MAINNET = Network(
    name="cronos-mainnet",
    chain_id=25,
    asset=parse_address("0xf951eC28187D9E5Ca673Da8FE6757E6f0Be5F77C"),
    token_name="Bridged USDC (Stargate)",  # noqa: S106
    token_symbol="USDC.e",  # noqa: S106
    token_version="2",  # noqa: S106 - see decision 2.8/mainnet-domain
)
BASE_SEPOLIA = Network(
    name="base-sepolia",
    chain_id=84532,
    asset=parse_address("0x036CbD53842c5426634e7929541eC2318f3dCF7e"),
    token_name="USDC",  # noqa: S106
    token_symbol="USDC",  # noqa: S106
    token_version="2",  # noqa: S106
)
"""The test network that the public x402 clients and servers know by default."""


def _usdc(name: str, chain_id: int, asset: str) -> Network:
    """Return a network with Circle's own USDC."""
    return Network(name, chain_id, parse_address(asset), "USD Coin", "USDC", "2")


BASE = _usdc("base", 8453, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")
POLYGON = _usdc("polygon", 137, "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359")
AVALANCHE = _usdc("avalanche", 43114, "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E")
FUJI = _usdc("avalanche-fuji", 43113, "0x5425890298aed601595a70AB815c96711a31Bc65")
NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (TESTNET, MAINNET, BASE_SEPOLIA, BASE, POLYGON, AVALANCHE, FUJI)
}
TEST_CHAIN_IDS = frozenset({338, 84532, 43113, 11155111, 1337, 31337})
"""Cronos testnet, Base Sepolia, Fuji, Sepolia, and what local nodes use."""


def network_named(name: str, networks: Mapping[str, Network] = NETWORKS) -> Network:
    """Return the network of that name (2.8/networks); raises `ValueError` naming those known."""
    try:
        return networks[name]
    except KeyError:
        raise ValueError(unknown("network", name, networks)) from None


def networks_of(given: Network | str | Sequence[Network | str]) -> list[Network]:
    """Return one network or several, which may be names of `NETWORKS`.

    Raises `ValueError` for an unknown name, and for anything else.
    """
    several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    found = [network_named(each) if isinstance(each, str) else each for each in several]
    if not found or not all(isinstance(each, Network) for each in found):
        raise ValueError(f"network: expected a network, its name, or a list of them, got {given!r}")
    return found
