"""Keeps private keys out of messages: a value that may be a secret is named, and not shown.

A key in the wrong place is a common mistake, and the error text goes to a terminal or to a log of
CI. 64 hex digits may also be a hash; no message needs to repeat a hash that the user gave.
"""

import re
from typing import Any

KEY = "what looks like a private key"
PHRASE = "what looks like words of a mnemonic"
_HEX = re.compile(
    r"0[xX][0-9a-fA-F]{64,}|(?<![0-9a-fA-F])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{64,}"  # no decimal number
)
_WORDS = re.compile(r"""\b(?:[a-z]{3,8}\b["'\s,]+){5,}[a-z]{3,8}\b""")
"""Six or more words in a row, as BIP-39 has them."""
_LEAST_KEY = 1 << 224
"""A whole number from here on may be a key; of four billion keys one is smaller."""


def secret_in(value: Any) -> str:
    """Return the kind of secret that a value is or holds; else an empty text.

    Secrets are 32 bytes, 64 or more hex digits in a row, a whole number as large as a key, and six
    or more words of a mnemonic, also in a list, a mapping or the `repr` of an object.
    """
    if isinstance(value, int):
        return KEY if value >= _LEAST_KEY else ""
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        return KEY if len(raw) == 32 else _named(raw.decode("latin-1"))
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        found = next(filter(None, map(secret_in, value)), "")
        return found or _named(" ".join(each for each in value if isinstance(each, str)))
    return _named(value if isinstance(value, str) else repr(value))


def _named(text: str) -> str:
    """Return what a text looks like if a secret is in it; else an empty text."""
    if found := _HEX.search(text):
        digits = len(found[0].lower().removeprefix("0x"))
        return KEY if digits == 64 else f"a text with {digits} hex digits"
    return PHRASE if _WORDS.search(text) else ""


def keyless(text: str) -> str:
    """Return a text in which every run of 64 or more hex digits is hidden."""
    return _HEX.sub("<hidden>", text)
