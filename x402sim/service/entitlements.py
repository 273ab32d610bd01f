"""The entitlement cache (2.5): paid resources by payment id, in memory, for 24 hours.

Clauses: 2.5/entitlement, 3/discarded-after-24h, 8/cache-lifetime, 8/cache-sweep.
"""

import msgspec


class Entitlement(msgspec.Struct, frozen=True):
    """The fields of section 2.5 (2.5/entitlement); `timestamp_ms` is the time of creation."""

    payment_id: str
    resource_url: str
    user_address: str
    timestamp_ms: int


class Entitlements:
    """Entitlements by payment id."""

    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_ms = lifetime_s * 1000
        self._cached: dict[str, Entitlement] = {}

    def __len__(self) -> int:
        return len(self._cached)

    def add(self, entitlement: Entitlement) -> None:
        """Store an entitlement (4.1/cache)."""
        self._cached[entitlement.payment_id] = entitlement

    def all(self) -> list[Entitlement]:
        """Return what is cached."""
        return list(self._cached.values())

    def grants(self, payment_id: str, resource: str, now_ms: int) -> bool:
        """Tell whether a cached entitlement is for exactly this resource (5/cache-first).

        It lives 24 hours, swept or not (8/cache-lifetime).
        """
        found = self._cached.get(payment_id)
        if found is None or found.resource_url != resource:
            return False
        return now_ms - found.timestamp_ms < self._lifetime_ms

    def sweep(self, now_ms: int) -> int:
        """Discard entitlements older than 24 hours (3/discarded-after-24h); return their number."""
        before, oldest_ms = len(self._cached), now_ms - self._lifetime_ms
        self._cached = {k: e for k, e in self._cached.items() if e.timestamp_ms > oldest_ms}
        return before - len(self._cached)

    def remove(self, payment_id: str) -> None:
        """Remove one entitlement, as its payment has failed."""
        self._cached.pop(payment_id, None)

    def clear(self) -> None:
        """Remove every entitlement, as a restart does."""
        self._cached.clear()
