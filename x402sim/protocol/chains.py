"""Which chain a network's name stands for, and what the hash of its transactions looks like.

Version 2 writes names of CAIP-2 ("eip155:84532"), version 1 and Cronos words ("base-sepolia").
Only EVM chains are looked at here; others are recognized, so that nobody calls them wrong.
"""

import re
from enum import Enum
from typing import Any

from x402sim.protocol.networks import NETWORKS


class Family(Enum):
    """Whose chain a name is."""

    EVM = "an EVM chain"
    OTHER = "another chain"
    UNKNOWN = "no name of a chain"


_CAIP2 = re.compile(r"[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,64}")
"""CAIP-2 allows 32 characters after the colon; some chains take more."""
_EIP155 = re.compile(r"eip155:[1-9][0-9]{0,19}")
_V1_IDS = {
    "abstract": 2741,
    "abstract-testnet": 11124,
    "celo": 42220,
    "educhain": 656476,
    "ethereum": 1,
    "flare": 14,
    "iotex": 4689,
    "megaeth": 4326,
    "monad": 143,
    "monad-testnet": 10143,
    "peaq": 3338,
    "polygon-amoy": 80002,
    "sei": 1329,
    "sei-testnet": 1328,
    "skale-base-sepolia": 1444673419,
    "stable": 988,
    "stable-testnet": 2201,
    "story": 1513,
}
V1_IDS = {each.name: each.chain_id for each in NETWORKS.values()} | _V1_IDS
"""The chain ids of the names of version 1, those of the public libraries among them."""
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
    """Return what the hash of a transaction is on a network, in words; "" if it is not known."""
    if isinstance(network, str) and network.partition(":")[0].partition("-")[0] == "solana":
        return "a signature of Solana: 86 to 88 characters of base58"
    return "" if family_of(network) is Family.OTHER else "0x and 64 hex digits"


def is_hash(text: Any, network: Any) -> bool:
    """Tell whether a text can be the hash of a transaction of a network.

    Of a chain whose hashes are not known here, any text but an empty one can. A hash of zeros is
    none: programs write it where they have no other.
    """
    if not isinstance(text, str) or not text:
        return False
    wanted = hash_wanted(network)
    if not wanted:
        return True
    if wanted.startswith("a signature"):
        return _SOLANA_HASH.fullmatch(text) is not None
    return _EVM_HASH.fullmatch(text) is not None and int(text, 16) != 0
