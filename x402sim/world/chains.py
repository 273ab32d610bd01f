"""The chain of a world: backends, funded accounts, block times, gas prices and reorganisations; and
the chain as a facilitator reaches it.

A backend declares capabilities: `is_virtual` before the opening, `OpenChain.capabilities`
afterwards. No other code depends on the kind of backend.

The random models of a chain are objects with one method that draws from a stream: `intervals`
yields the seconds to each next block, `prices` returns a function of time, `depths` yields the
depth of each reorganisation. A user's object with the method can replace a model.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette

from x402sim.chain.base import PLENTY_WEI, Chain, ChainClient, ChainError, TxReceipt
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.rpc.app import rpc_app
from x402sim.clock import Clock
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.http.exchange import Transport
from x402sim.payer.wallet import Wallet
from x402sim.protocol import phrase
from x402sim.protocol.crypto import Address, Hash, PrivateKey, from_hex, parse_address, parse_key
from x402sim.protocol.networks import Network
from x402sim.rng import Rng, Stream
from x402sim.spec.needs import Need
from x402sim.text.program import install
from x402sim.text.words import as_given, unknown
from x402sim.world.faults import Faults
from x402sim.world.loop import VirtualLoop, run_anywhere

if TYPE_CHECKING:
    from x402sim.chain.node.evm_chain import LinkedChain

SHORTEST_S, LONGEST_S = 0.01, 86_400.0
"""The bounds of the seconds between two blocks, in the options of a world."""


class BlockTimes(Protocol):
    """The times of blocks."""

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""


@dataclass(frozen=True, slots=True)
class FixedBlocks:
    """A block every `seconds`, 0.01 to 86400.

    The first comes `phase` seconds after the beginning of the world (0: after a whole interval);
    None draws the phase from the seed.
    """

    seconds: float
    phase: float | None = None

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        phase = stream.uniform(0, self.seconds) if self.phase is None else self.phase
        yield phase % self.seconds or self.seconds
        while True:
            yield self.seconds


@dataclass(frozen=True, slots=True)
class PoissonBlocks:
    """Blocks as a Poisson process: intervals are exponential, with a mean of `seconds`."""

    seconds: float

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        while True:
            yield stream.expovariate(1 / self.seconds)


MOST_GWEI = 10**9
"""A whole coin of 18 decimals, for a unit of gas."""


class RandomPrices(Protocol):
    """A price of gas that is drawn from a stream."""

    def prices(self, stream: Stream) -> Callable[[float], float]:
        """Return the price in gwei by the seconds since the world began, which never decrease."""


GasPrice = float | Callable[[float], float] | RandomPrices
"""Gwei for a unit of gas: constant, a function of the seconds since the world began, or drawn."""


def gas_price_wei(
    given: GasPrice | None, stream: Stream, now: Callable[[], float]
) -> Callable[[], int] | None:
    """Return a function of the gas price now, in wei, for a world that begins now.

    None, if none is given: then the chain takes its network's base fee.
    """
    if given is None:
        return None
    start_s = now()
    by_time = given.prices(stream) if hasattr(given, "prices") else given

    def price_wei() -> int:
        gwei = by_time(now() - start_s) if callable(by_time) else by_time
        if not 0 < gwei <= MOST_GWEI:
            raise ValueError(f"gas_price_gwei: expected above 0 to {MOST_GWEI}, got {gwei}")
        return round(gwei * 10**9)

    return price_wei


class Reorganises(Protocol):
    """When a chain reorganises, how deep, and the chance of lost transactions."""

    drop: float
    """The chance that a transaction of a replaced block is not mined again."""

    def depths(self, stream: Stream) -> Iterator[int]:
        """Yield before each new block how many of the newest are replaced; 0 is none."""


@dataclass(frozen=True, slots=True)
class Reorgs:
    """Before each new block, the newest blocks are replaced with `probability`.

    probability
        The chance of a reorganisation, before each new block.
    deeper
        The chance that one of d blocks has d + 1: a transfer with t blocks on top is undone with
        probability · deeper^t before the next block; default 0.5.
    drop
        The chance that a transaction of a replaced block is lost, and not mined again; default 1.
        Transactions of the token's owner, such as mints, are always mined again.
    """

    probability: float
    deeper: float = 0.5
    drop: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.deeper < 1:
            raise ValueError("deeper: expected 0 to below 1, or a reorganisation has no end")

    def depths(self, stream: Stream) -> Iterator[int]:
        """Yield the depths, which are geometric."""
        while True:
            depth = int(stream.random() < self.probability)
            while depth and stream.random() < self.deeper:
                depth += 1
            yield depth


async def dropped(chain: Chain, depth: int, drop: float, stream: Stream) -> Collection[Hash]:
    """Draw which transactions of the newest blocks are lost."""
    height = await chain.height()
    blocks = [await chain.block(number) for number in range(height - depth + 1, height + 1)]
    lost = []
    for tx_hash in (tx for block in blocks if block for tx in block.tx_hashes):
        sent = await chain.transaction(tx_hash)
        if sent is not None and sent.call.sender != chain.owner and stream.random() < drop:
            lost.append(tx_hash)
    return lost


# --- backends ---------------------------------------------------------------------------

ACCOUNTS, MOST_ACCOUNTS = 10, 100
ACCOUNT_BALANCE = 1000
"""The initial balance of each account, in whole tokens."""


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """The funded accounts, the token's owner and the facilitators of one world."""

    funded: tuple[Wallet, ...]
    mnemonic: str | None = None
    """The phrase of the funded accounts; None if they are drawn from the seed."""
    owner: Wallet
    facilitators: Mapping[str, Wallet]
    """The facilitators by name."""
    held_wei: Mapping[str, int] = {}
    """The native balances of the facilitators without plenty."""

    @classmethod
    def drawn(
        cls,
        keys: Rng,
        facilitators: Mapping[str, FacilitatorSettings],
        *,
        mnemonic: str | None,
        count: int,
    ) -> "Accounts":
        """Draw the keys from a seed, but take the funded accounts from a `mnemonic`, if given.

        Raises `ValueError` for a text that is no phrase.
        """
        first, *others = facilitators
        if mnemonic is None:
            funded = [keys.secret(f"account {n}") for n in range(count)]
        else:
            if mnemonic != phrase.KNOWN:  # the check takes half a second
                Wallet.from_mnemonic(mnemonic)
            funded = phrase.keys_of(mnemonic, count)
        return cls(
            funded=tuple(map(Wallet, funded)),
            mnemonic=mnemonic,
            owner=Wallet(keys.secret("token owner")),
            facilitators={first: Wallet(keys.secret("facilitator"))}
            | {name: Wallet(keys.secret(f"facilitator {name}")) for name in others},
            held_wei={
                name: round(settings.native * 10**18)
                for name, settings in facilitators.items()
                if settings.native is not None
            },
        )

    @property
    def origin(self) -> bytes:
        """What a chain file stores of the funded accounts: nothing if they are the usual ten drawn
        from the seed.
        """
        if self.mnemonic is None and len(self.funded) == ACCOUNTS:
            return b""
        return hashlib.sha256(b"".join(wallet.address_bytes for wallet in self.funded)).digest()

    @property
    def native(self) -> dict[Address, int]:
        """Their initial native balances, in wei, to pay for gas."""
        return {wallet.address_bytes: PLENTY_WEI for wallet in self.funded} | {
            wallet.address_bytes: self.held_wei.get(name, PLENTY_WEI)
            for name, wallet in self.facilitators.items()
        }


class ChainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A world's demands on a chain; a backend that cannot meet all raises `ChainError`."""

    network: Network
    clock: Clock
    accounts: Accounts
    secret: bytes
    """The id of the world's database, stored in the chain file."""
    has_payments: bool = False
    """Whether the database has payments: then the chain must not be empty."""
    file: Path | None = None
    has_block_time: bool = False
    """Whether the world decides when blocks come."""
    unlocked: bool = False
    """Whether the RPC signs transactions for the funded accounts."""
    gas_price: Callable[[], int] | None = None
    """The price in wei of a unit of gas now; None: the network's base fee."""
    calls_at_block_time: bool = False
    """Whether calls in the newest state are judged at its block's time, and not now."""
    without_token_rules: tuple[tuple[str, str], ...] = ()
    """The token's rules to leave out: (name of the table, clause)."""

    @property
    def balances(self) -> dict[Address, int]:
        """The funded accounts' initial token balances, in the network's base units."""
        balance_base = ACCOUNT_BALANCE * 10**self.network.decimals
        return {wallet.address_bytes: balance_base for wallet in self.accounts.funded}


class OpenChain(msgspec.Struct, frozen=True, kw_only=True):
    """An open chain: the interface, the JSON-RPC and the needs it meets."""

    chain: Chain
    network: Network
    """The network, with the address of the token on this chain."""
    rpc_app: Starlette
    capabilities: frozenset[Need]
    facilitator: PrivateKey | None = None
    """The key of the account that submits the settlements of every facilitator; None if each has
    its own."""


def require_evm(request: ChainRequest) -> None:
    """Raise `ChainError` without web3, or if the world leaves out rules of the token."""
    if find_spec("web3") is None:
        raise ChainError(f"a real chain needs web3: {install('evm')}")
    if request.without_token_rules:
        tables = ", ".join(table for table, _ in request.without_token_rules)
        raise ChainError(f"the rules of a real token cannot be left out: {tables}")


class ChainBackend(Protocol):
    """A chain that a world can run on."""

    @property
    def kind(self) -> str:
        """The kind in JSON: "ledger", "anvil" or "node"."""

    @property
    def name(self) -> str:
        """The name on the command line; of a URL only the host, as the rest is often secret."""

    @property
    def is_virtual(self) -> bool:
        """Whether blocks follow the world's clock, as virtual time requires.

        If not, the chain is an existing node and outlives the world: keys and ids never repeat.
        """

    def open(self, request: ChainRequest) -> OpenChain:
        """Open the chain; blocks until it is ready.

        Raises `ChainError` with the lack, and `sqlite3.Error` for the chain's file.
        """


CHAIN = ".chain"
"""The suffix of a chain's file, after the name of its database."""
_OF_OUR_CHAINS = frozenset({Need.FUNDS, Need.OBSERVE_CHAIN, Need.CONTROL_CHAIN, Need.CLOCK})


@dataclass(frozen=True, slots=True)
class LedgerBackend:
    """A chain in memory with Circle's token, FiatToken v2.2 behind its proxy: its rules, words and
    gas. With a database FILE it is stored in FILE.chain.
    """

    kind = name = "ledger"
    is_virtual = True

    def open(self, request: ChainRequest) -> OpenChain:
        """Open the chain; raises `ChainError` and `sqlite3.Error` for its file."""
        accounts = request.accounts
        chain = LedgerChain(
            request.network,
            request.clock,
            owner=accounts.owner.address_bytes,
            balances=request.balances,
            native=accounts.native,
            has_history=request.has_payments,
            accounts=accounts.origin,
            origin=hashlib.sha256(b"origin" + request.secret).digest(),
            file=request.file and request.file.with_name(request.file.name + CHAIN),
            left_out=request.without_token_rules,
            gas_price=request.gas_price,
            calls_at_block_time=request.calls_at_block_time,
        )
        keys = [from_hex(wallet.private_key, 32) for wallet in accounts.funded]
        return OpenChain(
            chain=chain,
            network=request.network,
            rpc_app=rpc_app(chain, keys=keys, unlocked=request.unlocked),
            capabilities=_OF_OUR_CHAINS | {Need.FIAT_TOKEN},
        )


@dataclass(frozen=True, slots=True)
class Anvil:
    """An anvil (Foundry's test node) on a free port; needs the extra `evm`.

    `program` is its path; by default it is searched in X402SIM_ANVIL, on PATH, and in the npm
    package @foundry-rs/anvil.
    """

    program: Path | None = None
    kind = name = "anvil"
    is_virtual = True

    def open(self, request: ChainRequest) -> OpenChain:
        """Start the node and install the token; raises `ChainError`."""
        require_evm(request)
        if request.file is not None:
            raise ChainError("--db is not supported with anvil: its chain ends with the process")
        from x402sim.chain.node.anvil import AnvilNode
        from x402sim.chain.node.local_chain import LocalChain
        from x402sim.chain.rpc.node import node_rpc_app

        accounts, network, clock = request.accounts, request.network, request.clock
        node = AnvilNode(
            network.chain_id,
            clock.now_s(),
            self.program,
            in_line=_is_time_virtual(),
            mnemonic=accounts.mnemonic or "",
            accounts=len(accounts.funded) if accounts.mnemonic else 0,
            base_fee_wei=network.base_fee_wei,
        )
        if request.gas_price:
            # without a base fee the whole price is tip: it stays as it was at the sending
            node.rpc.ask_now("anvil_setNextBlockBaseFeePerGas", "0x0")
        chain = LocalChain(
            node,
            network,
            clock,
            owner=accounts.owner.address_bytes,
            balances=request.balances,
            native=accounts.native,
            gas_price=request.gas_price,
            calls_at_block_time=request.calls_at_block_time,
        )
        return OpenChain(
            chain=chain,
            network=network,
            rpc_app=node_rpc_app(chain, may_write=request.unlocked),
            capabilities=_OF_OUR_CHAINS,
        )


def _is_time_virtual() -> bool:
    try:
        return isinstance(asyncio.get_running_loop(), VirtualLoop)
    except RuntimeError:
        return False


KEYS = "X402SIM_CHAIN_KEYS"
"""The environment variable with the private keys for a node, comma-separated."""


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """The JSON-RPC node at `url`; needs the extra `evm`.

    `token` is the address of a token on the node, whose contract then says name, version and
    decimals; by default the network's own. With `deploy` a new token is deployed first.
    `keys` are private keys, by default those in X402SIM_CHAIN_KEYS: the first pays for gas, and
    a minter's, if listed, mints for payers. Raises `ValueError` for an
    invalid URL or address.
    """

    url: str
    token: str | None = None
    deploy: bool = False
    keys: tuple[str, ...] = ()
    kind = "node"
    is_virtual = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a node's URL is http://HOST:PORT, not {as_given(self.name)}")
        if self.token is not None and self.deploy:
            raise ValueError("name a token that is on the node, or deploy a new one, not both")
        if self.token is not None:
            try:
                parse_address(self.token)
            except ValueError as wrong:
                raise ValueError(f"the token: {wrong}") from None

    def __repr__(self) -> str:
        return f"Node({self.name!r})"

    @property
    def name(self) -> str:
        """The URL without path and password, which are often secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def open(self, request: ChainRequest) -> OpenChain:
        """Connect to the node, and deploy the token if `deploy`; raises `ChainError`."""
        require_evm(request)
        if request.has_block_time:
            raise ChainError(f"a block time cannot be set: {self.name} mines at its own pace")
        if request.gas_price or request.accounts.held_wei:
            raise ChainError(f"gas_price_gwei and native cannot be set: {self.name} has its own")
        from x402sim.chain.node.external import ExternalChain
        from x402sim.chain.rpc.node import node_rpc_app

        network, keys = request.network, keys_of(self.keys, os.environ)
        if self.token is not None:
            network = replace(network, asset=parse_address(self.token))
        balances = request.balances

        async def connect() -> ExternalChain:
            chain = await ExternalChain.open(
                self.url,
                network,
                request.clock,
                keys,
                deploy=self.deploy,
                read=self.token is not None,
            )
            if self.deploy:
                await asyncio.gather(*(chain.fund(*each) for each in balances.items()))
            return chain

        try:
            chain = run_anywhere(connect)
        except TimeoutError as late:
            raise ChainError(str(late)) from late
        funds = {Need.FUNDS} if chain.owner in chain.keys else set()
        return OpenChain(
            chain=chain,
            network=chain.network,
            facilitator=PrivateKey(keys[0]),
            rpc_app=node_rpc_app(chain, may_write=request.unlocked),
            capabilities=frozenset({Need.OBSERVE_CHAIN, *funds}),
        )


def keys_of(given: tuple[str, ...], environ: Mapping[str, str]) -> list[bytes]:
    """Return the given private keys, or those in `KEYS`. Raises `ChainError` that shows no key."""
    text = ",".join(given) if given else environ.get(KEYS, "")
    try:
        keys = [parse_key(key.strip()) for key in text.split(",") if key.strip()]
    except ValueError:
        where, wanted = "keys" if given else KEYS, "private keys as 0x and 64 hex digits"
        raise ChainError(f"{where}: expected {wanted}, with commas") from None
    if not keys:
        raise ChainError(f"{KEYS} must hold private keys: the first pays for gas on the node")
    return keys


DEFAULT_CHAIN = LedgerBackend()


def parse_chain(text: str, *, token: str | None = None, deploy: bool = False) -> ChainBackend:
    """Return the chain that `text` names: "ledger", "anvil" or the URL of a node.

    `token` and `deploy` are the node's (see `Node`). Raises `ValueError` that lists the possible
    names and suggests the nearest.
    """
    if text.startswith(("http://", "https://")):
        return Node(text, token=token, deploy=deploy)
    known: dict[str, ChainBackend] = {"ledger": DEFAULT_CHAIN, "anvil": Anvil()}
    if text not in known:
        raise ValueError(unknown("chain", text, [*known, "http://HOST:PORT"]))
    if token is not None or deploy:
        raise ValueError(
            f"a token can be named or deployed only on a node (`--chain URL`): {text} has its own"
        )
    return known[text]


# --- the chain as a facilitator reaches it ----------------------------------------------


class FacilitatorNode:
    """The chain for one facilitator, a `ChainClient`.

    Calls go to the chain directly, or, while a fault for facilitators is active, over a link as
    from a real facilitator: JSON-RPC, with signed transactions and polled receipts.
    """

    def __init__(
        self,
        chain: Chain,
        faults: Faults,
        link: Callable[[], Transport],
        url: str,
        network: Network,
        clock: Clock,
        key: PrivateKey,
    ) -> None:
        self.token = chain.token
        self.direct = chain
        """The chain itself, without faults."""
        self._faults, self._link, self._url = faults, link, url
        self._network, self._clock, self._key = network, clock, key
        self._linked: LinkedChain | None = None

    @property
    def _now(self) -> ChainClient:
        if not self._faults.reach_facilitators:
            return self.direct
        if self._linked is None:
            from x402sim.chain.node.evm_chain import LinkedChain, LinkedNode  # most need none

            node = LinkedNode(self._link(), self._url)
            self._linked = LinkedChain(node, self._network, self._clock, self._key.secret)
        return self._linked

    def __getattr__(self, name: str) -> Any:
        """Return any other method of a `ChainClient`, as the calls go now."""
        return getattr(self._now, name)

    def wait(self, tx_hash: Hash, timeout_s: float) -> Coroutine[Any, Any, TxReceipt]:
        """Return the receipt once the transaction is mined; raises `TimeoutError`.

        A transaction sent over the link may be lost, so the link's sender waits, and sends again.
        """
        if self._linked is not None and self._linked.has_sent(tx_hash):
            return self._linked.wait(tx_hash, timeout_s)
        return self._now.wait(tx_hash, timeout_s)
