"""Keccak, secp256k1 and addresses, as wrappers of libraries.

`recover` refuses the same signatures as Circle's ECRecover, with the same texts: a signature of the
wrong length, with a high `s`, with a `v` other than 27 or 28, or without a recoverable key.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import NewType

from btclib_secp256k1 import keys, recovery
from tiny_keccak import keccak256 as _keccak256

keccak256: Callable[[bytes], bytes] = _keccak256
"""The 32-byte Keccak-256 hash of some bytes."""
Address = NewType("Address", bytes)
"""20 bytes."""
Hash = NewType("Hash", bytes)
"""32 bytes."""

ZERO_ADDRESS = Address(bytes(20))
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
ORDER = 2 * HALF_ORDER + 1
UNDEPLOYED = bytes.fromhex("6492" * 16)
"""The end of a signature wrapped with the call to deploy the wallet (EIP-6492)."""
LONGEST_SHOWN = 50
"""Errors do not show longer texts in place of hex: an address has 42 characters, a key 64."""


class BadSignature(Exception):
    """A signature refused by the token's ECRecover library; the text is the revert reason."""


class PrivateKey:
    """A private key of secp256k1: 32 bytes, none of them in the text."""

    __slots__ = ("secret",)

    def __init__(self, secret: str | bytes) -> None:
        """Take 32 bytes, or 0x and 64 hex digits; raises `ValueError` for what is no key."""
        self.secret = parse_key(secret)

    @property
    def address(self) -> Address:
        """The address of the key's account; computed anew each time."""
        return _address(keys.pubkey_from_prvkey(self.secret, compressed=False))


def _address(public_key: bytes) -> Address:
    """Return the account address of an uncompressed public key, 65 bytes."""
    return Address(keccak256(public_key[1:])[12:])


def sign(digest: bytes, key: PrivateKey) -> bytes:
    """Return the 65-byte signature r || s || v of a 32-byte digest; s is low, v is 27 or 28."""
    signature, recovery_id = recovery.sign(digest, key.secret, verify=False)
    return signature + bytes([27 + recovery_id])


@lru_cache(maxsize=4096)
def recover(digest: bytes, signature: bytes) -> Address:
    """Return the signer's address. Cached; recovery dominates the cost.

    In one process the facilitator and the token each recover the same signature twice.
    Raises `BadSignature` with the revert reason of FiatToken v2.2's ECRecover.
    """
    if len(signature) != 65:
        raise BadSignature("ECRecover: invalid signature length")
    if int.from_bytes(signature[32:64]) > HALF_ORDER:
        raise BadSignature("ECRecover: invalid signature 's' value")
    v = signature[64]
    if v not in (27, 28):
        raise BadSignature("ECRecover: invalid signature 'v' value")
    try:
        public_key = recovery.recover(digest, signature[:64], v - 27, compressed=False)
    except ValueError as error:
        raise BadSignature("ECRecover: invalid signature") from error
    return _address(public_key)


def canonical(signature: bytes) -> bytes:
    """Return the token's form of a signature, if any.

    Every observer of another form can write this form: of 64 bytes (EIP-2098), `v` 0 or 1, or the
    upper half of `s`.
    """
    if len(signature) == 64:
        s = int.from_bytes(signature[32:])
        signature = signature[:32] + (s % 2**255).to_bytes(32) + bytes([27 + (s >> 255)])
    if len(signature) != 65:
        return signature
    r, s, v = signature[:32], int.from_bytes(signature[32:64]), signature[64]
    if v in (0, 1):
        v += 27
    if HALF_ORDER < s <= 2 * HALF_ORDER and v in (27, 28):
        s, v = ORDER - s, 55 - v
    return r + s.to_bytes(32) + bytes([v])


def unwrapped(signature: bytes) -> bytes:
    """Return the signature in a wrapper of EIP-6492: abi.encode(factory, call, signature) before
    `UNDEPLOYED`. Anything but a wrapper is returned unchanged.
    """
    if not signature.endswith(UNDEPLOYED):
        return signature
    content = signature[: -len(UNDEPLOYED)]
    start = int.from_bytes(content[64:96]) + 32
    size = int.from_bytes(content[start - 32 : start])
    inner = content[start : start + size]
    return inner if 96 < start <= start + size <= len(content) else signature


def low_v(signature: bytes) -> int | None:
    """Return the `v` of a 65-byte signature with `v` 0 or 1, as by hardware and cloud signers;
    None for any other. The token takes 27 or 28.
    """
    return signature[64] if len(signature) == 65 and signature[64] in (0, 1) else None


def from_hex(text: str, size: int) -> bytes:
    """Return the `size` bytes written as 0x and hex digits; raises `ValueError` otherwise."""
    if len(text) == 2 + 2 * size and text.startswith("0x"):
        try:
            raw = bytes.fromhex(text[2:])
        except ValueError:
            raw = b""
        if len(raw) == size:  # it leaves out spaces
            return raw
    raise ValueError(f"expected 0x and {2 * size} hex digits, got {_shown(text)}")


def _shown(text: str) -> str:
    """Return a description of a text in place of hex; perhaps a private key in the wrong place."""
    shown = repr(text) if len(text) <= LONGEST_SHOWN else f"{len(text)} characters"
    return shown + " without 0x in front" * bool(re.fullmatch("[0-9a-fA-F]*", text))


def parse_key(key: str | bytes) -> bytes:
    """Return the 32 bytes of a private key, given them or 0x and 64 hex digits.

    Raises `ValueError` for anything but a key of secp256k1, without showing the value.
    """
    raw = key if isinstance(key, bytes) else b""
    if isinstance(key, str):
        with suppress(ValueError):
            raw = from_hex(key, 32)
        if not raw:
            how = "" if key.startswith("0x") else " without 0x in front"
            raise ValueError(
                f"a private key is 0x and 64 hex digits, got {len(key)} characters{how}"
            )
    if len(raw) != 32:
        raise ValueError(f"a private key is 32 bytes, got {len(raw)} bytes")
    if not 0 < int.from_bytes(raw) < ORDER:
        raise ValueError("a private key is a number above 0 and below the order of secp256k1")
    return raw


def words(*values: int | bytes) -> bytes:
    """Return 32-byte words, each an integer, an address, or 32 bytes."""
    return b"".join([v.to_bytes(32) if isinstance(v, int) else v.rjust(32, b"\0") for v in values])


def to_hex(value: bytes) -> str:
    """Return bytes as 0x and lower-case hex."""
    return "0x" + value.hex()


def parse_address(text: str) -> Address:
    """Return the address written as 0x and 40 hex digits of any case; raises `ValueError`."""
    return Address(from_hex(text, 20))


@lru_cache(maxsize=4096)
def checksum(address: Address) -> str:
    """Return the EIP-55 spelling: a letter is upper-case where the hash has a digit from 8 on."""
    digits = address.hex()
    hashed = keccak256(digits.encode()).hex()
    pairs = zip(digits, hashed, strict=False)
    return "0x" + "".join(each.upper() if at > "7" else each for each, at in pairs)
