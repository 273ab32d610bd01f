"""A stage: where a world is played, open for a scenario."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from x402sim.clock import Clock
from x402sim.events import OUTSIDE, Part, ServiceName, StoryEvent
from x402sim.http.exchange import Transport
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import Network
from x402sim.rng import Rng, Stream, later
from x402sim.spec.needs import Need
from x402sim.text.suggest import unknown
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.client import ControlClient
from x402sim.world.control.messages import Sent
from x402sim.world.transport.client import PartClient
from x402sim.world.transport.link import Link
from x402sim.world.world import World

START_S = 1_800_000_000
"""The start of every simulation, in Unix seconds: 15 January 2027, 08:00 UTC."""
PAYER_TIMEOUT_S = 90.0
"""Seconds that a payer waits for an answer; more than a service waits for its facilitator."""


Door = tuple[Callable[[], Transport], str]
"""How payers reach a part: a function that makes a transport to it, and its base URL."""


class Stage(msgspec.Struct, kw_only=True):
    """A stage with a world, open, and what its control API answers."""

    options: World
    """Those of the world; at a URL, only what concerns the scenario itself."""
    clock: Clock
    rng: Rng
    journal: Journal
    link: Callable[..., Link]
    """Makes a link, all of which share clock, journal and the numbers of the exchanges."""
    network: Network
    """The network of the world's first service, or the one that was chosen if it is unknown."""
    doors: dict[Part, Door]
    """The doors of the services, the one that payers use first, and of the facilitator."""
    offers: frozenset[Need]
    control: ControlClient | None
    """The client of the control API; None without one."""
    advance: Callable[[float], Awaitable[None]]
    """Advances the world's time by a number of seconds."""
    ahead_s: Callable[[], float] = lambda: 0.0
    """Returns how far a server's clock is left ahead of real time, if it was advanced here."""
    parts: RunningWorld | None = None
    """The world's parts, if it runs in this process."""
    another_service: Callable[[bool, dict[str, Any]], Awaitable[ServiceName]] | None = None
    """Starts another service, on the first one's database or not, and returns its name.

    Only in a world of our own.
    """
    funded: Wallet | None = None
    """The only wallet with tokens, if the control API cannot fund payers."""
    clients: list[PartClient] = msgspec.field(default_factory=list)
    """The clients that were made, to be closed at the end."""
    last_exchange: int = 0
    """The number of the newest exchange of a payer, which checks refer to by default."""

    @property
    def services(self) -> tuple[ServiceName, ...]:
        """The names of the services; payers use the first unless they are sent to another."""
        return tuple(name for name in self.doors if name != "facilitator")

    @property
    def actors(self) -> frozenset[Part]:
        """The names of all that acts without the story: services, facilitators, and so on."""
        facilitators = self.options.facilitators if self.parts else ()
        return frozenset((*facilitators, *self.services, *OUTSIDE, "service", "chain"))

    def merchants(self, first: str) -> dict[ServiceName, str]:
        """Return the merchant's address of each service, given that of the first."""
        ours = self.parts.services if self.parts else {}
        found = {name: checksum(each.service.env.pay_to) for name, each in ours.items()}
        return found | {self.first: first}

    @property
    def first(self) -> ServiceName:
        """The name of the first service."""
        return self.services[0]

    @property
    def base_url(self) -> str:
        """The base URL of the first service."""
        return self.doors[self.first][1]

    def stream(self, name: str) -> Stream:
        """Return a random stream for the story, seeded with the world's seed and `name`."""
        return self.rng.stream(f"story {name}")

    async def ask(self, path: str, body: Any = None, kind: Any = Any) -> Any:
        """Ask the control API: a GET without a body; raises `RuntimeError` if there is none."""
        if self.control is None:
            raise RuntimeError(f"{self.base_url} has no control API, which {path!r} needs")
        return await self.control.request("GET" if body is None else "POST", path, body, kind)

    async def balance(self, address: str, network: str | None = None) -> int:
        """Return an address's balance on a network's chain, in base units; None for the first."""
        (held,) = await self.ask(on("balances", network), {"accounts": [address]})
        return int(held)

    def network_of(self, service: ServiceName) -> Network:
        """Return the network that a service is on; the first one's in a world that is not ours."""
        deployed = self.parts.services.get(service) if self.parts else None
        return deployed.service.env.network if deployed else self.network

    async def transact(self, sender: str, data: str) -> Sent:
        """Send a call of the first network's token from any account."""
        call = {"from": sender, "to": checksum(self.network.asset), "data": data}
        sent: Sent = await self.ask("send", call, Sent)
        return sent

    def client(self, caller: str, to: Part = "service") -> PartClient:
        """Return a caller's HTTP client for a service or the facilitator.

        Raises `ValueError` for a service that is not there.
        """
        if to == "service":
            to = self.first
        if to not in self.doors:
            raise ValueError(unknown("service", to, self.services))
        make, url = self.doors[to]
        stream = later(partial(self.rng.stream, f"wire from {caller} to {to}"))
        link = self.link(caller, to, make(), self.options.latency_to(to), stream)
        http = PartClient(link, url, PAYER_TIMEOUT_S)
        self.clients.append(http)
        return http

    async def close_clients(self) -> None:
        """Close the callers' connections."""
        for client in self.clients:
            await client.aclose()

    def record(self, event: StoryEvent) -> None:
        """Write an event of the story to the journal."""
        self.journal.record(self.clock.now_ms(), event)

    def wallet(self, name: str) -> Wallet:
        """Return the wallet of the payer with this name."""
        if self.funded is not None:
            return self.funded
        nonces = _nonces(partial(self.rng.stream, f"nonces of {name}"))
        return Wallet(self.rng.secret(f"payer {name}"), nonces=partial(next, nonces))


def on(path: str, network: str | None) -> str:
    """Return a path of the control API that acts on a network; None for the first."""
    return path if network is None else f"{path}?network={network}"


def _nonces(new: Callable[[], Stream]) -> Iterator[bytes]:
    """Yield nonces from a stream, which is made anew for the second: who pays once keeps none."""
    yield new().randbytes(32)
    stream = new()
    stream.randbytes(32)
    while True:
        yield stream.randbytes(32)
