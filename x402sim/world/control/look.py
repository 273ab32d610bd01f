"""Actions that read: the world's description, its accounts and its state."""

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.service.content import agents
from x402sim.world.control.context import Context, balance_of, merchant
from x402sim.world.control.messages import Account, ChainState, ExplorerQuery, State, TokenInfo, Who


async def who(context: Context) -> Any:
    """Describe the world: merchant, token, owner, network, capabilities."""
    parts = context.parts
    return Who(
        pay_to=checksum(merchant(parts)),
        asset=checksum(parts.chain.token),
        token_owner=checksum(parts.chain.owner),
        chain=parts.recipe.chain.kind,
        network=parts.network.name,
        token=token_info(parts.network),
        offers=sorted(parts.offers),
        now=parts.clock.now_ms(),
        journal=parts.journal.length,
        service=parts.recipe.has_service,
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


async def accounts(context: Context) -> Any:
    """The funded accounts of `serve`, with their private keys and balances in base units."""
    decimals, found = context.parts.network.decimals, []
    for wallet in context.parts.accounts:
        balance_base = await balance_of(context.parts, wallet.address_bytes)
        found.append(
            Account(
                address=wallet.address,
                private_key=wallet.private_key,
                balance=str(balance_base),
                balance_decimal=to_decimal(balance_base, decimals),
            )
        )
    return found


async def queries(context: Context, since: int = 0) -> Any:
    """The newest queries to the explorer about transactions, oldest first; ?since=MS later ones."""
    made = context.parts.index.queries
    later = (each for each in made if each.at_ms >= since)
    return [ExplorerQuery(tx_hash=to_hex(each.tx_hash), at=each.at_ms) for each in later]


async def journal(context: Context, since: Annotated[int, Meta(ge=0)] = 0) -> Any:
    """What happened, and what was done here, as NDJSON; ?since=SEQ skips the rest."""
    entries = context.parts.journal.ndjson(since)
    return Response(entries, media_type="application/x-ndjson")


async def state(context: Context) -> Any:
    """Show the state of the world: clock, chain, database and cache."""
    parts = context.parts
    chain = parts.chain
    head = await chain.block(await chain.height())
    return State(
        now=parts.clock.now_ms(),
        clock_advanced_seconds=parts.clock.offset_s,
        skews={name: clock.skew_s for name, clock in parts.site.clocks.items() if clock.skew_s},
        lag_seconds=parts.index.lag_s,
        network=parts.network.name,
        chain=ChainState(
            chain_id=chain.chain_id,
            height=head.number if head else None,
            timestamp=head.timestamp_s if head else None,
            automine=chain.controls.automine if chain.controls else True,
            waiting=await chain.waiting(),
            supply=str(await chain.supply()),
        ),
        rows=parts.service.store.counts(),
        pending_payments=parts.service.store.payments.unresolved(),
        unindexed_payments=parts.service.store.payments.backlog(),
        agents=agents(parts.service) if parts.recipe.has_service else [],
        cached_entitlements=len(parts.service.entitlements),
        snapshots=sorted(context.saved),
    )
