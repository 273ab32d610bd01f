"""When is a failed piece of background work tried again? After longer and longer waits."""

from collections.abc import Hashable


class Backoff:
    """The waits of pieces of work that have failed, by key; each wait is twice the one before.

    It is in memory only: after a restart everything is tried at once. Times are in seconds.
    """

    def __init__(self, *, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._waits: dict[Hashable, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def is_due(self, key: Hashable, now_s: float) -> bool:
        """Tell whether a piece of work may be tried now."""
        due_s, _ = self._waits.get(key, (now_s, 0))
        return now_s >= due_s

    def failed(self, key: Hashable, now_s: float) -> float:
        """Note a failure; return the seconds until the next try."""
        _, last_s = self._waits.get(key, (now_s, 0.0))
        wait_s = min(self._most_s, max(self._first_s, 2 * last_s))
        self._waits[key] = now_s + wait_s, wait_s
        return wait_s

    def done(self, key: Hashable) -> None:
        """Forget a piece of work that is done."""
        self._waits.pop(key, None)

    def keep(self, keys: set[Hashable]) -> None:
        """Forget all other pieces of work."""
        self._waits = {key: wait for key, wait in self._waits.items() if key in keys}
