"""The messages that the control API answers, and the ready message of `serve --json`.

Amounts are base units as decimal strings; hashes and addresses are 0x-hex.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from x402sim.protocol.crypto import parse_address
from x402sim.protocol.messages import Agent, Wire
from x402sim.protocol.networks import ChainId, Decimals, Network

Address = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")]
Url = Annotated[str, Meta(pattern="^https?://")]
Base = Annotated[str, Meta(pattern="^[0-9]{1,78}$", description="Base units.")]


class TokenInfo(Wire, frozen=True):
    """What a payer must know to sign for a network's token: its EIP-712 domain and decimals."""

    chain_id: ChainId
    name: str
    symbol: str
    version: str
    decimals: Decimals


class WorldInfo(Wire, frozen=True):
    """The description of a world: addresses, capabilities, time (epoch ms), number of events."""

    pay_to: Address
    asset: Address
    token_owner: Address
    chain: str
    network: str
    token: TokenInfo
    offers: list[str]
    now: Annotated[int, Meta(ge=86_400_000, le=253_402_300_799_999)]  # to the end of year 9999
    journal: int
    service: bool


def network_of(who: WorldInfo) -> Network:
    """Return the network that a world is on."""
    return Network(
        name=who.network,
        chain_id=who.token.chain_id,
        asset=parse_address(who.asset),
        token_name=who.token.name,
        token_symbol=who.token.symbol,
        token_version=who.token.version,
        decimals=who.token.decimals,
    )


class OnNetwork(Wire, frozen=True):
    """One network of a server: the chain's JSON-RPC, and the token."""

    network: str
    chain_id: int
    rpc: Url
    asset: Address
    token: TokenInfo


class Account(Wire, frozen=True):
    """A funded account. Its balance is in base units, and in tokens: "1000.00"."""

    address: Address
    private_key: Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{64}$")]
    balance: Base
    balance_decimal: Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+$", description="Tokens.")]


class FailingAccount(Account, frozen=True, kw_only=True):
    """An account whose payments fail, how, and why; `nonce` is the used one."""

    fails: str
    why: str
    nonce: str | None = None


class Paid(Wire, frozen=True):
    """A settled payment: the path, the payer, the amount in base units, the transaction."""

    payment_id: str
    path: str
    payer: str
    amount_base: Base
    tx_hash: str


class Ready(Wire, frozen=True):
    """What `serve --json` prints first: the URLs, the addresses and the funded accounts.

    `schema` is the `$id` of the message's schema, in the guide. `service` is null in a world
    without a service, `control` where the control API is off. `networks` are all networks to pay
    on, the service's first.
    """

    event: Literal["ready"]
    schema: Annotated[
        Literal["urn:x402sim:serve:1"],
        Meta(description="This schema's $id; it changes when a field goes, or means another."),
    ]
    service: Annotated[Url | None, Meta(description="Null with --no-service.")]
    facilitator: Annotated[Url, Meta(description="The x402 standard's, and Cronos' dialect.")]
    explorer: Url
    rpc: Annotated[Url, Meta(description="JSON-RPC of the first network's chain.")]
    control: Annotated[Url | None, Meta(description="The control API; null if it is off.")]
    pay_to: Annotated[Address, Meta(description="The merchant's address.")]
    asset: Annotated[Address, Meta(description="The token of the first network.")]
    network: Annotated[str, Meta(description='Its name in version 1: "base-sepolia".')]
    chain: Annotated[str, Meta(description='The backend: "ledger", "anvil" or "node".')]
    chain_id: int
    token: TokenInfo
    accounts: Annotated[
        list[Account], Meta(description="The accounts that pay; everybody knows their keys.")
    ]
    networks: Annotated[list[OnNetwork], Meta(description="All networks, the first among them.")]


class ChainState(Wire, frozen=True):
    """The chain's newest block (time in Unix seconds), its mempool and the token's supply."""

    chain_id: int
    height: int | None
    timestamp: int | None
    automine: bool
    waiting: int
    supply: str


class State(Wire, frozen=True):
    """The state of a world: its clock (epoch ms), chain, database and cache.

    `unindexed_payments` have no block yet: the indexer will ask for them.
    `skews` has the clocks that are wrong, by how many seconds; `lag_seconds` is the explorer's.
    """

    now: int
    clock_advanced_seconds: float
    skews: dict[str, float]
    lag_seconds: float
    network: str
    chain: ChainState
    rows: dict[str, int]
    pending_payments: int
    unindexed_payments: int
    agents: list[Agent]
    cached_entitlements: int
    snapshots: list[int]


class Transfer(Wire, frozen=True):
    """A transfer of the token, named as in the journal; a mint comes from the zero address.

    `amount_base` is text, as every amount on the wire: `int(transfer.amount_base)` base units.
    """

    tx_hash: str
    block_number: int
    sender: str
    to: str
    amount_base: str


class ExplorerQuery(Wire, frozen=True):
    """A query to the explorer about a transaction, and when it came (epoch ms)."""

    tx_hash: str
    at: int


class Sent(Wire, frozen=True):
    """A sent transaction, mined or not.

    `revert_reason` is the token's own text, and `cause` is the same for every token
    (`x402sim.chain.reverts.Cause`); both are null if the call took effect or waits.
    """

    tx_hash: str
    mined: bool
    revert_reason: str | None
    cause: str | None


# --- what the other actions answer -------------------------------------------------------


class Balance(Wire, frozen=True):
    """An address, and the present balance."""

    address: Address
    balance: Base


class MadeWallet(Wire, frozen=True):
    """A wallet that is a contract."""

    address: Address


class Height(Wire, frozen=True):
    """The number of the chain's newest block."""

    height: int


class Automine(Wire, frozen=True):
    """Whether each transaction is mined immediately."""

    automine: bool


class Waiting(Wire, frozen=True):
    """How many transactions wait in the mempool."""

    waiting: int


class Reverts(Wire, frozen=True):
    """How many calls of the token will revert."""

    calls: int


class SnapshotTaken(Wire, frozen=True):
    """The id of a snapshot."""

    snapshot: int


class Reverted(Wire, frozen=True):
    """The restored snapshot, and how far the clock is ahead of real time."""

    reverted: int
    clock_advanced_seconds: float


class ResetDone(Wire, frozen=True):
    """A fresh world, and how far the clock is ahead of real time."""

    reset: bool
    clock_advanced_seconds: float


class Now(Wire, frozen=True):
    """The time of the clock (epoch ms)."""

    now: int


class Lag(Wire, frozen=True):
    """How far the explorer is behind the chain."""

    lag_seconds: float


class FacilitatorNow(msgspec.Struct, frozen=True):
    """A facilitator and the settings, by the names of `FacilitatorSettings`."""

    name: str
    receipt_timeout_s: float
    simulates: bool
    simulates_verify: bool
    listing_delay_s: float
    native: float | None


class Standing(Wire, frozen=True):
    """How many faults are active."""

    standing: int


class Crashes(Wire, frozen=True):
    """How often the service was killed."""

    crashes: int


class Indexed(Wire, frozen=True):
    """The counts of a run of the indexer, by result; `backlog` payments still have no block."""

    asked: int
    matched: int
    reverted: int
    unknown: int
    unanswered: int
    backlog: int
