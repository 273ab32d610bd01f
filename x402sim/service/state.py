"""One running service: its settings and the collaborators that its functions share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from x402sim.clock import Clock
from x402sim.events import ServiceEvent
from x402sim.http.exchange import Transport
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import FRESHNESS, SETTLEMENT, Presented, Rules
from x402sim.rng import Rng, Stream
from x402sim.service.entitlements import Entitlements
from x402sim.service.issue import Issuer
from x402sim.service.settings import Settings
from x402sim.service.setup import Setup
from x402sim.service.store import Store
from x402sim.service.upstream.explorer import ExplorerClient
from x402sim.service.upstream.facilitator import FacilitatorClient
from x402sim.service.upstream.rpc import RpcClient


class KeyedLocks:
    """One lock per key, kept only while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def hold(self, key: str) -> asyncio.Lock:
        """Return what lets one task in at a time for this key, in `async with`."""
        return self._locks.setdefault(key, asyncio.Lock())


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service at work; `record` writes an event to the journal, `rng` is for its policy.

    Each collaborator is an object that can be replaced by another of its kind.
    """

    setup: Setup
    clock: Clock
    store: Store
    issuer: Issuer
    entitlements: Entitlements
    facilitator: FacilitatorClient
    explorer: ExplorerClient
    rpc: RpcClient
    record: Callable[[ServiceEvent], None] = lambda event: None
    on_bug: Callable[[Exception], None] = lambda bug: None
    """Told what its background work raises, unless only the storage failed."""
    settlement_rules: Rules[Presented, Refusal] = SETTLEMENT
    freshness_rules: Rules[Presented, Refusal] = FRESHNESS
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    """Held for a payment id while its payment moves, and for a session id while it is refunded."""
    rng: Rng = field(default_factory=Rng)
    presented: dict[str, str] = field(default_factory=dict)
    """The payment ids with a header that may still be settled, and their resources, if the policy
    `claim` reserves nothing."""
    answering: set[str] = field(default_factory=set)
    """The payments in one step whose answer this process has begun, and not stored as written."""

    @property
    def settings(self) -> Settings:
        """The numbers and choices of its setup."""
        return self.setup.settings

    def draw(self, about: str, name: str) -> float:
        """Return a number in [0, 1) for a policy, the same whenever it is drawn.

        `about` is a payment id or a session id.
        """
        return self.rng.stream(f"policy: {name} {about}").random()


def connected(setup: Setup, store: Store, to: Transport, clock: Clock, salts: Stream) -> Service:
    """Return a service on its database; `to` reaches whom it calls, payment ids need `salts`."""
    return Service(
        setup=setup,
        clock=clock,
        store=store,
        issuer=Issuer(setup, salts),
        entitlements=Entitlements(setup.settings.entitlement_lifetime_s),
        facilitator=setup.facilitator(to),
        explorer=setup.explorer(to),
        rpc=setup.rpc(to),
    )


def restarted(service: Service) -> Service:
    """Return the service as a restart leaves it: with its database, and nothing in memory."""
    return replace(
        service,
        entitlements=Entitlements(service.settings.entitlement_lifetime_s),
        locks=KeyedLocks(),
        presented={},
        answering=set(),
    )
