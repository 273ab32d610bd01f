"""Permit2's message of a payment, PermitWitnessTransferFrom, and the EIP-712 digest: with the
witness of the x402 proxy for `exact`, or for `upto`.

Permit2 and both proxies have the same address on each chain. The domain has no version, and a nonce
is one bit of a word: in any order, each once.
"""

from functools import lru_cache

import msgspec

from x402sim.protocol.crypto import Address, BadSignature, canonical, keccak256, recover, words

PERMIT2 = Address(bytes.fromhex("000000000022d473030f116ddee9f6b43ac78ba3"))
EXACT_PROXY = Address(bytes.fromhex("402085c248eea27d92e8b30b2c58ed07f9e20001"))
UPTO_PROXY = Address(bytes.fromhex("4020a4f3b7b90cca423b9fabcc0ce57c6c240002"))
OLDER_UPTO_PROXY = Address(bytes.fromhex("402039b3d6e6bec5a02c2c9fd937ac17a6940002"))
"""The proxy of `upto` in @x402/evm 2.9 to 2.11 and in older texts: it moves nothing here."""
CONTRACTS = frozenset((PERMIT2, EXACT_PROXY, UPTO_PROXY))
NAMES = {
    PERMIT2: "Permit2",
    EXACT_PROXY: "exact proxy",
    UPTO_PROXY: "upto proxy",
    OLDER_UPTO_PROXY: "older upto proxy, which moves nothing",
}
"""What people call the contracts."""

_PERMISSIONS = "TokenPermissions(address token,uint256 amount)"
PERMISSIONS_TYPEHASH = keccak256(_PERMISSIONS.encode())
EXACT_WITNESS = "Witness(address to,uint256 validAfter)"
UPTO_WITNESS = "Witness(address to,address facilitator,uint256 validAfter)"
TRANSFER_STUB = (
    "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,"
    "uint256 deadline,"
)
"""The beginning of the type; a proxy adds the type of the witness."""
TRANSFER_TYPEHASH = keccak256(
    "PermitTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,"
    f"uint256 deadline){_PERMISSIONS}".encode()
)
_DOMAIN_TYPEHASH = keccak256(b"EIP712Domain(string name,uint256 chainId,address verifyingContract)")


class Permit2Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """The signed message: at most `amount` base units of `token` from the payer, to `to` alone.

    `spender` is the proxy that may take the money. `facilitator` is the account that may call the
    proxy of `upto`; None for `exact`. `valid_after` and `deadline` are Unix seconds.
    """

    from_: Address
    token: Address
    amount: int
    spender: Address
    nonce: int
    deadline: int
    to: Address
    valid_after: int
    facilitator: Address | None = None


@lru_cache(maxsize=64)
def separator(chain_id: int) -> bytes:
    """Return Permit2's EIP-712 domain separator on a chain."""
    return keccak256(_DOMAIN_TYPEHASH + keccak256(b"Permit2") + words(chain_id, PERMIT2))


def witness_type_string(witness: str) -> str:
    """Return the rest of the type, as passed by a proxy: structs in alphabetical order."""
    return f"Witness witness){_PERMISSIONS}{witness}"


def witness_hash(auth: Permit2Authorization) -> bytes:
    """Return the hash of an authorization's witness."""
    if auth.facilitator is None:
        return _hash(EXACT_WITNESS, auth.to, auth.valid_after)
    return _hash(UPTO_WITNESS, auth.to, auth.facilitator, auth.valid_after)


def _hash(kind: str, *fields: int | bytes) -> bytes:
    return keccak256(keccak256(kind.encode()) + words(*fields))


def typed_digest(
    chain_id: int, typehash: bytes, auth: Permit2Authorization, *witness: bytes
) -> bytes:
    """Return the 32 bytes to sign for a type with one token, given the witness's hash."""
    permitted = keccak256(PERMISSIONS_TYPEHASH + words(auth.token, auth.amount))
    fields = words(permitted, auth.spender, auth.nonce, auth.deadline, *witness)
    return keccak256(b"\x19\x01" + separator(chain_id) + keccak256(typehash + fields))


@lru_cache(maxsize=4096)
def permit2_digest(auth: Permit2Authorization, chain_id: int) -> bytes:
    """Return the 32 bytes that a payer signs; cached, as `recover` is."""
    kind = EXACT_WITNESS if auth.facilitator is None else UPTO_WITNESS
    typehash = keccak256((TRANSFER_STUB + witness_type_string(kind)).encode())
    return typed_digest(chain_id, typehash, auth, witness_hash(auth))


def signer_of(digest: bytes, signature: bytes) -> Address:
    """Return the signer of a signature in a form that Permit2 takes: `s` of either half, or 64
    bytes (EIP-2098), but no `v` of 0 or 1.

    Raises `BadSignature` with the name of Permit2's error.
    """
    if len(signature) not in (64, 65):
        raise BadSignature("InvalidSignatureLength")
    if len(signature) == 64 or signature[64] in (27, 28):
        signature = canonical(signature)
    try:
        return recover(digest, signature)
    except BadSignature:
        raise BadSignature("InvalidSignature") from None
