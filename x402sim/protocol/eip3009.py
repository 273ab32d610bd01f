"""EIP-3009 authorizations and EIP-2612 permits: the messages, their EIP-712 digests, and the
token's own time rule.

Clauses: 5/signature-proves, 5/window.
"""

from collections.abc import Collection
from functools import lru_cache

import msgspec
from msgspec.structs import astuple

from x402sim.protocol.crypto import Address, keccak256, words

_TERMS = (
    "address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"
)
TRANSFER_TYPEHASH = keccak256(f"TransferWithAuthorization({_TERMS})".encode())
RECEIVE_TYPEHASH = keccak256(f"ReceiveWithAuthorization({_TERMS})".encode())
CANCEL_TYPEHASH = keccak256(b"CancelAuthorization(address authorizer,bytes32 nonce)")
PERMIT_TYPEHASH = keccak256(
    b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
)
_DOMAIN_TYPEHASH = keccak256(
    b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)


class Domain(msgspec.Struct, frozen=True):
    """The EIP-712 domain of a token: name, version, chain and contract."""

    name: str
    version: str
    chain_id: int
    verifying_contract: Address


class Authorization(msgspec.Struct, frozen=True):
    """The EIP-3009 message: `value` in base units, times in Unix seconds, `nonce` 32 bytes."""

    from_: Address
    to: Address
    value: int
    valid_after: int
    valid_before: int
    nonce: bytes


class Permit(msgspec.Struct, frozen=True):
    """EIP-2612's message: `value` in base units, `deadline` in Unix seconds, `nonce` the owner's
    next.
    """

    owner: Address
    spender: Address
    value: int
    nonce: int
    deadline: int


@lru_cache(maxsize=64)
def separator(domain: Domain) -> bytes:
    """Return the EIP-712 domain separator."""
    texts = keccak256(domain.name.encode()) + keccak256(domain.version.encode())
    there = words(domain.chain_id, domain.verifying_contract)
    return keccak256(_DOMAIN_TYPEHASH + texts + there)


DOMAIN_FIELDS = {
    "name": "string name",
    "version": "string version",
    "chainId": "uint256 chainId",
    "verifyingContract": "address verifyingContract",
}
"""The fields of the token's domain, as declared by EIP-712."""


def partial_digest(auth: Authorization, domain: Domain, names: Collection[str]) -> bytes:
    """Return the 32 bytes to sign for a wallet whose EIP712Domain has only some fields."""
    declared = ",".join(DOMAIN_FIELDS[name] for name in DOMAIN_FIELDS if name in names)
    values: dict[str, int | bytes] = {
        "name": keccak256(domain.name.encode()),
        "version": keccak256(domain.version.encode()),
        "chainId": domain.chain_id,
        "verifyingContract": domain.verifying_contract,
    }
    there = words(*(value for name, value in values.items() if name in names))
    partial = keccak256(keccak256(f"EIP712Domain({declared})".encode()) + there)
    return keccak256(b"\x19\x01" + partial + _struct(TRANSFER_TYPEHASH, *astuple(auth)))


def digest(domain: Domain, typehash: bytes, *fields: int | bytes) -> bytes:
    """Return the 32 bytes that are signed for a message whose fields are single words (EIP-712)."""
    return keccak256(b"\x19\x01" + separator(domain) + _struct(typehash, *fields))


def _struct(typehash: bytes, *fields: int | bytes) -> bytes:
    return keccak256(typehash + words(*fields))


@lru_cache(maxsize=4096)
def transfer_digest(
    auth: Authorization, domain: Domain, typehash: bytes = TRANSFER_TYPEHASH
) -> bytes:
    """Return the 32 bytes a payer signs: exact amount, exact recipient, one window, one nonce.

    Clause 5/signature-proves: a change of any field changes the digest, and so the recovered
    signer. `typehash` is `RECEIVE_TYPEHASH` for receiveWithAuthorization. Cached, as `recover` is.
    """
    return digest(domain, typehash, *astuple(auth))


def cancel_digest(authorizer: Address, nonce: bytes, domain: Domain) -> bytes:
    """Return the 32 bytes an authorizer signs to cancel a nonce."""
    return digest(domain, CANCEL_TYPEHASH, authorizer, nonce)


def permit_digest(permit: Permit, domain: Domain) -> bytes:
    """Return the 32 bytes that an owner signs to allow a spender to take tokens (EIP-2612)."""
    return digest(domain, PERMIT_TYPEHASH, *astuple(permit))


def is_early(auth: Authorization, now_s: int) -> bool:
    """Tell whether the authorization is not yet valid: `now_s` <= validAfter (5/window)."""
    return now_s <= auth.valid_after


def is_late(auth: Authorization, now_s: int) -> bool:
    """Tell whether the authorization has expired: `now_s` >= validBefore (5/window)."""
    return now_s >= auth.valid_before
