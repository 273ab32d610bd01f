"""How large may an answer of the control API be? Its clients know no better than it does."""

from x402sim.http.bounded import MIB

WORLD_ANSWER_BYTES = 8 * MIB
"""Some 40,000 transfers."""
JOURNAL_ANSWER_BYTES = 64 * MIB
"""Some 300,000 events."""
