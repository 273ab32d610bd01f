"""A room: one world with one started facilitator, for plays in turn.

The world is a chain, its node, whose answers a case may change, and accounts: payers with tokens,
the token's owner, and the relayer, whose key the facilitator has. Money and gas are counted on the
chain itself.

A facilitator is a command, a Python application, or a running facilitator at a URL. The guide,
"Judge your facilitator", documents a command's environment.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from starlette.types import ASGIApp

from x402sim.chain.base import PLENTY_WEI, Call, Chain, Controls, TxReceipt
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, parse_address, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import PERMIT2
from x402sim.rng import Rng
from x402sim.serving.local import certificates
from x402sim.suite import rooms, row, started
from x402sim.suite.facilitator import contract
from x402sim.suite.facilitator.node import Node
from x402sim.suite.money import Transfer, transfers
from x402sim.suite.started import CLOCK, Command, Running, RunsAlready, Startable, free_port
from x402sim.suite.subject import STARTING, instead, silent
from x402sim.suite.verdict import NotReady
from x402sim.suite.wire import listening
from x402sim.text.words import counted
from x402sim.world.chains import Accounts, Anvil, ChainRequest, LedgerBackend

DEFAULT_URL = "http://127.0.0.1:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(started.Given):
    """The input of a facilitator: port, node, and the key of the account for gas."""

    rpc_url: str
    private_key: str = field(repr=False)
    address: str

    def environment(self) -> dict[str, str]:
        """Return the variables that a command gets."""
        return {
            **started.Given.environment(self),
            **dict.fromkeys(("RPC_URL", "EVM_RPC_URL", "X402SIM_RPC_URL"), self.rpc_url),
            **dict.fromkeys(
                ("X402SIM_PRIVATE_KEY", "PRIVATE_KEY", "EVM_PRIVATE_KEY"), self.private_key
            ),
            "X402SIM_CHAIN_ID": str(self.network.chain_id),
        }


Facilitator = Startable[Given]
"""A facilitator for the judge to start."""
SUPPORTED = ("/supported", "/v2/x402/supported")
"""The paths of a facilitator's list of kinds."""


async def answers(url: str) -> bool:
    """Tell whether a facilitator answers with a list of kinds."""
    async with httpx.AsyncClient(trust_env=False, timeout=5, verify=certificates()) as http:
        for path in SUPPORTED:
            with suppress(httpx.HTTPError):
                if (await http.get(url + path)).status_code == 200:
                    return True
    return False


def facilitator_command(
    words: Sequence[str], url: str = DEFAULT_URL, **more: Any
) -> Command[Given]:
    """Return a facilitator that is a command listening at `url`; `more` is for `Command`."""
    return Command(
        words=tuple(words),
        url=url,
        answers=answers,
        failure="GET {url}/supported is not 200",
        guide="Judge your facilitator",
        ended=" (a payer, which ends, is judged by x402sim conformance payer -- COMMAND)",
        **more,
    )


Make = Callable[[Given], ASGIApp]


@dataclass(frozen=True, slots=True)
class AtUrl(RunsAlready):
    """A running facilitator; the owner has configured the node."""

    @asynccontextmanager
    async def start(self, given: Given) -> AsyncIterator[Running]:
        """Wait until the facilitator answers; raises `NotReady` if the URL is no facilitator."""
        yield await self.once(lambda: _why_not(self.url))


async def _why_not(url: str) -> str:
    """Return why nobody answers at a URL yet, "" if a facilitator does; raises `NotReady`."""
    async with httpx.AsyncClient(trust_env=False, timeout=5, verify=certificates()) as http:
        try:
            seen = [await http.get(url + path) for path in SUPPORTED]
            if any(each.status_code == 200 and "kinds" in each.text for each in seen):
                return ""
            itself = await http.get(url)
        except httpx.HTTPError as error:
            return silent(error)
    if itself.status_code == 402:
        why = f"this URL asks for a payment, so it is a service: {instead('service')} {url}"
        raise NotReady(f"{url}: {why}")
    answer = f"GET /supported is {seen[0].status_code}"
    if seen[0].status_code in STARTING:
        return answer
    raise NotReady(
        f"{url}: {answer} and lists no kinds, so it is no facilitator. The path of its API belongs "
        "to the URL, without /supported"
    )


PAYERS = 400
"""The number of payers on a ledger, each with a thousand tokens; an anvil funds payers singly."""
BALANCE_BASE = 1000 * 10**6
HEARTBEAT_S = 1.0
"""Seconds between blocks, besides one block for each transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRoomKind(row.RoomKind):
    """The kind of a room.

    chain
        A "ledger", or an "anvil", which runs any bytecode; without an anvil, its cases are skipped.
    block_s
        Seconds between blocks; None is a block for each transaction, and one every second.
    ahead_s
        The seconds that the chain's clock is ahead of ours; below 0 it is behind.
    """

    chain: Literal["ledger", "anvil"] = "ledger"
    block_s: float | None = None
    ahead_s: float = 0

    @property
    def lacks(self) -> str:
        """A chain of this special kind; empty for a usual chain."""
        is_usual = self.chain == "ledger" and self.block_s is None and not self.ahead_s
        return "" if is_usual else f"a chain of its own kind ({self.name})"


PLAIN = ChainRoomKind(name="plain", is_shared=True)
"""The room of cases that leave the world unchanged."""
ROUGH = ChainRoomKind(name="rough")
"""A room of cases that break something: the node, a transaction, the relayer's account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTx:
    """A transaction of the relayer; `ok` is None until it is mined."""

    tx_hash: str
    ok: bool | None = None
    gas_used: int = 0
    gas_wei: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The transfers on the chain, and the relayer's transactions, since a case began."""

    moved: tuple[Transfer, ...]
    sent: tuple[SentTx, ...]

    @property
    def gas_wei(self) -> int:
        """The gas that the relayer has paid."""
        return sum(each.gas_wei for each in self.sent)

    @property
    def burnt_wei(self) -> int:
        """The part of the gas for reverted transactions."""
        return sum(each.gas_wei for each in self.sent if each.ok is False)

    @property
    def reverted(self) -> tuple[SentTx, ...]:
        """The reverted transactions."""
        return tuple(each for each in self.sent if each.ok is False)

    @property
    def summary(self) -> str:
        """The state of the chain, in a sentence."""
        base = sum(each.amount_base for each in self.moved)
        gas = f", {self.gas_wei} wei of gas" if self.sent else ""
        bad = f", {len(self.reverted)} reverted" if self.reverted else ""
        waits = sum(each.ok is None for each in self.sent)
        waiting = f", {waits} not mined" if waits else ""
        return (
            f"on the chain: {counted(len(self.moved), 'transfer')} of {base} base units; "
            f"{counted(len(self.sent), 'transaction')} of the relayer{bad}{waiting}{gas}"
        )


@dataclass(slots=True, kw_only=True, eq=False)
class FacilitatorRoom(rooms.Room):
    """A world with a facilitator in it."""

    kind: ChainRoomKind
    clock: Clock
    """The clock of the chain alone; `advance` changes it."""
    chain: Chain
    node: Node
    rpc_url: str
    owner: Wallet
    """The token's owner, who mints, pauses and blacklists; `chain.send` needs no key."""
    relayer: Wallet
    payers: list[Wallet]
    """The unused payers."""
    own: set[str] = field(default_factory=set)
    """Hashes of the judge's own transactions."""
    account: Address | None = None
    """The account that settles `upto`, once a play has asked for it."""
    is_busy: bool = False
    """Whether the facilitator stayed busy: nobody waits for it again until it answers."""
    _drawn: int = 0
    _allowed: dict[Address, int] = field(default_factory=dict)

    # --- the facilitator --------------------------------------------------------------------

    def given(self) -> Given:
        """Return the facilitator's input."""
        return Given(
            port=free_port(),
            rpc_url=self.rpc_url,
            private_key=self.relayer.private_key,
            address=self.relayer.address,
            network=self.network,
        )

    async def give_coins(self, account: str) -> None:
        """Give an account without coins some for gas."""
        with suppress(ValueError):
            address = parse_address(account)
            if not await self.chain.native_balance(address):
                await self.controls.set_native_balance(address, PLENTY_WEI)

    @property
    def url(self) -> str:
        """The facilitator's base URL."""
        assert self.running is not None
        return self.running.url

    # --- the chain --------------------------------------------------------------------------

    @property
    def controls(self) -> Controls:
        """Control over the chain: mine, drop, reorg and so on."""
        found = self.chain.controls
        assert found is not None
        return found

    async def payer(self, balance_base: int | None = None) -> Wallet:
        """Return the wallet of a new payer with a thousand tokens, or `balance_base` base units."""
        if balance_base is None and self.payers:
            return self.payers.pop()
        self._drawn += 1
        wallet = Wallet(self.rng.secret(f"another payer {self._drawn} of {self.name}"))
        if balance_base != 0:
            has = BALANCE_BASE if balance_base is None else balance_base
            await self.chain.fund(wallet.address_bytes, has)
        return wallet

    async def allow(self, payer: Address, base: int) -> None:
        """Let a payer approve Permit2 for an amount in base units, unless already approved."""
        if self._allowed.get(payer, 0) == base:
            return
        await self.controls.set_native_balance(payer, PLENTY_WEI)
        if await self.transact(payer, self.network.asset, abi.approve(PERMIT2, base)) is None:
            await self.controls.mine()
        self._allowed[payer] = base

    async def transact(self, sender: Address, to: Address, data: bytes) -> TxReceipt | None:
        """Send a transaction of any account but the relayer's; raises `ChainError`.

        Returns the receipt if the transaction is mined at once.
        """
        tx_hash = await self.chain.send(Call(sender, to, data))
        self.own.add(to_hex(tx_hash))
        return await self.chain.receipt(tx_hash)

    async def strays(self, since: int) -> tuple[Transfer, ...]:
        """Return transfers after a block that came neither from the judge nor through the node.

        Such a transfer shows that the facilitator has another way to the chain.
        """
        moved = (await self.money(since, len(self.node.sent))).moved
        known = {*self.own, *self.node.sent, *self.node.offered}
        return tuple(each for each in moved if each.tx_hash not in known)

    async def money(self, since: int, sent_before: int) -> Money:
        """Return the transfers after a block, and the relayer's transactions beyond a number."""
        hashes = list(dict.fromkeys(self.node.sent[sent_before:]))
        return Money(
            moved=tuple(await transfers(self.chain, since)),
            sent=tuple([await self._sent(each) for each in hashes]),
        )

    async def _sent(self, tx_hash: str) -> SentTx:
        receipt = await self.chain.receipt(Hash(bytes.fromhex(tx_hash.removeprefix("0x"))))
        if receipt is None:
            return SentTx(tx_hash=tx_hash)
        return SentTx(
            tx_hash=tx_hash,
            ok=receipt.succeeded,
            gas_used=receipt.gas_used,
            gas_wei=receipt.gas_used * receipt.gas_price,
        )

    async def tidy(self) -> None:
        """Undo the changes of a case at the node and in mining."""
        self.node.twists.clear()
        controls = self.controls
        if controls.automine != (self.kind.block_s is None):
            await controls.set_automine(self.kind.block_s is None)
        if await self.chain.waiting():
            await controls.mine()


async def opened(
    facilitator: Facilitator,
    kind: ChainRoomKind,
    network: Network,
    seed: int,
    name: str,
    patience_s: float,
    port: int = 0,
) -> FacilitatorRoom:
    """Open a room, and start the facilitator in it.

    `port` is the node's port, 0 for a free port. Raises `NotReady`, and `ChainError` without an
    anvil.
    """
    rng = Rng(seed)
    clock = Clock(lambda: CLOCK.now() + kind.ahead_s)
    is_ledger = kind.chain == "ledger"
    owner, relayer = (Wallet(rng.secret(f"{who} of {name}")) for who in ("owner", "relayer"))
    count = PAYERS if is_ledger else 8
    payers = [Wallet(rng.secret(f"payer {number} of {name}")) for number in range(count)]
    request = ChainRequest(
        network=network,
        clock=clock,
        accounts=Accounts(funded=tuple(payers), owner=owner, facilitators={"facilitator": relayer}),
        secret=rng.secret(f"chain of {name}"),
        has_block_time=kind.block_s is not None,
    )
    backend = LedgerBackend() if is_ledger else Anvil()
    async with AsyncExitStack() as stack:
        open_chain = await asyncio.to_thread(backend.open, request)
        stack.callback(open_chain.chain.close)
        controls = open_chain.chain.controls
        assert controls is not None
        await controls.set_automine(kind.block_s is None)
        if not is_ledger:
            token = open_chain.chain.token
            await controls.set_code(contract.TOKEN_AT, await open_chain.chain.code(token))
            await controls.set_code(token, contract.code("Overload"))
        await controls.mine()  # a call sees the time of the newest block, which is now
        node = Node(open_chain.rpc_app)
        bound = await stack.enter_async_context(listening(node.answer, port))
        http = httpx.AsyncClient(
            trust_env=False,
            verify=certificates(),
            timeout=patience_s,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )
        await stack.enter_async_context(http)
        beat = asyncio.create_task(_beat(controls, kind))
        stack.push_async_callback(_ended, beat)
        opening = FacilitatorRoom(
            kind=kind,
            network=open_chain.network,
            subject=facilitator,
            rng=rng,
            name=name,
            clock=clock,
            chain=open_chain.chain,
            node=node,
            rpc_url=f"http://127.0.0.1:{bound}",
            owner=owner,
            relayer=relayer,
            payers=payers[::-1],
            http=http,
            _stack=stack.pop_all(),
        )
    if isinstance(facilitator, AtUrl):
        node.on_account = opening.give_coins  # the judge does not know its key
    return await opening.started()


async def _beat(controls: Controls, kind: ChainRoomKind) -> None:
    """Mine a block at each interval, except while a case has switched mining off."""
    while True:
        await CLOCK.sleep(kind.block_s or HEARTBEAT_S)
        if kind.block_s is not None or controls.automine:
            await controls.mine()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
