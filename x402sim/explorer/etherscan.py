"""Etherscan's dialect of the explorer: `/api?module=proxy&action=eth_get…&txhash=0x…`.

Every answer has status 200, errors too; an `apikey` is ignored. The indexer (8/indexer-query)
reads `blockNumber` in the answer of eth_getTransactionByHash.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim import web
from x402sim.chain.rpc.jsonrpc import BadParams, Json, error, quantity, read_hash, result
from x402sim.explorer.index import Index
from x402sim.explorer.objects import BY_HASH, ByHash

_ID = 1  # a query in a URL has no JSON-RPC id, so every answer has this one
_BAD_PARAMS = -32602
_HEIGHT = "eth_blockNumber"
_ACTIONS = {f"eth_get{name}": ask for name, ask in BY_HASH.items()}


def routes(index: Index) -> list[Route]:
    """Return the routes of this dialect."""

    async def etherscan(request: Request) -> Response:
        query = request.query_params
        if query.get("module") != "proxy":
            return _not_ok("Missing Or invalid Module name", "proxy")
        action = query.get("action", "")
        if action == _HEIGHT:
            return web.answer(result(_ID, quantity(await index.height())))
        if action not in _ACTIONS:
            return _not_ok("Missing Or invalid Action name", ", ".join([_HEIGHT, *_ACTIONS]))
        return web.answer(await _by_hash(index, _ACTIONS[action], query.get("txhash", "")))

    return [Route("/api", etherscan)]


async def _by_hash(index: Index, ask: ByHash, text: str) -> Json:
    try:
        tx_hash = read_hash(text, "txhash")
    except BadParams as wrong:
        return error(_ID, _BAD_PARAMS, f"invalid argument 0: {wrong}")
    return result(_ID, await ask(index, tx_hash))


def _not_ok(text: str, known: str) -> Response:
    answer = f"Error! {text}; known here: {known}"
    return web.answer({"status": "0", "message": "NOTOK", "result": answer})
