"""The networks of section 2.8: chain id, token contract and its EIP-712 domain.

Clauses: 2.8/networks.
"""

from dataclasses import dataclass

from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.eip3009 import Domain


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

    @property
    def domain(self) -> Domain:
        """The token's EIP-712 domain."""
        return Domain(self.token_name, self.token_version, self.chain_id, self.asset)


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
NETWORKS = {network.name: network for network in (TESTNET, MAINNET)}


def network_named(name: str) -> Network:
    """Return the network of that name (2.8/networks); raises `ValueError` naming those known."""
    try:
        return NETWORKS[name]
    except KeyError:
        known = ", ".join(NETWORKS)
        raise ValueError(f"unknown network {name!r}; known networks: {known}") from None
