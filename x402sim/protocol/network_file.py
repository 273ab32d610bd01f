"""Reads a user's file of networks, and chooses one.

The file is TOML, one table `[[network]]` for each: name, chain_id, asset, token_name, token_symbol,
token_version and decimals. The name is the network's name in x402 version 1.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from x402sim.protocol.networks import (
    NETWORKS,
    TESTNET,
    Network,
    NetworkTable,
    network_named,
    networks_of,
)
from x402sim.text.toml_file import read_toml


def known_networks(file: Path | None) -> Mapping[str, Network]:
    """Return the built-in networks and those of a file, or `ValueError` that says what is wrong."""
    if file is None:
        return NETWORKS
    try:
        table = msgspec.convert(read_toml(file), NetworkTable)
        return {**NETWORKS, **networks_of(table)}
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except (msgspec.ValidationError, ValueError) as wrong:
        raise ValueError(f"{file}: {wrong}") from None


def choose_network(name: str | None, file: Path | None) -> Network:
    """Return the network of that name, which may stand in a file.

    Without a name it is the file's only network, or the Cronos testnet without a file. Raises
    `ValueError`.
    """
    known = known_networks(file)
    if name is not None:
        return network_named(name, known)
    if file is None:
        return TESTNET
    own = [network for each, network in known.items() if each not in NETWORKS]
    if len(own) > 1:
        raise ValueError(f"{file} has several networks: choose one with --network")
    return own[0]
