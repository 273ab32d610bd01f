"""The stated limits of memory, and what exceeds them."""

from typing import Any

UNTIL_CAP_MIB = 50
"""The most that a world may grow until its journal is full."""
AFTER_CAP_MIB = 8
"""The most that it may grow in the 20,000 requests after that: it is flat, but for the allocator."""
PAYMENT = {
    "rss_bytes_per_payment": 16_000,
    "database_bytes_per_payment": 4_000,
    "chain_file_bytes_per_payment": 1_000,
}
"""The most bytes that a payment leaves behind."""


def with_memory(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an attack, with the limits of memory that were exceeded."""
    limits = {
        "rss_grown_until_cap_mib": UNTIL_CAP_MIB,
        "rss_grown_after_cap_mib": AFTER_CAP_MIB,
    }
    return _checked(figures, limits)


def with_payments(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of payments, with the limits that were exceeded."""
    return _checked({**figures, "violated": 0, "violations": []}, PAYMENT)


def _checked(figures: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    wrong = [
        f"{name} is {figures[name]}, and may be {most}"
        for name, most in limits.items()
        if figures[name] > most
    ]
    return {
        **figures,
        "violated": figures["violated"] + len(wrong),
        "violations": [*wrong, *figures["violations"]],
    }
