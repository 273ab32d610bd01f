"""The interfaces of a chain and of control over a test chain; its messages, errors and limits."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

import msgspec

from x402sim.protocol.crypto import Address, Hash
from x402sim.protocol.raw_transaction import LEGACY, SignedTransaction


class ChainError(Exception):
    """The chain rejected a call or a control operation; its state is unchanged."""


class ChainUnavailable(ChainError):
    """The chain cannot be used now, for example because the disk is full; it did nothing."""


class Reverted(Exception):
    """The token reverted a call; the text is the revert reason.

    `last` is the last padding byte of the revert data: Circle's compiler leaves a length there.
    """

    def __init__(self, reason: str, last: int = 0) -> None:
        super().__init__(reason)
        self.last = last


class Call(msgspec.Struct, frozen=True, gc=False):
    """An unsent transaction: `data` is ABI-encoded calldata, `value` native wei."""

    sender: Address
    to: Address
    data: bytes
    value: int = 0


class ForcedReverts(msgspec.Struct, frozen=True):
    """How many of the next calls of the token revert; with an account, only calls that name the
    account.
    """

    calls: int = 0
    account: bytes | None = None

    def strike(self, call: Call) -> bool:
        """Return whether this call of the token is to revert.

        A call names an account as the sender, or by the address in the data, as each transfer of
        the account's money does.
        """
        named = self.account is None or self.account == call.sender or self.account in call.data
        return self.calls > 0 and named

    def less_one(self) -> "ForcedReverts":
        """Return the rest after one forced revert."""
        return ForcedReverts(self.calls - 1, self.account)


class Log(msgspec.Struct, frozen=True, gc=False):
    """An event of a mined transaction; `index` counts within its block."""

    address: Address
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: Hash
    tx_hash: Hash
    tx_index: int
    index: int
    timestamp_s: int = 0
    """The time of its block; 0 if the node does not report it."""


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction, mined or not: the block fields are None while it is in the mempool.

    `gas_price` is in wei for a unit of gas. `signed` is None if the chain sent the transaction for
    an account without a signature.
    """

    hash: Hash
    call: Call
    nonce: int
    gas_limit: int
    gas_price: int
    block_number: int | None = None
    block_hash: Hash | None = None
    index: int | None = None
    signed: SignedTransaction | None = None


class TxReceipt(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a mined transaction; `revert_reason` is None if it succeeded."""

    tx_hash: Hash
    block_number: int
    block_hash: Hash
    index: int
    call: Call
    gas_used: int
    gas_price: int
    cumulative_gas_used: int
    logs: tuple[Log, ...]
    revert_reason: str | None
    type: int = LEGACY

    @property
    def succeeded(self) -> bool:
        """Whether the transaction took effect."""
        return self.revert_reason is None


class Block(msgspec.Struct, frozen=True, gc=False):
    """A mined block; `timestamp_s` never decreases from one block to the next."""

    number: int
    hash: Hash
    parent: Hash
    timestamp_s: int
    tx_hashes: tuple[Hash, ...]
    gas_used: int
    base_fee_wei: int


class LogFilter(msgspec.Struct, frozen=True):
    """A log filter: a block range, and the accepted values of each topic (empty: any)."""

    from_block: int
    to_block: int
    addresses: tuple[Address, ...] = ()
    topics: tuple[tuple[bytes, ...], ...] = ()


def require_depth(depth: int, deepest: int) -> None:
    """Raise `ChainError` if a reorganisation would be deeper than is possible."""
    if not 1 <= depth <= deepest:
        raise ChainError(f"cannot replace the last {depth} blocks; the last {deepest} can be")


class Controls(Protocol):
    """Control over blocks, history and state, which no public node offers.

    A block has the time of the world's clock.
    """

    @property
    def automine(self) -> bool:
        """Whether each transaction is mined immediately."""

    async def set_automine(self, on: bool) -> None:
        """Mine each transaction immediately (on), or only when `mine` is called (off)."""

    async def mine(self, blocks: int = 1) -> int:
        """Mine blocks; the first includes every waiting transaction. Return the new height."""

    @property
    def snapshots(self) -> Collection[int]:
        """The ids of the snapshots that `revert` can go back to; a reorganisation deletes the
        snapshots of replaced blocks.
        """

    async def snapshot(self) -> int:
        """Take a snapshot of the state; return its id."""

    async def revert(self, snapshot: int) -> None:
        """Revert to a snapshot, and delete all snapshots from this on; raises `ChainError`."""

    async def deepest_reorg(self) -> int:
        """Return how many of the last blocks `reorg` can replace."""

    async def reorg(self, depth: int, drop: Collection[Hash] = ()) -> None:
        """Replace the last `depth` blocks by as many new ones. The last new block includes the
        replaced transactions again, except those in `drop`: they are lost. Raises `ChainError`.
        """

    async def reset(self) -> None:
        """Revert to block 0. The automine setting is kept."""

    async def drop(self, only: Hash | None = None) -> bool:
        """Drop every transaction from the mempool, as a node short of memory does; with `only`,
        this transaction and the account's later ones. Return whether there was any.
        """

    async def force_revert(self, calls: int, account: Address | None = None) -> None:
        """Make the next `calls` calls of the token revert when mined; with an account, the next
        calls with this sender, or with this address in the data.
        """

    async def set_code(
        self, account: Address, code: bytes, slots: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Set an account's code and words of its storage, without a transaction.

        They stay until `reset`: no reorganisation and no `revert` removes them.
        """

    async def set_native_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance, without a transaction."""


class ChainClient(Protocol):
    """What a facilitator uses of a chain: reading, simulating and sending calls, and waiting for
    receipts.
    """

    token: Address

    async def height(self) -> int:
        """Return the number of the newest block."""

    async def block(self, which: int | Hash) -> Block | None:
        """Return a block by number or hash."""

    async def call(self, call: Call) -> bytes:
        """Run a call and discard its effects (eth_call). Returns the ABI-encoded result; raises
        `Reverted`.
        """

    async def send(self, call: Call) -> Hash:
        """Put a transaction of an account this chain can sign for into the mempool.

        Returns its hash; raises `ChainError` if the account cannot pay for the gas.
        """

    async def send_signed(self, raw: bytes) -> Hash:
        """Put a signed transaction of any account into the mempool, given as the bytes that nodes
        exchange; raises `ChainError`.
        """

    async def wait(self, tx_hash: Hash, timeout_s: float) -> TxReceipt:
        """Return the receipt once the transaction is mined; raises `TimeoutError`."""

    async def native_balance(self, account: Address) -> int:
        """Return an account's native balance in wei."""

    async def account_nonce(self, account: Address) -> int:
        """Return how many transactions an account has sent, waiting ones included."""

    async def code(self, account: Address) -> bytes:
        """Return a contract's code; empty for an account without any."""


class Chain(ChainClient, Protocol):
    """A chain that a world runs on: it can be read and sent to."""

    chain_id: int
    owner: Address
    """The account that may mint, and pause or blacklist where the token has these functions."""
    at_first: tuple[list[Block], int]
    """The blocks at the time of opening, oldest first, and the supply."""
    watchers: list[Callable[[], Awaitable[None]]]
    """Functions to call after every operation."""

    @property
    def controls(self) -> Controls | None:
        """Control over it; None on an existing node: nobody here controls the blocks."""

    async def transaction(self, tx_hash: Hash) -> Transaction | None:
        """Return a transaction, mined or waiting; None if unknown."""

    async def receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt of a mined transaction; None if unknown or waiting."""

    async def logs(self, wanted: LogFilter) -> list[Log]:
        """Return the logs that pass the filter, oldest first."""

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens to an account; raises `ChainError`, for example without a minter's key."""

    async def balance(self, account: Address) -> int:
        """Return an account's balance of the token, in base units."""

    async def supply(self) -> int:
        """Return the token's total supply, in base units."""

    async def waiting(self) -> int:
        """Return how many transactions wait in the mempool."""

    def close(self) -> None:
        """Close the file, the node and the connections."""


GAS_LIMIT = 200_000
"""The gas limit of a transaction without a signature: more than any call of a stablecoin needs."""
BLOCK_GAS_LIMIT = 30_000_000
PLENTY_WEI = 10**12 * 10**18
"""More native currency than anyone can spend on gas."""
