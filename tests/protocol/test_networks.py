import pytest

from x402sim.protocol.crypto import checksum
from x402sim.protocol.eip3009 import Domain
from x402sim.protocol.networks import (
    BASE,
    BASE_SEPOLIA,
    MAINNET,
    NETWORKS,
    TESTNET,
    Network,
    network_named,
)

STARGATE = "Bridged USDC (Stargate)"
PUBLISHED = [
    (TESTNET, "cronos-testnet", 338, "0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0", STARGATE,
     "devUSDC.e", "1"),
    (MAINNET, "cronos-mainnet", 25, "0xf951eC28187D9E5Ca673Da8FE6757E6f0Be5F77C", STARGATE,
     "USDC.e", "2"),
    (BASE_SEPOLIA, "base-sepolia", 84532, "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC",
     "USDC", "2"),
    (BASE, "base", 8453, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin", "USDC", "2"),
]  # fmt: skip
"""As section 2.8 publishes them, and as the public SDKs know them."""


@pytest.mark.clause("2.8/networks")
@pytest.mark.parametrize("published", PUBLISHED, ids=lambda row: row[1])
def test_a_network_is_as_published(published):
    network, name, chain_id, asset, token, symbol, version = published
    assert (network.name, network.chain_id, network.decimals) == (name, chain_id, 6)
    assert (checksum(network.asset), network.token_symbol) == (asset, symbol)
    assert network.domain == Domain(token, version, chain_id, network.asset)
    assert network.caip2 == f"eip155:{chain_id}"


@pytest.mark.clause("2.8/networks")
def test_a_network_is_found_by_its_name():
    assert [network_named(name) for name in NETWORKS] == list(NETWORKS.values())
    assert len({each.chain_id for each in NETWORKS.values()}) == len(NETWORKS)
    tests = [each.name for each in NETWORKS.values() if each.is_test]
    assert tests == ["cronos-testnet", "base-sepolia", "avalanche-fuji"]


@pytest.mark.clause("2.8/networks")
@pytest.mark.parametrize("name", ["cronos", "", "CRONOS-TESTNET", "338"])
def test_an_unknown_network_is_refused_naming_those_known(name):
    with pytest.raises(ValueError) as refused:
        network_named(name)
    assert repr(name) in str(refused.value)
    assert "cronos-testnet, cronos-mainnet" in str(refused.value)


def test_a_network_shows_its_token_as_an_address_and_takes_one() -> None:
    for network in NETWORKS.values():
        assert f"asset='{checksum(network.asset)}'" in repr(network)
        assert eval(repr(network), {"Network": Network}) == network
