"""Which numbers may a policy be given?"""

import math


def require_share(name: str, value: float) -> None:
    """Raise `ValueError` unless a value is a probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: expected a probability from 0 to 1, got {value!r}")


def require_seconds(name: str, value: float) -> None:
    """Raise `ValueError` unless a value is a finite time from 0."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: expected seconds from 0, got {value!r}")


def require_amount(name: str, value: int) -> None:
    """Raise `ValueError` unless a value is a whole number of base units."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}: expected base units, a whole number from 0, got {value!r}")
