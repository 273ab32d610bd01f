"""The dialect of the Cronos explorer: `/api/v1/ethproxy/get…?txHash=0x…`.

A bad hash is a 400; an `apikey` is ignored.
"""

from collections.abc import Callable

from x402sim.explorer.index import (
    BY_HASH,
    Answer,
    ByHash,
    Fields,
    Index,
    block,
    execution_status,
    ok,
)
from x402sim.http import web
from x402sim.protocol.rpc_values import BadParams, Json, quantity, read_hash

_PATH = "/api/v1/ethproxy/get"
_HASH = "txHash"


async def _height(index: Index, _: Fields) -> Json:
    return {"result": quantity(await index.height())}


async def _block(index: Index, fields: Fields) -> Json:
    is_full = fields.get("txDetail", "") == "true"
    try:
        return {"result": await block(index, fields.get("tag", ""), full=is_full)}
    except BadParams as wrong:
        raise web.Refused(400, "Invalid block tag", str(wrong)) from wrong


def _by_hash(ask: ByHash, wrap: Callable[[Json | None], Json]) -> Answer:
    async def answered(index: Index, fields: Fields) -> Json:
        try:
            tx_hash = read_hash(fields.get(_HASH, ""), _HASH)
        except BadParams as wrong:
            raise web.Refused(400, "Invalid transaction hash", str(wrong)) from wrong
        return wrap(await ask(index, tx_hash))

    return answered


ANSWERS: dict[str, Answer] = {
    _PATH + "BlockNumber": _height,
    _PATH + "BlockByNumber": _block,
    "/api/v1/transaction/getStatus": _by_hash(execution_status, ok),
    **{_PATH + name: _by_hash(ask, lambda it: {"result": it}) for name, ask in BY_HASH.items()},
}
