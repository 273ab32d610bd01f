"""What a call costs in gas: the yellow paper's prices for what the token really does.

Counted from the storage writes, events and calldata of each call, so that a first
payment to a new account costs more than the next one, as on a real chain. The prices
are those of the Cancun rules (EIP-2028 calldata, EIP-2929 and EIP-3529 storage).
"""

TRANSACTION = 21_000
CALLDATA_ZERO = 4
CALLDATA_NONZERO = 16
SLOT_READ = 2_100
SLOT_NEW = 22_100
SLOT_CHANGED = 5_000
LOG = 375
LOG_TOPIC = 375
LOG_BYTE = 8
ECRECOVER = 3_000
EXECUTION = 1_500
"""Arithmetic, memory, hashing and dispatch of one token call, rounded."""


def intrinsic(data: bytes) -> int:
    """Return the gas a transaction costs before anything runs."""
    zeros = data.count(0)
    return TRANSACTION + CALLDATA_ZERO * zeros + CALLDATA_NONZERO * (len(data) - zeros)


def write(old: object, new: object) -> int:
    """Return the gas of writing one cold storage slot (0, False and None are empty)."""
    return SLOT_NEW if new and not old else SLOT_CHANGED


def log(topics: int, size: int) -> int:
    """Return the gas of one event."""
    return LOG + LOG_TOPIC * topics + LOG_BYTE * size
