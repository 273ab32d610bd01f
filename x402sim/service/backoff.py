"""When is a failed piece of background work tried again? After longer and longer waits."""

import math
from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


class Backoff:
    """The waits of pieces of work that have failed, by key; each wait is twice the one before.

    It is in memory only: after a restart everything is tried at once. Times are in seconds.
    """

    def __init__(self, *, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._waits: dict[Hashable, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def due(self, keys: Iterable[Key], now_s: float) -> list[Key]:
        """Return the pieces of work that may be tried now: new ones, then the longest due."""

        def due_s(key: Hashable) -> float:
            return self._waits.get(key, (-math.inf, 0.0))[0]

        return sorted((key for key in keys if due_s(key) <= now_s), key=due_s)

    def failed(self, key: Hashable, now_s: float) -> float:
        """Note a failure; return the seconds until the next try."""
        _, last_s = self._waits.get(key, (now_s, 0.0))
        wait_s = min(self._most_s, max(self._first_s, 2 * last_s))
        self._waits[key] = now_s + wait_s, wait_s
        return wait_s

    def put_off(self, key: Hashable, until_s: float) -> None:
        """Try a piece of work at this time, and not before."""
        self._waits[key] = until_s, 0.0

    def done(self, key: Hashable) -> None:
        """Forget a piece of work that is done."""
        self._waits.pop(key, None)

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget all other pieces of work."""
        self._waits = {key: wait for key, wait in self._waits.items() if key in keys}
