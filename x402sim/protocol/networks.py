"""The networks of section 2.8: chain id, token contract and the token's EIP-712 domain.

The public clients' networks are built in; any other is a row in a user's file. A `Network` is
handed on: names are looked up only where an option or a file is read.
Clauses: 2.8/networks.

A user's file of networks is TOML, one table `[[network]]` for each: name, chain_id, asset,
token_name, token_symbol, token_version and decimals, and, if it is not 1, base_fee_gwei. The name
is the network's name in x402 version 1. Names and hashes of other chains are recognized, and not
called wrong.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec

from x402sim.protocol.crypto import Address, checksum, parse_address
from x402sim.protocol.eip3009 import Domain
from x402sim.text.toml_file import read_toml
from x402sim.text.words import as_given, unknown


@dataclass(frozen=True, slots=True)
class Network:
    """One selectable network: the name on the wire, the chain and the stablecoin token.

    `asset` is the token's address: 20 bytes, or a text "0x…".
    """

    name: str
    chain_id: int
    asset: Address
    token_name: str
    token_symbol: str
    token_version: str
    decimals: int = 6
    base_fee_gwei: float = field(default=1.0, compare=False)
    """The price of a unit of gas on the chain, or on a simulated chain without an own price."""
    domain: Domain = field(init=False, repr=False, compare=False)
    """The token's EIP-712 domain."""

    def __post_init__(self) -> None:
        given: Any = self.asset
        if isinstance(given, str):
            object.__setattr__(self, "asset", parse_address(given))
        domain = Domain(self.token_name, self.token_version, self.chain_id, self.asset)
        object.__setattr__(self, "domain", domain)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}
        given["asset"] = checksum(self.asset)
        return f"Network({', '.join(f'{name}={it!r}' for name, it in given.items())})"

    @property
    def caip2(self) -> str:
        """The network's name in x402 version 2 (CAIP-2), such as "eip155:84532"."""
        return f"eip155:{self.chain_id}"

    @property
    def base_fee_wei(self) -> int:
        """The base fee of its blocks."""
        return round(self.base_fee_gwei * 10**9)

    @property
    def is_test(self) -> bool:
        """Whether the chain is a known test network, with worthless money."""
        return self.chain_id in TEST_CHAIN_IDS


ChainId = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
Decimals = Annotated[int, msgspec.Meta(ge=0, le=36)]


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network in a file of the user's; the address is 0x and 40 hex digits."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
    chain_id: ChainId
    asset: str
    token_name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    token_symbol: Annotated[str, msgspec.Meta(min_length=1, max_length=20)]
    token_version: Annotated[str, msgspec.Meta(min_length=1, max_length=20)]
    decimals: Decimals
    base_fee_gwei: Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)] = 1.0


def _network(row: _Row) -> Network:
    """Return the network of a row; raises `ValueError` for what is no address."""
    try:
        asset = parse_address(row.asset)
    except ValueError as wrong:
        raise ValueError(f"network {row.name!r}: asset: {wrong}") from None
    return Network(**{**msgspec.structs.asdict(row), "asset": asset})


_BUILT_IN = read_toml(Path(__file__).with_name("networks.toml"))
_ROWS = msgspec.convert(_BUILT_IN["network"], list[_Row])
NETWORKS: Mapping[str, Network] = {row.name: _network(row) for row in _ROWS}
TESTNET = NETWORKS["cronos-testnet"]
MAINNET = NETWORKS["cronos-mainnet"]
BASE_SEPOLIA = NETWORKS["base-sepolia"]
"""The test network that the public x402 clients and servers know by default."""
BASE = NETWORKS["base"]
TEST_CHAIN_IDS = frozenset({338, 84532, 43113, 11155111, 1337, 31337})
"""Cronos testnet, Base Sepolia, Fuji, Sepolia, and what local nodes use."""


def network_named(name: str, networks: Mapping[str, Network] = NETWORKS) -> Network:
    """Return the network of a name (2.8/networks); raises `ValueError` with the known names."""
    try:
        return networks[name]
    except KeyError:
        raise ValueError(unknown("network", name, networks)) from None


def networks_of(given: Network | str | Sequence[Network | str]) -> list[Network]:
    """Return networks, given as such or as names in `NETWORKS`.

    Raises `ValueError` for an unknown name, and for anything else.
    """
    several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    found = [network_named(entry) if isinstance(entry, str) else entry for entry in several]
    if not found or not all(isinstance(network, Network) for network in found):
        raise ValueError(
            f"network: expected a network, its name, or a list of them, got {as_given(given)}"
        )
    return found


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file of networks: rows `[[network]]`."""

    network: Annotated[list[_Row], msgspec.Meta(min_length=1)]


def known_networks(file: Path | None) -> Mapping[str, Network]:
    """Return the built-in networks and a file's networks; raises `ValueError` for a bad file."""
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
            found[row.name] = _network(row)
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except (msgspec.ValidationError, ValueError) as wrong:
        raise ValueError(f"{file}: {wrong}") from None
    return found


def choose_network(name: str | None, file: Path | None) -> Network:
    """Return the network of a name, perhaps from a file.

    Without a name: the file's only network, or the Cronos testnet without a file. Raises
    `ValueError`.
    """
    known = known_networks(file)
    if name is not None:
        return network_named(name, known)
    if file is None:
        return TESTNET
    own = [network for key, network in known.items() if key not in NETWORKS]
    if len(own) > 1:
        raise ValueError(f"{file} has several networks: choose one with --network")
    return own[0]


class Family(Enum):
    """Whose chain a name is."""

    EVM = "an EVM chain"
    OTHER = "another chain"
    UNKNOWN = "no name of a chain"


_CAIP2 = re.compile(r"[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,64}")
"""CAIP-2 allows 32 characters after the colon; some chains take more."""
_EIP155 = re.compile(r"eip155:[1-9][0-9]{0,19}")
V1_IDS: Mapping[str, int] = {
    **{network.name: network.chain_id for network in NETWORKS.values()},
    **_BUILT_IN["v1_ids"],
}
"""The chain ids of version 1's names, including the public libraries' names."""
_OTHERS = re.compile(
    r"(algorand|aptos|avm|bitcoin|cardano|concordium|cosmos|hedera|hypercore|icp|keeta|lightning|"
    r"near|polkadot|solana|stacks|starknet|stellar|sui|svm|ton|tron|xrpl)(-[a-z0-9-]+)?"
)
"""Names of version 1 that are of no EVM chain."""
_EVM_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_SOLANA_HASH = re.compile(r"[1-9A-HJ-NP-Za-km-z]{85,88}")


def family_of(name: Any) -> Family:
    """Return whose chain a network's name is, of any version."""
    if not isinstance(name, str):
        return Family.UNKNOWN
    if ":" in name:
        if name.startswith("eip155:"):
            return Family.EVM if _EIP155.fullmatch(name) else Family.UNKNOWN
        return Family.OTHER if _CAIP2.fullmatch(name) else Family.UNKNOWN
    if name in V1_IDS:
        return Family.EVM
    return Family.OTHER if _OTHERS.fullmatch(name) else Family.UNKNOWN


def chain_id_of(name: Any) -> int | None:
    """Return the chain id of an EVM network's name; None for any other."""
    if family_of(name) is not Family.EVM:
        return None
    return V1_IDS[name] if name in V1_IDS else int(name.partition(":")[2])


def hash_wanted(network: Any) -> str:
    """Return the form of a transaction's hash on a network, in words; "" for an unknown form."""
    if isinstance(network, str) and network.partition(":")[0].partition("-")[0] == "solana":
        return "a signature of Solana: 86 to 88 characters of base58"
    return "" if family_of(network) is Family.OTHER else "0x and 64 hex digits"


def is_hash(text: Any, network: Any) -> bool:
    """Tell whether a text can be the hash of a transaction of a network.

    With an unknown form of hashes, any text but the empty text can. Zeros are no hash: programs
    write zeros for a missing hash.
    """
    if not isinstance(text, str) or not text:
        return False
    wanted = hash_wanted(network)
    if not wanted:
        return True
    if wanted.startswith("a signature"):
        return _SOLANA_HASH.fullmatch(text) is not None
    return _EVM_HASH.fullmatch(text) is not None and int(text, 16) != 0
