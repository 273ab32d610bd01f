"""Actions on blocks: mine, pause mining, reorganise, and force reverts."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from x402sim.http.web import bad_body
from x402sim.protocol.crypto import Hash, from_hex
from x402sim.world.control.context import Context, Nothing, mining, rewinding


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


async def mine(context: Context, asked: Mine) -> Any:
    """Mine blocks: {"blocks": 1}. The first includes every waiting transaction."""
    return {"height": await mining(context.parts).mine(asked.blocks)}


async def set_mining(context: Context, asked: Mining) -> Any:
    """Mine each transaction immediately, or only on demand: {"automine": false}."""
    await mining(context.parts).set_automine(asked.automine)
    return {"automine": asked.automine}


async def reorg(context: Context, asked: Reorg) -> Any:
    """Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}.

    Their transactions are mined again, except those in "drop".
    """
    await rewinding(context.parts).reorg(asked.depth, [_tx_hash(text) for text in asked.drop])
    return {"height": await context.parts.chain.height()}


async def drop(context: Context, _: Nothing) -> Any:
    """Drop every transaction from the mempool."""
    await rewinding(context.parts).drop()
    return {"waiting": 0}


async def force_revert(context: Context, asked: ForceRevert) -> Any:
    """Make the next calls of the token revert when mined: {"calls": 1}."""
    await rewinding(context.parts).force_revert(asked.calls)
    return {"calls": asked.calls}


def _tx_hash(text: str) -> Hash:
    """Return a transaction's hash; raises `Refused` 400."""
    try:
        return Hash(from_hex(text, 32))
    except ValueError as error:
        raise bad_body(str(error)) from error
