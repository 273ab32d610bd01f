"""The deadline of one exchange, and the timeouts that end a thread's reads and writes there.

httpx's timeouts hold for one read or write each, and before the head of an answer is complete
nothing of ours runs between two of them: a server that drips its head, or says `100 Continue` for
ever, renews them. In asyncio a task is cancelled at the deadline. A thread cannot be, and no public
means reaches the socket of a connection that was open before.

So `Left` is the kit's one exception from its rule that nothing of others is used but what they
publish, and keeps a promise of SECURITY.md: httpcore hands a timeout to the socket before each read
and write, and a socket asks a number that is no float for its `__index__`. `fixed` is what can be
done without: a silent server is left at the deadline, but not one that goes on sending. Should a
release end it, `TIMEOUT` is `fixed`.
"""

from collections.abc import Callable
from math import ceil

from x402sim.clock import stopwatch
from x402sim.http.bounded import Limits


class Deadline:
    """The end of one exchange, `limits.deadline_s` from now."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self.elapsed_s = limits, stopwatch()

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 at the deadline and after it."""
        return max(0.0, self._limits.deadline_s - self.elapsed_s())

    def within(self, timeout_s: float | None) -> float:
        """Return a timeout of the caller's client, or what is left if that is less."""
        return self.left_s if timeout_s is None else min(timeout_s, self.left_s)

    def timeout(self, timeout_s: float | None) -> "Left | float":
        """Return a timeout of the caller's client for the reads and writes of a thread."""
        return TIMEOUT(self, timeout_s)


class Left:
    """A timeout of the caller's client that ends at the deadline, too, however often it is used.

    In whole seconds, rounded up: a socket takes no other number that can change.
    """

    def __init__(self, deadline: Deadline, timeout_s: float | None) -> None:
        self._deadline, self._timeout_s = deadline, timeout_s

    def __index__(self) -> int:
        """Return the seconds for the next read or write; raises `TimeoutError` if none are left."""
        if not self._deadline.left_s:
            raise TimeoutError
        return ceil(self._deadline.within(self._timeout_s))


def fixed(deadline: Deadline, timeout_s: float | None) -> float:
    """Return what is left now, for each of the reads and writes to come.

    Not 0: that is no timeout for a socket, but one that does not wait, whose error is another.
    """
    return max(deadline.within(timeout_s), _LEAST_S)


_LEAST_S = 0.001
"""The shortest timeout that a socket waits for."""

TIMEOUT: Callable[[Deadline, float | None], Left | float] = Left
"""Makes the timeouts of an exchange in a thread."""
