"""One running service: the collaborators shared by all functions, and the state in memory.

The entitlements (2.5) say which payment id has paid for which resource. They are in memory only,
for 24 hours.
Clauses: 2.5/entitlement, 3/discarded-after-24h, 8/cache-lifetime, 8/cache-sweep.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import msgspec

from x402sim.clock import Clock
from x402sim.events import ServiceEvent
from x402sim.http.exchange import Transport
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import FRESHNESS, SETTLEMENT, Presented, Rules
from x402sim.rng import Rng, Stream
from x402sim.service.environment import Environment
from x402sim.service.issue import Issuer
from x402sim.service.store import Store
from x402sim.service.upstream.chain import ExplorerClient, RpcClient
from x402sim.service.upstream.facilitator import FacilitatorClient
from x402sim.service.upstream.standard import StandardFacilitator
from x402sim.service.upstream.upto import UptoFacilitator


class Entitlement(msgspec.Struct, frozen=True, gc=False):
    """The fields of section 2.5 (2.5/entitlement); `timestamp_ms` is the time of creation."""

    payment_id: str
    resource_url: str
    user_address: str
    timestamp_ms: int


class Entitlements:
    """Entitlements by payment id.

    Another service of a world on the same `store` may undo a settled payment. So whenever a record
    may have been undone (`Database.taken_back` changes), the record of each entitlement is read
    once more before the entitlement grants again.
    """

    def __init__(self, lifetime_s: float, store: Store) -> None:
        self._lifetime_ms = lifetime_s * 1000
        self._cached: dict[str, Entitlement] = {}
        self._store = store
        self._taken_back, self._checked = store.taken_back(), set[str]()
        """The payment ids whose records were read as settled under this number."""

    def __len__(self) -> int:
        """Return how many entitlements have a settled record now."""
        known = [
            (payment_id, entitlement.resource_url)
            for payment_id, entitlement in self._cached.items()
        ]
        return sum(self._is_good(*pair) for pair in known)

    def add(self, entitlement: Entitlement) -> None:
        """Store an entitlement (4.1/cache), whose record this service has just settled."""
        self._cached[entitlement.payment_id] = entitlement
        self._checked.add(entitlement.payment_id)

    def all(self) -> list[Entitlement]:
        """Return every entitlement that is cached."""
        return list(self._cached.values())

    def grants(self, payment_id: str, resource: str, now_ms: int) -> bool:
        """Tell whether a cached entitlement is for exactly this resource (5/cache-first).

        An entitlement ends after 24 hours, even if no sweep has discarded it (8/cache-lifetime).
        """
        found = self._cached.get(payment_id)
        if found is None or found.resource_url != resource:
            return False
        return now_ms - found.timestamp_ms < self._lifetime_ms and self._is_good(
            payment_id, resource
        )

    def _is_good(self, payment_id: str, resource: str) -> bool:
        """Tell whether the record of a cached entitlement is settled; if not, remove it."""
        if (taken_back := self._store.taken_back()) != self._taken_back:
            self._taken_back, self._checked = taken_back, set()
        if payment_id in self._checked:
            return True
        if not self._store.payments.grants(payment_id, resource):
            del self._cached[payment_id]
            return False
        self._checked.add(payment_id)
        return True

    def sweep(self, now_ms: int) -> int:
        """Discard entitlements older than 24 hours (3/discarded-after-24h); return their number."""
        before, oldest_ms = len(self._cached), now_ms - self._lifetime_ms
        self._cached = {k: e for k, e in self._cached.items() if e.timestamp_ms > oldest_ms}
        self._checked &= self._cached.keys()
        return before - len(self._cached)

    def clear(self) -> None:
        """Remove every entitlement, as a restart does."""
        self._cached.clear()
        self._checked.clear()


class KeyedLocks:
    """Locks by key; a lock exists only while a task holds it or waits.

    The dictionary is weak, or it would grow with every payment id that anybody sends.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def hold(self, key: str) -> asyncio.Lock:
        """Return the lock of this key, for `async with`."""
        return self._locks.setdefault(key, asyncio.Lock())


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service at work; `record` writes an event to the journal, `rng` is for its policy.

    Each collaborator is an object that can be replaced by another of its kind.
    """

    env: Environment
    clock: Clock
    store: Store
    issuer: Issuer
    entitlements: Entitlements
    facilitator: FacilitatorClient | StandardFacilitator
    upto: UptoFacilitator
    explorer: ExplorerClient | RpcClient
    rpc: RpcClient
    record: Callable[[ServiceEvent], None] = lambda event: None
    on_bug: Callable[[Exception], None] = lambda bug: None
    """Called with what its background work raises, unless only the storage failed."""
    settlement_rules: Rules[Presented, Refusal] = SETTLEMENT
    freshness_rules: Rules[Presented, Refusal] = FRESHNESS
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    """Held for a payment id while its payment moves, and for a session id while it is refunded."""
    rng: Rng = field(default_factory=Rng)
    unreserved_in_flight: dict[str, str] = field(default_factory=dict)
    """The payment ids that are being settled now, and their resources; used only if the policy
    `claim` reserves nothing."""
    answering: set[str] = field(default_factory=set)
    """The one-step payments with an answer taken by this service and not yet recorded as
    written."""
    at_work: dict[str, int] = field(default_factory=dict)
    """The base units of each session for which an answer is being made."""
    debits_to_undo: list[tuple[str, int, str]] = field(default_factory=list)
    """Session id, base units and resource of the debits without an answer that the database could
    not undo. Each sweep tries again, and so does the end of the process. A crash loses the list; a
    reverted or cleared database has no such debits any more."""

    def draw(self, about: str, name: str) -> float:
        """Return a number in [0, 1) for a policy, the same whenever it is drawn.

        `about` is a payment id or a session id.
        """
        return self.rng.stream(f"policy: {name} {about}").random()


def connected(
    env: Environment, store: Store, to: Transport, clock: Clock, salts: Stream
) -> Service:
    """Return a service on its database.

    `to` sends its requests to the other parts, and `salts` are the random parts of its payment ids.
    """
    return Service(
        env=env,
        clock=clock,
        store=store,
        issuer=Issuer(env, salts),
        entitlements=Entitlements(env.settings.entitlement_lifetime_s, store),
        facilitator=env.facilitator(to),
        upto=env.upto(to),
        explorer=env.explorer(to),
        rpc=env.rpc(to),
    )


def restarted(service: Service) -> Service:
    """Return the service after a restart: with the database, and nothing in memory.

    Answers that the ended service was writing are free for the services on the same store.
    """
    service.answering.clear()
    return replace(
        service,
        entitlements=Entitlements(service.env.settings.entitlement_lifetime_s, service.store),
        locks=KeyedLocks(),
        unreserved_in_flight={},
        answering=set(),
        debits_to_undo=[],
    )
