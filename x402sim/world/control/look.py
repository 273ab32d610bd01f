"""Actions that read: the world's description, its accounts and its state."""

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.service.content import agents
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.common import balance_of, merchant
from x402sim.world.control.messages import (
    Account,
    ChainState,
    ExplorerQuery,
    State,
    TokenInfo,
    WorldInfo,
)


async def who(world: RunningWorld) -> Any:
    """Describe the world: merchant, token, owner, network, capabilities."""
    return WorldInfo(
        pay_to=checksum(merchant(world)),
        asset=checksum(world.chain.token),
        token_owner=checksum(world.chain.owner),
        chain=world.options.backend.kind,
        network=world.network.name,
        token=token_info(world.network),
        offers=sorted(world.offers),
        now=world.clock.now_ms(),
        journal=world.journal.length,
        service=world.options.has_service,
    )


def token_info(network: Network) -> TokenInfo:
    """Return what a payer must know to sign for the network's token."""
    return TokenInfo(
        chain_id=network.chain_id,
        name=network.token_name,
        symbol=network.token_symbol,
        version=network.token_version,
        decimals=network.decimals,
    )


async def accounts(world: RunningWorld) -> Any:
    """The funded accounts of `serve`, with their private keys and balances in base units."""
    decimals, found = world.network.decimals, []
    for wallet in world.accounts.funded:
        balance_base = await balance_of(world, wallet.address_bytes)
        found.append(
            Account(
                address=wallet.address,
                private_key=wallet.private_key,
                balance=str(balance_base),
                balance_decimal=to_decimal(balance_base, decimals),
            )
        )
    return found


async def queries(world: RunningWorld, since: int = 0) -> Any:
    """The newest queries to the explorer about transactions, oldest first; ?since=MS later ones."""
    made = world.index.queries
    later = (each for each in made if each.at_ms >= since)
    return [ExplorerQuery(tx_hash=to_hex(each.tx_hash), at=each.at_ms) for each in later]


async def journal(world: RunningWorld, since: Annotated[int, Meta(ge=0)] = 0) -> Any:
    """What happened, and what was done here, as NDJSON; ?since=SEQ skips the rest."""
    entries = world.journal.ndjson(since)
    return Response(entries, media_type="application/x-ndjson")


async def state(world: RunningWorld) -> Any:
    """Show the state of the world: clock, chain, database and cache."""
    chain = world.chain
    head = await chain.block(await chain.height())
    return State(
        now=world.clock.now_ms(),
        clock_advanced_seconds=world.clock.offset_s,
        skews={name: clock.skew_s for name, clock in world.clocks.items() if clock.skew_s},
        lag_seconds=world.index.lag_s,
        network=world.network.name,
        chain=ChainState(
            chain_id=chain.chain_id,
            height=head.number if head else None,
            timestamp=head.timestamp_s if head else None,
            automine=chain.controls.automine if chain.controls else True,
            waiting=await chain.waiting(),
            supply=str(await chain.supply()),
        ),
        rows=world.service.store.counts(),
        pending_payments=world.service.store.payments.unresolved(),
        unindexed_payments=world.service.store.payments.backlog(),
        agents=agents(world.service) if world.options.has_service else [],
        cached_entitlements=len(world.service.entitlements),
        snapshots=sorted(world.snapshots),
    )
