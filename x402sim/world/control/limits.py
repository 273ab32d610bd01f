"""How large an answer of the control API may be, for its clients."""

from x402sim.http.bounded import MIB

WORLD_ANSWER_BYTES = 8 * MIB
"""Some 40,000 transfers."""
WORLD_ANSWER_ITEMS = 100_000
"""The arrays and objects in an answer."""
JOURNAL_ANSWER_BYTES = 64 * MIB
"""Some 300,000 events."""
