"""Snapshots of a whole world, its chain, database and cache: take one, go back, begin again."""

from typing import Any

import msgspec

from x402sim.web import Refused
from x402sim.world.control.plane import Nothing, Plane, Saved, rewinding


class Revert(msgspec.Struct, frozen=True):
    """Go back to a snapshot."""

    snapshot: int


async def snapshot(plane: Plane, _: Nothing) -> Any:
    """Remember chain, database and cache: answers {"snapshot": id}. The clock goes on."""
    service = plane.parts.service
    number = await rewinding(plane.parts).snapshot()
    plane.saved[number] = Saved(service.store.copy(), service.entitlements.all())
    return {"snapshot": number}


async def revert(plane: Plane, asked: Revert) -> Any:
    """Go back to a snapshot: {"snapshot": id}. It and all later ones are used up."""
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
    """Begin again: block 0, an empty database, full accounts. The clock stays where it is."""
    await rewinding(plane.parts).reset()
    plane.parts.service.store.clear()
    plane.parts.service.entitlements.clear()
    for saved in plane.saved.values():
        saved.database.close()
    plane.saved.clear()
    return {"reset": True}
