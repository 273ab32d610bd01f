"""Reads a user's file of networks, and chooses one.

The file is TOML, one table `[[network]]` for each: name, chain_id, asset, token_name, token_symbol,
token_version and decimals. The name is the network's name in x402 version 1.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from x402sim.protocol.crypto import parse_address
from x402sim.protocol.networks import NETWORKS, TESTNET, Network, network_named
from x402sim.text.toml_file import read_toml


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network in a file of the user's; the address is 0x and 40 hex digits."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
    chain_id: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
    asset: str
    token_name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    token_symbol: Annotated[str, msgspec.Meta(min_length=1, max_length=20)]
    token_version: Annotated[str, msgspec.Meta(min_length=1, max_length=20)]
    decimals: Annotated[int, msgspec.Meta(ge=0, le=36)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file of networks: rows `[[network]]`."""

    network: Annotated[list[_Row], msgspec.Meta(min_length=1)]


def known_networks(file: Path | None) -> Mapping[str, Network]:
    """Return the built-in networks and those of a file, or `ValueError` that says what is wrong."""
    if file is None:
        return NETWORKS
    found = dict(NETWORKS)
    try:
        for row in msgspec.convert(read_toml(file), _Table).network:
            if row.name in found:
                where = "twice in the file"
                if row.name in NETWORKS:
                    where = "built in: choose another name"
                raise ValueError(f"network {row.name!r} is {where}")
            try:
                asset = parse_address(row.asset)
            except ValueError as wrong:
                raise ValueError(f"network {row.name!r}: asset: {wrong}") from None
            found[row.name] = Network(**{**msgspec.structs.asdict(row), "asset": asset})
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except (msgspec.ValidationError, ValueError) as wrong:
        raise ValueError(f"{file}: {wrong}") from None
    return found


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
