"""Actions on snapshots of the chain, the database and the cache: take, revert, reset."""

from typing import Any

import msgspec

from x402sim.web import Refused
from x402sim.world.control.plane import Nothing, Plane, Saved, rewinding


class Revert(msgspec.Struct, frozen=True):
    """The snapshot to revert to."""

    snapshot: int


async def snapshot(plane: Plane, _: Nothing) -> Any:
    """Take a snapshot of chain, database and cache; answers {"snapshot": id}."""
    service = plane.parts.service
    number = await rewinding(plane.parts).snapshot()
    plane.saved[number] = Saved(service.store.copy(), service.entitlements.all())
    return {"snapshot": number}


async def revert(plane: Plane, asked: Revert) -> Any:
    """Revert to a snapshot: {"snapshot": id}. It and all later ones are deleted."""
    saved = plane.saved.get(asked.snapshot)
    if saved is None:
        known = ", ".join(map(str, sorted(plane.saved))) or "none"
        raise Refused(404, "Unknown snapshot", f"got {asked.snapshot}, there are: {known}")
    await rewinding(plane.parts).revert(asked.snapshot)
    service = plane.parts.service
    service.store.restore(saved.database)
    service.entitlements.clear()
    for entitlement in saved.entitlements:
        service.entitlements.add(entitlement)
    for number in [n for n in plane.saved if n >= asked.snapshot]:
        plane.saved.pop(number).database.close()
    return {"reverted": asked.snapshot}


async def reset(plane: Plane, _: Nothing) -> Any:
    """Reset to block 0, an empty database and the initial balances. The clock is kept."""
    await rewinding(plane.parts).reset()
    plane.parts.service.store.clear()
    plane.parts.service.entitlements.clear()
    for saved in plane.saved.values():
        saved.database.close()
    plane.saved.clear()
    return {"reset": True}
