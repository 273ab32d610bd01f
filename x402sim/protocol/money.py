"""Amounts: integers of base units inside, decimal strings outside, never a float.

Clauses: 2.1/amount (base units as a string), 4.4/max-spend (two fraction digits).
"""

import re
from functools import lru_cache

from x402sim.text.words import as_given

MAX_UINT256 = 2**256 - 1
MAX_STORED = 2**63 - 1
"""The largest integer the service stores (SQLite's)."""

BASE_UNITS = re.compile(r"0|[1-9][0-9]{0,77}")
_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,77})(?:\.([0-9]+))?")


def parse_base(text: str) -> int:
    """Return a canonical string of base units as an integer.

    "10000" is one; "010", "1e4", "+1", " 1", "1.0", "" and 2^256 raise `ValueError`.
    """
    if not BASE_UNITS.fullmatch(text) or int(text) > MAX_UINT256:
        raise ValueError(
            f"expected base units as a plain integer below 2^256, got {as_given(text)}"
        )
    return int(text)


def base_in(value: object) -> int | None:
    """Return the base units in a value of a message; None unless `parse_base` takes it."""
    try:
        return parse_base(value) if isinstance(value, str) else None
    except ValueError:
        return None


def to_base(text: str, decimals: int, *, fraction_digits: int | None = None, name: str = "") -> int:
    """Return a decimal string such as "1.25" in base units, exactly.

    With `fraction_digits` the fraction has exactly as many digits. Raises `ValueError`, or
    `TypeError` for a value other than a text; errors begin with `name`, if given.
    """
    begin = f"{name}: " * bool(name)
    if not isinstance(text, str):
        raise TypeError(f'{begin}an amount is a string such as "0.05", not {as_given(text)}')
    match = _DECIMAL.fullmatch(text)
    if not match:
        raise ValueError(f'{begin}expected a plain decimal such as "1.25", got {as_given(text)}')
    whole, fraction = match[1], match[2] or ""
    if fraction_digits is not None and len(fraction) != fraction_digits:
        wanted = f"exactly {fraction_digits} fraction digits"
        raise ValueError(f"{begin}expected {wanted}, got {as_given(text)}")
    if len(fraction.rstrip("0")) > decimals:
        wanted = f"at most {decimals} fraction digits"
        raise ValueError(f"{begin}expected {wanted}, got {as_given(text)}")
    scale: int = 10**decimals
    return int(whole) * scale + int(fraction[:decimals].ljust(decimals, "0") or 0)


@lru_cache(maxsize=1024)
def to_decimal(amount_base: int, decimals: int) -> str:
    """Return base units as a decimal string with at least two fraction digits.

    Further trailing zeros are left out.
    """
    sign = "-" if amount_base < 0 else ""
    whole, fraction = divmod(abs(amount_base), 10**decimals)
    return f"{sign}{whole}.{f'{fraction:0{decimals}}'.rstrip('0').ljust(2, '0')}"
