"""A room: one world with one started server, for plays in turn.

The world is a chain with our facilitator; the double stands between the facilitator and the server.
Money is counted on the chain itself.

A server is a command, a Python application, or a running server at a URL. The guide, "Judge your
server", documents a command's environment.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from x402sim.chain.node.evm_chain import EvmChain, LinkedNode
from x402sim.http.exchange import OverClient
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, PrivateKey, checksum, from_hex, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import PROXIES
from x402sim.rng import Rng
from x402sim.serving.local import LocalServer, certificates
from x402sim.suite import rooms, row, started
from x402sim.suite.money import Transfer, transfers
from x402sim.suite.server.double import Double
from x402sim.suite.server.raw import Answer, send
from x402sim.suite.server.tools import STDIO, OverHttp, OverPipes, Wire
from x402sim.suite.started import (
    CLOCK,
    Command,
    Running,
    RunsAlready,
    Startable,
    command,
    free_port,
)
from x402sim.suite.subject import NOBODY, STARTING
from x402sim.suite.verdict import NotApplicable
from x402sim.suite.wire import listening
from x402sim.world.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(started.Given):
    """The input of a server: port, facilitator, payee, network."""

    facilitator_url: str
    rpc_url: str
    pay_to: str
    state_dir: str

    def environment(self) -> dict[str, str]:
        """Return the variables that a command gets."""
        return {
            **started.Given.environment(self),
            **dict.fromkeys(("FACILITATOR_URL", "X402SIM_FACILITATOR_URL"), self.facilitator_url),
            **dict.fromkeys(("RPC_URL", "X402SIM_RPC_URL"), self.rpc_url),
            "X402SIM_PAY_TO": self.pay_to,
            "X402SIM_STATE_DIR": self.state_dir,
        }


Server = Startable[Given]
"""A server for the judge to start."""


def server_command(
    words: Sequence[str], port: int | None = None, look: str = "/", **more: Any
) -> Command[Given]:
    """Return a server that is a command; `port` is the command's own fixed port, if any.

    The judge asks at the path `look` whether the server answers; `more` is for `Command`.
    """

    async def answers(url: str) -> bool:
        # an MCP server may answer GET by a stream that never ends
        answer = await send(
            Running(url).port, "GET", look, patience_s=5, is_enough=lambda head, _: bool(head)
        )
        return bool(answer.status) and answer.status // 100 != 5

    return Command(
        words=tuple(words),
        url=f"http://127.0.0.1:{'{port}' if port is None else port}",
        answers=answers,
        failure=f"GET {{url}}{look} is not answered",
        guide="Judge your server",
        **more,
    )


@dataclass(frozen=True, slots=True)
class Spoken:
    """A command: an MCP server on standard input and output."""

    words: tuple[str, ...]
    shown: str = ""
    is_single: bool = False
    also: tuple[str, ...] = ()

    @asynccontextmanager
    async def start(self, given: Given) -> AsyncIterator[Running]:
        """Start the command, in its own group of processes; raises `NotReady`."""
        environment, nowhere = given.environment(), "http://127.0.0.1:9"
        starting = command(self.words, environment, nowhere, also=self.also, speaks=True)
        async with starting as running:
            yield running


Make = Callable[[Given], ASGIApp]


@dataclass(frozen=True, slots=True)
class AtPort(RunsAlready):
    """A running server; the owner has configured the facilitator."""

    @asynccontextmanager
    async def start(self, given: Given) -> AsyncIterator[Running]:
        """Wait until the server answers; raises `NotReady`."""
        port = Running(self.url).port

        async def look() -> str:
            status = (await send(port, "GET", "/", patience_s=5)).status
            return f"it answers {status}" if status in STARTING else "" if status else NOBODY

        yield await self.once(look)


RICH = "1000000"
"""The tokens of the payer of a running server."""
ACCOUNTS = 4
"""The number of payers, each with a thousand tokens; the cases of a room pay with the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deployment(row.RoomKind):
    """A world with two servers."""

    @property
    def lacks(self) -> str:
        """The second server, started by the judge."""
        return "two servers of one deployment"


PLAIN = row.RoomKind(name="room", is_shared=True)
REPLICAS = _Deployment(name="two servers")
"""A world with two servers of one deployment: both use the same folder for lasting data."""


@dataclass(slots=True, kw_only=True, eq=False)
class ServerRoom(rooms.Room):
    """A world with a server in it."""

    world: LocalServer
    chain: EvmChain
    """The world's chain, by its JSON-RPC address."""
    double: Double
    facilitator_url: str
    """The URL of the double."""
    pay_to: str
    folder: Path
    """The server's folder for lasting data."""
    goods: dict[tuple[str, str], Answer] = field(default_factory=dict)
    """The answers to good payments, by dialect and item."""

    _allowed: dict[Address, int] = field(default_factory=dict)
    wires: dict[tuple[int, str, int], Wire] = field(default_factory=dict)
    """The connections to MCP servers, by the server's start, path and port."""

    async def start(self) -> None:
        """Start the server, or both; raises `NotReady`."""
        await rooms.Room.start(self)
        if self.kind is REPLICAS:
            starting = self.subject.start(self.given())
            self.replica = await self._subject.enter_async_context(starting)

    def wire(self, target: str, port: int = 0) -> Wire:
        """Return the connection to an MCP server, at a path of the running server or on stdio.

        `port` is the port of another server. Raises `NotApplicable` for another server on stdio.
        """
        if (found := self.wires.get((self.starts, target, port))) is None:
            assert self.running is not None
            if target == STDIO and port:
                raise NotApplicable(f"each client of a server by {STDIO} has one of its own")
            if target == STDIO:
                assert self.running.command is not None
                found = OverPipes(process=self.running.command)
            else:
                found = OverHttp(port=port or self.port, target=target)
            self.wires[self.starts, target, port] = found
        return found

    def given(self) -> Given:
        """Return the server's input; the folder lasts for the whole room."""
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        return Given(
            port=free_port(),
            facilitator_url=self.facilitator_url,
            rpc_url=self.world.rpc_url,
            pay_to=self.pay_to,
            network=self.network,
            state_dir=str(state),
        )

    @property
    def port(self) -> int:
        """The server's port."""
        assert self.running is not None
        return self.running.port

    @property
    def payer(self) -> Wallet:
        """The paying wallet."""
        return self.world.wallets[0]

    async def tidy(self) -> None:
        """Undo the changes of a case at the facilitator."""
        self.double.twists.clear()
        self.double.strict = False

    async def height(self) -> int:
        """Return the number of the newest block."""
        return await self.chain.height()

    async def moved(self, since: int) -> list[Transfer]:
        """Return the transfers of the network's token after a block."""
        found = await transfers(self.chain, since, self.network.asset)
        return [each if each.nonce else await self._by_permit2(each) for each in found]

    async def _by_permit2(self, moved: Transfer) -> Transfer:
        """Return a transfer with the nonce of Permit2: no log has the nonce, only the calldata."""
        tx = await self.chain.transaction(Hash(from_hex(moved.tx_hash, 32)))
        used = abi.settled_nonce(tx.call.data) if tx and tx.call.to in PROXIES.values() else None
        if used is None:
            return moved
        return replace(moved, nonce=to_hex(used[1].to_bytes(32)))

    async def allow(self, payer: Address, base: int) -> None:
        """Let a payer approve Permit2 for so many base units, unless that is so already."""
        if self._allowed.get(payer, 0) != base:
            data = to_hex(abi.approve(PERMIT2, base))
            sent = {"from": checksum(payer), "to": checksum(self.network.asset), "data": data}
            await self.world.control.request("POST", "send", sent)
            self._allowed[payer] = base


async def opened(
    server: Server,
    kind: row.RoomKind,
    network: Network,
    seed: int,
    name: str,
    facilitator_port: int = 0,
) -> ServerRoom:
    """Open a room, and start the server in it; raises `NotReady`.

    `facilitator_port` is the facilitator's port, 0 for a free port.
    """
    rng = Rng(seed)
    own_seed = int.from_bytes(rng.secret(f"world of {name}")[:6])
    options = World(
        network=network, has_service=False, unlocked=False, accounts=ACCOUNTS, seed=own_seed
    )
    async with AsyncExitStack() as stack:
        token = rng.secret(f"control of {name}").hex()  # the server may not change its own world
        world = await stack.enter_async_context(LocalServer(options, control_token=token))
        http = httpx.AsyncClient(trust_env=False, verify=certificates(), timeout=60)
        await stack.enter_async_context(http)
        double = Double(world.facilitator_url, http)
        port = await stack.enter_async_context(listening(double.answer, facilitator_port))
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="x402sim-server-", ignore_cleanup_errors=True)
        )
        opening = ServerRoom(
            name=name,
            network=network,
            kind=kind,
            subject=server,
            rng=rng,
            world=world,
            chain=EvmChain(LinkedNode(OverClient(http), world.rpc_url), network, CLOCK),
            double=double,
            facilitator_url=f"http://127.0.0.1:{port}",
            http=http,
            folder=Path(folder),
            pay_to=checksum(PrivateKey(rng.secret(f"shop of {name}")).address),
            _stack=stack.pop_all(),
        )
    room = await opening.started()
    if isinstance(server, AtPort):  # its one room pays for all plays, at any price
        rich = {"address": room.payer.address, "amount": RICH}
        await world.control.request("POST", "faucet", rich)
    return room
