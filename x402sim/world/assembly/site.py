"""What all parts of one world share while it is built: clocks, journal, faults, randomness."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from starlette.types import ASGIApp

from x402sim.clock import Clock, SkewedClock
from x402sim.events import Part, ServiceName
from x402sim.facilitator.discovery import Catalogue
from x402sim.facilitator.engine import Facilitator
from x402sim.http.exchange import Transport
from x402sim.journal import Journal
from x402sim.rng import Rng, Stream
from x402sim.service.background import Phases
from x402sim.service.settings import Settings
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.chains.accounts import Accounts
from x402sim.world.transport.faults import Caller, Faults
from x402sim.world.transport.link import Asgi
from x402sim.world.transport.middleware import faulty

ACTORS = ("service", "facilitator", "explorer", "chain")
"""The actors whose clocks can be skewed; others have names of their own."""


MakeLink = Callable[[ServiceName, Part, ASGIApp], Transport]
"""Makes a caller's link to one part ("facilitator", "explorer", "rpc") from its application."""


def _nobody() -> None:
    raise AssertionError("no fault of a facilitator's calls is a crash")


def plain_link(_: str, __: str, app: ASGIApp) -> Transport:
    """Return a link without faults and without latency."""
    return Asgi(app)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of one world share."""

    recipe: Recipe
    clock: Clock
    clocks: Mapping[str, SkewedClock]
    journal: Journal
    faults: Faults
    rng: Rng
    """Draws values that must never repeat, so it is unseeded if something outlives the world."""
    keys: Rng
    """Draws the keys, which depend on the seed in every world."""
    blocks: Stream
    """Draws when blocks come, on every network."""
    accounts: Accounts
    catalogue: Catalogue
    """What the first facilitator lists."""
    link: MakeLink
    facilitators: dict[str, list[Facilitator]] = msgspec.field(default_factory=dict)
    """The facilitators by name: each is one on every network, for the services of every network."""
    first_bug: list[Exception] = msgspec.field(default_factory=list)
    """The first exception that a part of the world did not expect, such as one of a policy."""
    on_bug: list[Callable[[Exception], None]] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, recipe: Recipe, clock: Clock, link: MakeLink, journal: Journal) -> "Site":
        """Return the site of a world; each service and facilitator has a clock of its own."""
        rng, keys = Rng(None if recipe.is_persistent else recipe.seed), Rng(recipe.seed or 0)
        clocks = {actor: SkewedClock(clock) for actor in ACTORS}
        clocks[recipe.first], clocks[recipe.facilitator] = clocks["service"], clocks["facilitator"]
        for name in (*recipe.services, *recipe.facilitators):
            clocks.setdefault(name, SkewedClock(clock))
        return cls(
            recipe=recipe,
            clock=clock,
            clocks=clocks,
            journal=journal,
            faults=Faults(rng.stream("faults"), clock.now),
            rng=rng,
            keys=keys,
            blocks=rng.stream("blocks"),
            accounts=Accounts.drawn(
                keys, recipe.facilitators, mnemonic=recipe.mnemonic, count=recipe.account_count
            ),
            catalogue=Catalogue(clocks["facilitator"]),
            link=link,
        )

    def phases(self, name: ServiceName, settings: Settings) -> Phases:
        """Return when a service's periodic work begins: at the settings' phase, or drawn."""

        def phase(work: str, interval_s: float) -> float:
            if settings.phase is not None:
                return settings.phase
            return self.rng.stream(f"phase of {work} of {name}").uniform(0, interval_s)

        return phase

    def tell(self, bug: Exception) -> None:
        """Tell an unexpected exception to all who listen."""
        self.first_bug[:] = self.first_bug or [bug]
        for listener in self.on_bug:
            listener(bug)

    def listen(self, listener: Callable[[Exception], None]) -> None:
        """Tell a function each unexpected exception, and the first one if it is past."""
        self.on_bug.append(listener)
        for bug in self.first_bug:
            listener(bug)

    def with_faults(
        self,
        name: Part,
        app: ASGIApp,
        paths: Sequence[str],
        crash: Callable[[], None] = _nobody,
        caller: Caller = "service",
    ) -> ASGIApp:
        """Return a part's application with fault injection and recording around it.

        `paths` are those it serves; a fault for any other is an error. `crash` kills the service
        that is asked or asks. A facilitator, the other `caller`, never crashes.
        """
        self.faults.paths[name] = paths
        return faulty(app, name, self.faults, self.journal, self.clock, crash, self.tell, caller)
