"""The stages on which a scenario is played: in this process, over TCP, or at a URL."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, assert_never, cast

import httpx
import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock, SkewedClock
from x402sim.events import (
    OUTSIDE,
    AnswerSent,
    End,
    Part,
    RequestSent,
    ServiceName,
    StoryEvent,
    StoryOutcome,
)
from x402sim.http.bounded import BoundedTransport, Limits
from x402sim.http.exchange import OverTransport, Request, Response, Transport
from x402sim.journal import Journal
from x402sim.payer.core import PaymentFailed, SpendingCapExceeded
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol.crypto import checksum
from x402sim.protocol.eip3009 import Authorization, Domain, Permit
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import NETWORKS, TEST_CHAIN_IDS, Network
from x402sim.protocol.permit2 import Permit2Authorization
from x402sim.rng import Rng, Stream, is_untouched, later
from x402sim.service.settings import Settings
from x402sim.serving.control.app import control_app
from x402sim.serving.control.client import WORLD_ANSWER_BYTES, ControlClient, ControlError
from x402sim.serving.control.messages import Base, Sent, WorldInfo, network_of
from x402sim.spec.needs import Need
from x402sim.tasks import InFlight, cancel_all
from x402sim.text.words import unknown
from x402sim.world.chains import FixedBlocks
from x402sim.world.link import Asgi, Link, PartClient, Watch, is_acting, linking
from x402sim.world.loop import VirtualLoop, most_common
from x402sim.world.running_world import RunningWorld, build, running
from x402sim.world.strike import ABORT
from x402sim.world.world import Deployment, InProcess, Tcp, World

START_S = 1_800_000_000
"""The start of every simulation, in Unix seconds: 15 January 2027, 08:00 UTC."""
PAYER_TIMEOUT_S = 90.0
"""Seconds that a payer waits for an answer; more than a service waits for its facilitator."""


Endpoint = tuple[Callable[[], Transport], str]
"""Where payers reach a part: the maker of a transport, and the base URL."""


class Stage(msgspec.Struct, kw_only=True):
    """An open stage: the world, and the endpoints, control API and links to it."""

    options: World
    """The world's options; at a URL, only the options of the scenario count."""
    clock: Clock
    rng: Rng
    journal: Journal
    link: Callable[..., Link]
    """Makes a link, all of which share clock, journal and the numbers of the exchanges."""
    network: Network
    """The network of the world's first service; if unknown, the chosen network."""
    endpoints: dict[Part, Endpoint]
    """The endpoints of the services, the payers' default first, and of the facilitator."""
    capabilities: frozenset[Need]
    control: ControlClient | None
    """The client of the control API; None without one."""
    advance: Callable[[float], Awaitable[None]]
    """Advances the world's time by a number of seconds."""
    ahead_s: Callable[[], float] = lambda: 0.0
    """Returns how far a server's clock is left ahead of real time, if it was advanced here."""
    parts: RunningWorld | None = None
    """The parts of a world that runs in this process."""
    another_service: Callable[[bool, dict[str, Any]], Awaitable[ServiceName]] | None = None
    """Starts another service, on the first one's database or not, and returns its name.

    Only in a world of our own.
    """
    watches: list[Watch] = msgspec.field(default_factory=list)
    """Called with each request of a world in this process."""
    funded: "UsersWallet | None" = None
    """The only wallet with tokens, if the control API cannot fund payers."""
    clients: dict[PartClient, Stream] = msgspec.field(default_factory=dict)
    """The clients to close at the end, each with the stream of latencies."""
    local: set[Part] = msgspec.field(default_factory=set)
    """The parts that answer in this process. Making such a client cannot fail, so a payer waits for
    the first request: in a crowd, payers still to come take little memory."""
    last_exchange: int = 0
    """The number of the newest exchange of a payer, which checks refer to by default."""

    @property
    def services(self) -> tuple[ServiceName, ...]:
        """The names of the services; payers use the first unless they are sent to another."""
        return tuple(name for name in self.endpoints if name != "facilitator")

    @property
    def actors(self) -> frozenset[Part]:
        """The names of the actors other than payers: services, facilitators, explorer, chain."""
        facilitators = self.options.facilitators if self.parts else ()
        return frozenset((*facilitators, *self.services, *OUTSIDE, "service", "chain"))

    def merchants(self, first: str) -> dict[ServiceName, str]:
        """Return the merchant's address of each service, given that of the first."""
        services = self.parts.services if self.parts else {}
        found = {name: checksum(each.service.env.pay_to) for name, each in services.items()}
        return found | {self.first: first}

    @property
    def first(self) -> ServiceName:
        """The name of the first service."""
        return self.services[0]

    @property
    def base_url(self) -> str:
        """The base URL of the first service."""
        return self.endpoints[self.first][1]

    def stream(self, name: str) -> Stream:
        """Return a random stream for the scenario, seeded with the world's seed and `name`."""
        return self.rng.stream(f"story {name}")

    async def ask(self, path: str, body: Any = None, kind: Any = Any) -> Any:
        """Ask the control API: a GET without a body; raises `RuntimeError` if there is none."""
        if self.control is None:
            raise RuntimeError(f"{self.base_url} has no control API, which {path!r} needs")
        return await self.control.request("GET" if body is None else "POST", path, body, kind)

    async def balance(self, address: str, network: str | None = None) -> int:
        """Return an address's balance on a network's chain, in base units; None for the first."""
        held = await self.ask(path_on("balances", network), {"accounts": [address]}, tuple[Base])
        return int(held[0])

    def network_of(self, service: ServiceName) -> Network:
        """Return the network that a service is on; the first one's in a world that is not ours."""
        deployed = self.parts.services.get(service) if self.parts else None
        return deployed.service.env.network if deployed else self.network

    def further(self, network: Network) -> str | None:
        """Return the name of a further network; None for the first, as `path_on` takes it."""
        return None if network == self.network else network.name

    async def transact(self, sender: str, data: str, on: Network | None = None) -> Sent:
        """Send a call of a network's token, by default the first one's, from any account."""
        network = on or self.network
        call = {"from": sender, "to": checksum(network.asset), "data": data}
        sent: Sent = await self.ask(path_on("send", self.further(network)), call, Sent)
        return sent

    def client(self, caller: str, to: Part = "service") -> PartClient:
        """Return a caller's HTTP client for a service or the facilitator.

        Raises `ValueError` for an unknown service.
        """
        to = self.known(to)
        make, url = self.endpoints[to]
        stream = later(partial(self.rng.stream, f"wire from {caller} to {to}"))
        link = self.link(caller, to, make(), self.options.latency_to(to), stream)
        http = PartClient(link, url, PAYER_TIMEOUT_S)
        self.clients[http] = stream
        if http.is_local:
            self.local.add(to)
        return http

    def known(self, service: Part) -> Part:
        """Return the name of a service, or of the facilitator; "service" is the first.

        Raises `ValueError` for an unknown service.
        """
        name = self.first if service == "service" else service
        if name not in self.endpoints:
            raise ValueError(unknown("service", name, self.services))
        return name

    def forget(self, client: PartClient) -> bool:
        """Forget a client if a new one would behave the same; return whether it is forgotten."""
        is_same = client.is_local and is_untouched(self.clients[client])
        if is_same:
            del self.clients[client]
        return is_same

    async def close_clients(self) -> None:
        """Close the callers' connections."""
        for client in self.clients:
            await client.aclose()

    def record(self, event: StoryEvent) -> None:
        """Write an event of the scenario to the journal."""
        self.journal.record(self.clock.now_ms(), event)

    def end(self, outcome: StoryOutcome, reason: str) -> None:
        """Write the last event to the journal."""
        self.record(End(outcome=outcome, reason=reason))
        self.journal.end()

    def wallet(self, name: str) -> Wallet:
        """Return the wallet of the payer with this name."""
        if self.funded is not None:
            return self.funded
        return Wallet(self.rng.secret(f"payer {name}"), nonces=_Nonces(self.rng, name))


def path_on(path: str, network: str | None) -> str:
    """Return a path of the control API that acts on a network; None for the first."""
    return path if network is None else f"{path}?network={network}"


class _Nonces:
    """Draws a payer's nonces from a stream.

    A stream takes 3 kB, and most payers of a crowd pay once: so the stream is dropped after the
    first nonce; the second nonce makes the stream again and skips the first.
    """

    __slots__ = ("_is_first", "_payer", "_rng", "_stream")

    def __init__(self, rng: Rng, payer: str) -> None:
        self._rng, self._payer, self._is_first = rng, payer, True
        self._stream: Stream | None = None

    def __call__(self) -> bytes:
        stream = self._stream or self._rng.stream(f"nonces of {self._payer}")
        if self._is_first:
            self._is_first = False
        elif self._stream is None:
            stream.randbytes(32)
            self._stream = stream
        return stream.randbytes(32)


NEWEST = 1000
"""How many of the newest events an error counts."""


@asynccontextmanager
async def in_process(
    world: World, open_endpoint: Callable[[ASGIApp], Awaitable[Endpoint]] | None = None
) -> AsyncIterator[Stage]:
    """Build a world, run the world until the scenario ends, and close all; raises `ChainError`.

    The clock is a virtual loop's. Payers reach each service at the endpoint opened by
    `open_endpoint` for the application; by default requests are function calls.
    """
    in_flight = InFlight()

    async def call(app: ASGIApp) -> Endpoint:
        return lambda: Asgi(app, in_flight), "http://service"

    endpoint_of = open_endpoint or call
    blocks = world.block_time_s
    # the phases of all periodic work are drawn from the seed, so that nothing ticks in step by
    # accident; a server's user does not expect that
    options = replace(
        world,
        seed=world.seed or 0,
        service=Settings() if world.service is None else world.service,
        block_time_s=FixedBlocks(blocks) if isinstance(blocks, int | float) else blocks,
    )
    loop = asyncio.get_running_loop()
    rng = Rng(None if options.is_persistent else options.seed)
    with closing(Journal(file=options.journal_file)) as journal:
        clock, turn = Clock(), None
        if isinstance(loop, VirtualLoop):
            clock, turn = Clock(lambda: START_S + loop.now_s), loop.turn
            loop.newest = lambda: _newest(journal)
        watches: list[Watch] = []
        link = linking(clock, journal, turn, watches)

        def wire(caller: ServiceName, name: Part, app: ASGIApp) -> Link:
            is_first = caller == options.first
            stream = f"wire to {name}" if is_first else f"wire from {caller} to {name}"
            return link(
                caller, name, Asgi(app, in_flight), options.latency_to(name), rng.stream(stream)
            )

        parts = build(options, clock, wire, journal)
        async with running(parts):
            endpoints: dict[Part, Endpoint] = {
                name: await endpoint_of(each.app) for name, each in parts.services.items()
            }
            facilitator = parts.process.outside[options.first_facilitator]
            endpoints["facilitator"] = (
                lambda: Asgi(facilitator, in_flight),
                "http://facilitator.local",
            )

            async def another_service(
                shares_database: bool, settings: dict[str, Any]
            ) -> ServiceName:
                name = parts.deploy_another(shares_database=shares_database, settings=settings)
                endpoints[name] = await endpoint_of(parts.services[name].app)
                return name

            # in virtual time a timeout would only cost events
            http = PartClient(Asgi(control_app(parts, None)), "http://control", None)
            virtual = {Need.VIRTUAL_TIME} if options.backend.is_virtual else set()
            stage = Stage(
                options=options,
                clock=clock,
                rng=rng,
                journal=journal,
                link=link,
                network=parts.service.env.network,
                endpoints=endpoints,
                capabilities=parts.capabilities | virtual | {Need.OTHER_SERVICES},
                control=ControlClient(http, most=sys.maxsize),
                advance=clock.sleep,
                parts=parts,
                another_service=another_service,
                watches=watches,
            )
            try:
                yield stage
            finally:
                await cancel_all(in_flight)  # while the databases are open


def _newest(journal: Journal) -> str:
    counts = Counter[str]()
    for event in (entry.event for entry in journal.since(journal.length - NEWEST)):
        match event:
            case RequestSent():
                counts[f"{event.actor} asks {event.to} {event.path}"] += 1
            case AnswerSent():
                counts[f"{event.actor} answers {event.path} with {event.status}"] += 1
            case _:
                counts[f"{event.actor} {type(event).__name__}"] += 1
    return f" The last {counts.total()} events: {most_common(counts)}."


PAYER_KEY = "X402SIM_PAYER_KEY"
"""The environment variable with the key of a funded payer, if the URL cannot fund payers."""
TIMEOUT_S = 30.0


class OtherNetwork(ValueError):
    """Another network than the deployment's, or real money without permission."""


class UsersWallet(Wallet):
    """The user's own key at a deployment; each of its signatures is allowed here, and counted.

    A story or a service decides neither the chain, nor for how long, nor above the budget.
    """

    def __init__(self, private_key: str, where: Deployment, network: Network) -> None:
        """Raises `OtherNetwork` for a main network that is not allowed."""
        if not (network.is_test or where.allow_mainnet):
            raise OtherNetwork(
                f"{where.name} would be paid with real money, on {network.name}: allow it with "
                "--allow-mainnet, or Deployment(allow_mainnet=True)"
            )
        super().__init__(private_key)
        self._where, self._network = where, network

    def sign(self, auth: Authorization, domain: Domain, *, receive: bool = False) -> bytes:
        """Return the signature; raises `PaymentFailed` for what the user has not allowed."""
        token = domain.chain_id, domain.verifying_contract
        own = self._network.chain_id, self._network.asset
        if domain.chain_id not in TEST_CHAIN_IDS and token != own:
            raise PaymentFailed("nothing was signed: it is for another main network, or its token")
        if auth.valid_before > Clock().now() + AFTER_SIGNING_S:
            raise PaymentFailed(
                f"nothing was signed: it could be used for more than {AFTER_SIGNING_S} s from now"
            )
        amount = Decimal(to_decimal(auth.value, self._network.decimals))
        left = Decimal(self._where.budget) - sum(self._where.signed)
        if amount > left:
            raise SpendingCapExceeded(
                f"{amount} tokens are to be signed for, and {left} is left of the `budget` of the "
                "deployment's payer; nothing was sent"
            )
        self._where.signed.append(amount)
        return super().sign(auth, domain, receive=receive)

    def sign_permit2(self, auth: Permit2Authorization, chain_id: int) -> bytes:
        """Raise `PaymentFailed`: no budget here counts what a message of Permit2 may take."""
        raise PaymentFailed("nothing was signed: the user's own key signs no message of Permit2")

    def sign_permit(self, permit: Permit, domain: Domain) -> bytes:
        """Raise `PaymentFailed`, as `sign_permit2`."""
        raise PaymentFailed("nothing was signed: the user's own key signs no permit")

    def of_contract(self, account: str) -> Wallet:
        """Raise `PaymentFailed`: a deployment names no contract that this key signs for."""
        raise PaymentFailed(f"the user's own key signs for no contract, such as {account}")


def left_ahead(url: str, seconds: float) -> str:
    """Return a warning about a server whose clock is left ahead of real time, and the remedy."""
    return (
        f"the clock of {url} is left {seconds:.0f} s ahead of real time, because time was advanced "
        "there. What a payer with a right clock signs has expired there, and is refused. To give "
        'the time back, POST {"clock": true} to /_sim/reset of its world, or restart it'
    )


@asynccontextmanager
async def at_url(world: World, where: Deployment) -> AsyncIterator[Stage]:
    """Connect to the service; raises `ConnectionError` if it does not answer."""
    clock = SkewedClock(Clock())
    root = where.url.rstrip("/")
    transport = _bounded(replace(where.limits, max_answer_bytes=WORLD_ANSWER_BYTES))
    async with httpx.AsyncClient(
        base_url=root + "/_sim", timeout=TIMEOUT_S, transport=transport
    ) as http:
        control = ControlClient(http)
        who: WorldInfo | None = None
        try:
            await control.who()
            # again, to set our clock: this time without the seconds of connecting
            sent_s = Clock().now()
            who = await control.who()
            clock.skew_s = who.now / 1000 - (sent_s + Clock().now()) / 2
        except ControlError as error:
            if error.answer is None:
                raise ConnectionError(f"no answer from {where.url}: {error.__cause__}") from error
        # unknown names of needs are ignored
        capabilities = frozenset(need for need in Need if who is not None and need in who.offers)

        def endpoint() -> OverTransport:
            return OverTransport(_bounded(where.limits))

        endpoints: dict[Part, Endpoint] = {"service": (endpoint, where.url)}
        if who is not None:
            endpoints["facilitator"] = endpoint, root + "/facilitator"
        key = where.payer_key or os.environ.get(PAYER_KEY)
        network, funded = network_of(who) if who else world.networks[0], None
        advance = control.advancing(clock)
        if key and Need.FUNDS not in capabilities:
            # the service's claims do not widen the signatures of the user's key
            own, clock.skew_s = NETWORKS.get(network.name), 0.0
            is_ours = own is not None and own.is_test and world.network is None
            network = own if own is not None and is_ours else world.networks[0]
            capabilities = (capabilities | {Need.FUNDS}) - {Need.CLOCK}
            funded, advance = UsersWallet(key, where, network), _real_time
        initial_skew_s = clock.skew_s
        with closing(Journal(file=world.journal_file)) as journal:
            yield Stage(
                options=world,
                clock=clock,
                rng=Rng(None),
                journal=journal,
                link=linking(clock, journal),
                network=network,
                endpoints=endpoints,
                capabilities=capabilities,
                control=control if who else None,
                advance=advance,
                ahead_s=lambda: clock.skew_s if clock.skew_s > initial_skew_s else 0.0,
                funded=funded,
            )


async def _real_time(seconds: float) -> None:
    raise RuntimeError(f"time is real where the user's own key pays: not advanced by {seconds} s")


def _bounded(limits: Limits) -> BoundedTransport:
    return BoundedTransport(httpx.AsyncHTTPTransport(), limits)


_EXCHANGE = "x402sim-exchange"  # the header with the exchange number
_ACTING = "x402sim-acting"
"""The header of requests sent by an observer's `act`: they are not observed."""


@asynccontextmanager
async def over_tcp(world: World) -> AsyncIterator[Stage]:
    """Build and run a world whose services listen on free ports; raises `ChainError`."""
    servers: list[tuple[asyncio.Server, InFlight]] = []

    async def endpoint(app: ASGIApp) -> Endpoint:
        server, port, in_flight = await _listen(app)
        servers.append((server, in_flight))
        return _Socket, f"http://127.0.0.1:{port}"

    async with in_process(world, endpoint) as stage:
        try:
            yield stage
        finally:
            for server, in_flight in servers:
                server.close()
                await cancel_all(in_flight)
                await server.wait_closed()


async def _listen(app: ASGIApp) -> tuple[asyncio.Server, int, InFlight]:
    """Serve an application on a free port; return server, port and the requests in flight."""
    # here, as few worlds need uvicorn, which takes long to import
    from uvicorn.server import ServerState

    from x402sim.serving.connection import HttpConnection, Shared, Workers
    from x402sim.serving.listen import Listen, listening_socket

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    sock = listening_socket(Listen(port=0))
    state, shown, in_flight = ServerState(), _tracked_by_loop(app, loop), InFlight()
    # uvicorn has a set here, which would be cancelled in the order of addresses
    state.tasks = cast(set[asyncio.Task[None]], in_flight)
    # no worker waits for the next request: `Deadlock` finds a loop in which all tasks wait
    shared = Shared(Workers(most_idle=0), deadlines=None)
    server = await loop.create_server(lambda: HttpConnection(shown, state, shared), sock=sock)
    return server, sock.getsockname()[1], in_flight


class _Socket(OverTransport):
    """An HTTP transport to a server on the same virtual loop; one connection per request."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        # it is plain HTTP: no certificates are read
        super().__init__(httpx.AsyncHTTPTransport(limits=limits, trust_env=False, verify=False))

    async def send(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        name = str(request.extensions["exchange"])
        request.headers = [*request.headers, (_EXCHANGE.encode(), name.encode())]
        if is_acting.get():
            request.headers.append((_ACTING.encode(), b"1"))
        loop.in_transit[name] = True
        try:
            return await super().send(request)
        finally:
            del loop.in_transit[name]


def _tracked_by_loop(app: ASGIApp, loop: VirtualLoop) -> ASGIApp:
    """Return `app`, which marks on the loop whether the bytes of an exchange are in transit.

    Virtual time waits for them: a socket delivers them a moment of real time later.
    """

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        name, length = headers.get(_EXCHANGE, ""), headers.get("content-length", "0")

        def mark(is_moving: bool) -> None:
            if name in loop.in_transit:  # unless the caller has given up
                loop.in_transit[name] = is_moving

        async def receive_and_mark() -> Message:
            message = await receive()
            mark(bool(message.get("more_body")))
            return message

        async def send_and_mark(message: Message) -> None:
            mark(True)
            await send(message)

        async def abort_and_mark(how: str) -> None:
            mark(True)
            await scope[ABORT](how)

        mark(length != "0")
        token = is_acting.set(_ACTING in headers)
        try:
            await app({**scope, ABORT: abort_and_mark}, receive_and_mark, send_and_mark)
        finally:
            is_acting.reset(token)

    return served


def open_stage(world: World) -> AbstractAsyncContextManager[Stage]:
    """Open the stage of a world; raises `ChainError`, and `ConnectionError` without an answer."""
    match world.where:
        case InProcess():
            return in_process(world)
        case Tcp():
            return over_tcp(world)
        case Deployment() as where:
            return at_url(world, where)
        case never:
            assert_never(never)
