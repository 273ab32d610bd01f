"""Exponential backoff: when failed background work is tried again.

The waits are stored beside their records, so that finding what is due costs the same however much
is waiting.
"""

from typing import NamedTuple


class Wait(NamedTuple):
    """Until when a piece of work waits, and the seconds of this wait; 0 if it has not failed."""

    until_s: float
    wait_s: float


def after_failure(last_s: float, bounds_s: tuple[float, float], now_s: float) -> Wait:
    """Return the wait after a failure: twice the last one, between the first and the longest."""
    first_s, longest_s = bounds_s
    wait_s = min(longest_s, max(first_s, 2 * last_s))
    return Wait(now_s + wait_s, wait_s)
