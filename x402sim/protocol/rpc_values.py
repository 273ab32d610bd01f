"""Reads and writes the values of Ethereum's JSON-RPC: quantities, bytes, hashes, addresses.

Bytes are lower-case hex as geth writes them, addresses too; quantities are hex without leading
zeros.
"""

import re
from typing import Any

from x402sim.protocol.crypto import Address, Hash, from_hex
from x402sim.protocol.messages import encode
from x402sim.protocol.money import MAX_UINT256
from x402sim.text.keys import secret_in

Json = dict[str, Any]
_QUANTITY = re.compile("0x(0|[1-9a-fA-F][0-9a-fA-F]{0,63})")
_DECIMAL = re.compile("[0-9]{1,78}")


class BadParams(ValueError):
    """Invalid parameters of a method; the text says what was expected and what was given."""


def quantity(value: int | None) -> str | None:
    """Return an integer as a hex quantity, and None as null."""
    return None if value is None else hex(value)


def shown(value: Any) -> str:
    """Return a value as JSON for an error text, cut to a readable length; of a secret, its kind."""
    try:
        text: str = secret_in(value) or encode(value).decode()
    except RecursionError:  # decoding it left too little stack to encode it
        return "something nested too deeply"
    return text if len(text) <= 80 else text[:77] + "..."


def read_hash(value: Any, what: str = "a hash") -> Hash:
    """Return 32 bytes from 0x and 64 hex digits; raises `BadParams`."""
    return Hash(_fixed(value, 32, what))


def read_address(value: Any, what: str = "an address") -> Address:
    """Return an address from 0x and 40 hex digits of any case; raises `BadParams`."""
    return Address(_fixed(value, 20, what))


def read_quantity(value: Any, what: str = "a quantity") -> int:
    """Return an integer below 2**256 from 0x and hex digits; raises `BadParams`."""
    if isinstance(value, str) and _QUANTITY.fullmatch(value):
        return int(value, 16)
    raise BadParams(f"{what}: expected 0x and hex digits without leading zeros, got {shown(value)}")


def read_number(value: Any, what: str, *, least: int = 0, most: int = MAX_UINT256) -> int:
    """Return an integer from a JSON number, decimal text or a quantity, as test nodes take them.

    It must be from `least` to `most`, because a number in JSON may have any length, and what it is
    added to may not. Raises `BadParams`.
    """
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str):
        is_decimal = _DECIMAL.fullmatch(value)
        number = int(value) if is_decimal else read_quantity(value, what)
    if number is None or not least <= number <= most:
        limit = "below 2**256" if most == MAX_UINT256 else f"to {most}"
        raise BadParams(f"{what}: expected a number from {least} {limit}, got {shown(value)}")
    return number


def read_bytes(value: Any, what: str = "data") -> bytes:
    """Return bytes from 0x and an even number of hex digits; raises `BadParams`."""
    if not isinstance(value, str):
        raise BadParams(f"{what}: expected 0x and pairs of hex digits, got {shown(value)}")
    return _fixed(value, max(0, len(value) - 1) // 2, what)


def read_slot(value: Any) -> bytes:
    """Return the 32 bytes of a storage slot, from a quantity or 64 hex digits; `BadParams`."""
    if isinstance(value, str) and len(value) == 66:
        return read_hash(value, "a slot")
    return read_quantity(value, "a slot").to_bytes(32)


def read_text(value: Any, what: str) -> str:
    """Return a string; raises `BadParams`."""
    if isinstance(value, str):
        return value
    raise BadParams(f"{what}: expected a string, got {shown(value)}")


def read_bool(value: Any, what: str) -> bool:
    """Return true or false; raises `BadParams`."""
    if isinstance(value, bool):
        return value
    raise BadParams(f"{what}: expected true or false, got {shown(value)}")


def read_object(value: Any, what: str) -> Json:
    """Return an object without its null members; raises `BadParams`."""
    if not isinstance(value, dict):
        raise BadParams(f"{what}: expected an object, got {shown(value)}")
    return {name: member for name, member in value.items() if member is not None}


def _fixed(value: Any, size: int, what: str) -> bytes:
    digits = f"0x and {2 * size} hex digits"
    if not isinstance(value, str):
        raise BadParams(f"{what}: expected {digits}, got {shown(value)}")
    try:
        return from_hex(value, size)
    except ValueError:
        raise BadParams(f"{what}: expected {digits}, got {shown(value)}") from None
