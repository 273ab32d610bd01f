import pytest

from x402sim.protocol.crypto import checksum
from x402sim.protocol.eip3009 import Domain
from x402sim.protocol.networks import BASE, BASE_SEPOLIA, MAINNET, NETWORKS, TESTNET, network_named


@pytest.mark.clause("2.8/networks")
@pytest.mark.parametrize(
    ("network", "name", "chain_id", "asset", "symbol", "version"),
    [
        (
            TESTNET,
            "cronos-testnet",
            338,
            "0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0",
            "devUSDC.e",
            "1",
        ),
        (
            MAINNET,
            "cronos-mainnet",
            25,
            "0xf951eC28187D9E5Ca673Da8FE6757E6f0Be5F77C",
            "USDC.e",
            "2",
        ),
    ],
    ids=["testnet", "mainnet"],
)
def test_a_network_is_as_published(network, name, chain_id, asset, symbol, version):
    assert (network.name, network.chain_id) == (name, chain_id)
    assert checksum(network.asset) == asset
    assert (network.token_name, network.token_symbol) == ("Bridged USDC (Stargate)", symbol)
    assert (network.token_version, network.decimals) == (version, 6)
    assert network.domain == Domain("Bridged USDC (Stargate)", version, chain_id, network.asset)


def test_base_sepolia_is_what_the_public_clients_know():
    """The version 2 default asset of the public SDKs, and its version 1 name."""
    assert (BASE_SEPOLIA.name, BASE_SEPOLIA.caip2) == ("base-sepolia", "eip155:84532")
    assert checksum(BASE_SEPOLIA.asset) == "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
    assert BASE_SEPOLIA.domain == Domain("USDC", "2", 84532, BASE_SEPOLIA.asset)
    tests = [each.name for each in NETWORKS.values() if each.is_test]
    assert tests == ["cronos-testnet", "base-sepolia", "avalanche-fuji"]
    assert BASE.domain == Domain("USD Coin", "2", 8453, BASE.asset)


@pytest.mark.clause("2.8/networks")
def test_a_network_is_found_by_its_name():
    assert [network_named(name) for name in NETWORKS] == list(NETWORKS.values())
    assert len({each.chain_id for each in NETWORKS.values()}) == len(NETWORKS)


@pytest.mark.clause("2.8/networks")
@pytest.mark.parametrize("name", ["cronos", "", "CRONOS-TESTNET", "338"])
def test_an_unknown_network_is_refused_naming_those_known(name):
    with pytest.raises(ValueError) as refused:
        network_named(name)
    assert repr(name) in str(refused.value)
    assert "cronos-testnet, cronos-mainnet" in str(refused.value)
