"""Etherscan's dialect of the explorer: `/api?module=proxy&action=eth_get…&txhash=0x…`.

GET or POST, the fields in the URL or in a form. Every answer has status 200, errors too; an
`apikey` is ignored. The indexer (8/indexer-query) reads `blockNumber` in the answer of
eth_getTransactionByHash.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.chain.rpc.jsonrpc import error, result
from x402sim.explorer import blockscout
from x402sim.explorer.index import Index
from x402sim.explorer.objects import BY_HASH, OUTCOMES, ByHash, block, ok
from x402sim.explorer.query_fields import fields_of
from x402sim.http import web
from x402sim.protocol.rpc_values import BadParams, Json, quantity, read_hash

Fields = Mapping[str, str]
Action = Callable[[Index, Fields], Awaitable[Json]]
_ID = 1  # a query in a URL has no JSON-RPC id, so every answer has this one
_BAD_PARAMS = -32602


def routes(index: Index) -> list[Route]:
    """Return the routes of this dialect."""

    async def etherscan(request: Request) -> Response:
        fields = await fields_of(request)
        actions = _MODULES.get(fields.get("module", ""))
        if actions is None:
            return web.answer(_not_ok("Error! Missing Or invalid Module name"))
        action = actions.get(fields.get("action", ""))
        if action is None:
            return web.answer(_not_ok("Error! Missing Or invalid Action name"))
        return web.answer(await action(index, fields))

    return [Route("/api", etherscan, methods=["GET", "POST"])]


# --- module proxy: JSON-RPC without an envelope --------------------------------------


async def _height(index: Index, _: Fields) -> Json:
    return result(_ID, quantity(await index.height()))


async def _block(index: Index, fields: Fields) -> Json:
    is_full = fields.get("boolean", "") == "true"
    try:
        return result(_ID, await block(index, fields.get("tag", ""), full=is_full))
    except BadParams as wrong:
        return error(_ID, _BAD_PARAMS, f"invalid argument 0: {wrong}")


def _by_hash(ask: ByHash) -> Action:
    async def by_hash(index: Index, fields: Fields) -> Json:
        try:
            tx_hash = read_hash(fields.get("txhash", ""), "txhash")
        except BadParams as wrong:
            return error(_ID, _BAD_PARAMS, f"invalid argument 0: {wrong}")
        return result(_ID, await ask(index, tx_hash))

    return by_hash


# --- module transaction: an envelope around each answer ------------------------------


def _outcome(ask: ByHash) -> Action:
    async def outcome(index: Index, fields: Fields) -> Json:
        try:
            tx_hash = read_hash(fields.get("txhash", ""), "txhash")
        except BadParams:
            return _not_ok("Error! Invalid transaction hash")
        return ok(await ask(index, tx_hash))

    return outcome


def _not_ok(text: str) -> Json:
    return {"status": "0", "message": "NOTOK", "result": text}


_MODULES: dict[str, dict[str, Action]] = {
    "proxy": {
        "eth_blockNumber": _height,
        "eth_getBlockByNumber": _block,
        **{f"eth_get{name}": _by_hash(ask) for name, ask in BY_HASH.items()},
    },
    "transaction": {
        **{name: _outcome(ask) for name, ask in OUTCOMES.items()},
        "gettxinfo": blockscout.answered,  # Etherscan has no such action; Blockscout is often there
    },
}
