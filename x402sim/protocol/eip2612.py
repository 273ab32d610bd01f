"""EIP-2612 permits: the message with which an owner allows a spender to take tokens."""

import msgspec

from x402sim.protocol.crypto import Address, keccak256
from x402sim.protocol.eip3009 import Domain, separator

PERMIT_TYPEHASH = keccak256(
    b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
)


class Permit(msgspec.Struct, frozen=True):
    """The message: `value` in base units, `deadline` in Unix seconds, `nonce` the owner's next."""

    owner: Address
    spender: Address
    value: int
    nonce: int
    deadline: int


def permit_digest(permit: Permit, domain: Domain) -> bytes:
    """Return the 32 bytes that the owner signs."""
    struct = keccak256(
        PERMIT_TYPEHASH
        + bytes(12)
        + permit.owner
        + bytes(12)
        + permit.spender
        + permit.value.to_bytes(32)
        + permit.nonce.to_bytes(32)
        + permit.deadline.to_bytes(32)
    )
    return keccak256(b"\x19\x01" + separator(domain) + struct)
