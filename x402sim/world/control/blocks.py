"""Actions on blocks: mine, pause mining, reorganise, and force reverts."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from x402sim.protocol.crypto import Hash, from_hex
from x402sim.web import bad_body
from x402sim.world.control.plane import Nothing, Plane, mining, rewinding


class Mine(msgspec.Struct, frozen=True):
    """Mine blocks."""

    blocks: Annotated[int, Meta(ge=1, le=1000)] = 1


class Mining(msgspec.Struct, frozen=True):
    """Mine each transaction immediately, or only on demand."""

    automine: bool


class Reorg(msgspec.Struct, frozen=True):
    """Replace the newest blocks; the transactions in `drop` are lost."""

    depth: Annotated[int, Meta(ge=1)] = 1
    drop: list[str] = []


class ForceRevert(msgspec.Struct, frozen=True):
    """How many of the next calls of the token revert."""

    calls: Annotated[int, Meta(ge=0, le=1000)] = 1


async def mine(plane: Plane, asked: Mine) -> Any:
    """Mine blocks: {"blocks": 1}. The first includes every waiting transaction."""
    return {"height": await mining(plane.parts).mine(asked.blocks)}


async def set_mining(plane: Plane, asked: Mining) -> Any:
    """Mine each transaction immediately, or only on demand: {"automine": false}."""
    await mining(plane.parts).set_automine(asked.automine)
    return {"automine": asked.automine}


async def reorg(plane: Plane, asked: Reorg) -> Any:
    """Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}.

    Their transactions are mined again, except those in "drop".
    """
    await rewinding(plane.parts).reorg(asked.depth, [_tx_hash(text) for text in asked.drop])
    return {"height": await plane.parts.chain.height()}


async def drop(plane: Plane, _: Nothing) -> Any:
    """Drop every transaction from the mempool."""
    await rewinding(plane.parts).drop()
    return {"waiting": 0}


async def force_revert(plane: Plane, asked: ForceRevert) -> Any:
    """Make the next calls of the token revert when mined: {"calls": 1}."""
    await rewinding(plane.parts).force_revert(asked.calls)
    return {"calls": asked.calls}


def _tx_hash(text: str) -> Hash:
    """Return a transaction's hash; raises `Refused` 400."""
    try:
        return Hash(from_hex(text, 32))
    except ValueError as error:
        raise bad_body(str(error)) from error
