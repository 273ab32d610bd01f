"""Actions on snapshots of the chain, the database and the cache: take, revert, reset."""

from typing import Any

import msgspec

from x402sim.http.web import Refused
from x402sim.world.control.context import Context, Nothing, Saved, rewinding


class Revert(msgspec.Struct, frozen=True):
    """The snapshot to revert to."""

    snapshot: int


class Reset(msgspec.Struct, frozen=True):
    """Whether the clock shows real time again."""

    clock: bool = False


async def snapshot(context: Context, _: Nothing) -> Any:
    """Take a snapshot of chain, database and cache; answers {"snapshot": id}."""
    service = context.parts.service
    chains = [await rewinding(each).snapshot() for each in context.networks]
    number = chains[0]
    context.saved[number] = Saved(service.store.copy(), service.entitlements.all(), chains)
    return {"snapshot": number}


async def revert(context: Context, asked: Revert) -> Any:
    """Revert to a snapshot: {"snapshot": id}. It and all later ones are deleted.

    The clock is kept, as by `reset`; `clockAdvancedSeconds` is how far it is ahead.
    """
    saved = context.saved.get(asked.snapshot)
    if saved is None:
        known = ", ".join(map(str, sorted(context.saved))) or "none"
        raise Refused(404, "Unknown snapshot", f"got {asked.snapshot}, there are: {known}")
    chains, service = list(map(rewinding, context.networks)), context.parts.service
    service.store.restore(saved.database)  # the part that may fail comes first
    for chain, number in zip(chains, saved.chains, strict=True):
        await chain.revert(number)
    service.entitlements.clear()
    for entitlement in saved.entitlements:
        service.entitlements.add(entitlement)
    for number in [n for n in context.saved if n >= asked.snapshot]:
        context.saved.pop(number).database.close()
    return {"reverted": asked.snapshot, "clockAdvancedSeconds": context.parts.clock.offset_s}


async def reset(context: Context, asked: Reset) -> Any:
    """Reset to block 0, an empty database and the initial balances.

    {"clock": true} also gives the clock back, which no other action does: the journal and clients
    have seen its time. Else `clockAdvancedSeconds` is how far it is ahead of real time, and a payer
    with a right clock is refused.
    """
    chains = list(map(rewinding, context.networks))
    if asked.clock:
        context.parts.clock.give_back()
    context.parts.service.store.clear()  # if the chain then fails, reset again
    for chain in chains:
        await chain.reset()
    context.parts.service.entitlements.clear()
    for saved in context.saved.values():
        saved.database.close()
    context.saved.clear()
    return {"reset": True, "clockAdvancedSeconds": context.parts.clock.offset_s}
