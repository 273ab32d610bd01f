"""The deadline of one exchange: at the deadline, the timeouts of a thread's reads and writes end.

httpx's timeouts hold for one read or write each. A server that drips the head of an answer byte by
byte, or sends `100 Continue` forever, renews every timeout, while no code of this package runs. In
asyncio, a task is cancelled at the deadline. A thread cannot be cancelled, and no public API
reaches the socket of a connection that was open before.

So, as nothing else in this package, `Left` relies on an implementation detail, for a promise of
SECURITY.md: httpcore sets the socket's timeout before each read and write, and a socket calls
`__index__` of a number that is no float. `fixed` needs no implementation detail, but stops only a
silent server, not a server that keeps sending. If a release of httpcore breaks `Left`, set
`TIMEOUT` to `fixed`.
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
        """The seconds until the deadline; 0 at the deadline and after it."""
        return max(0.0, self._limits.deadline_s - self.elapsed_s())

    def within(self, timeout_s: float | None) -> float:
        """Return a timeout of the caller's client, or the seconds left if they are fewer."""
        return self.left_s if timeout_s is None else min(timeout_s, self.left_s)

    def timeout(self, timeout_s: float | None) -> "Left | float":
        """Return a timeout of the caller's client for the reads and writes of a thread."""
        return TIMEOUT(self, timeout_s)


class Left:
    """A timeout that shrinks: each read or write gets at most the seconds until the deadline.

    In whole seconds, rounded up: a socket accepts a changing number only as an integer.
    """

    def __init__(self, deadline: Deadline, timeout_s: float | None) -> None:
        self._deadline, self._timeout_s = deadline, timeout_s

    def __index__(self) -> int:
        """Return the seconds for the next read or write; raises `TimeoutError` if none are left."""
        if not self._deadline.left_s:
            raise TimeoutError
        return ceil(self._deadline.within(self._timeout_s))


def fixed(deadline: Deadline, timeout_s: float | None) -> float:
    """Return the seconds left now, as the timeout of every read and write to come.

    Never 0, which would make the socket non-blocking.
    """
    return max(deadline.within(timeout_s), _LEAST_S)


_LEAST_S = 0.001
"""The shortest timeout that a socket waits for."""

TIMEOUT: Callable[[Deadline, float | None], Left | float] = Left
"""Makes the timeouts of an exchange in a thread."""
