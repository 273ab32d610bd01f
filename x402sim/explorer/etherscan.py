"""Etherscan's dialect of the explorer: `/api?module=proxy&action=eth_get…&txhash=0x…`.

GET or POST, the fields in the URL or in a form. Every answer has status 200, errors too; an
`apikey` is ignored. The indexer (8/indexer-query) reads `blockNumber` in the answer of
eth_getTransactionByHash.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from x402sim.chain.rpc.jsonrpc import error, result
from x402sim.explorer.index import BY_HASH, OUTCOMES, Answer, ByHash, Fields, Index, block, ok
from x402sim.protocol.rpc_values import BadParams, Json, quantity, read_hash

_ID = 1  # every answer has this id: a query in a URL has none


async def _answered(index: Index, fields: Fields) -> Json:
    """Return what is answered: module proxy as JSON-RPC, module transaction in its envelope."""
    module, action = fields.get("module", ""), fields.get("action", "")
    if module not in _MODULES:
        return _not_ok("Error! Missing Or invalid Module name")
    if action not in _MODULES[module]:
        return _not_ok("Error! Missing Or invalid Action name")
    is_proxy = module == "proxy"
    try:
        value = await _MODULES[module][action](index, fields)
    except BadParams as wrong:
        if is_proxy:
            return error(_ID, -32602, f"invalid argument 0: {wrong}")
        return _not_ok("Error! Invalid transaction hash")
    return result(_ID, value) if is_proxy else ok(value)


def _not_ok(text: str) -> Json:
    return {"status": "0", "message": "NOTOK", "result": text}


async def _height(index: Index, _: Fields) -> Any:
    return quantity(await index.height())


async def _block(index: Index, fields: Fields) -> Any:
    is_full = fields.get("boolean", "") == "true"
    return await block(index, fields.get("tag", ""), full=is_full)


def _by_hash(ask: ByHash) -> Callable[[Index, Fields], Awaitable[Any]]:
    return lambda index, fields: ask(index, read_hash(fields.get("txhash", ""), "txhash"))


_MODULES: dict[str, dict[str, Callable[[Index, Fields], Awaitable[Any]]]] = {
    "proxy": {
        "eth_blockNumber": _height,
        "eth_getBlockByNumber": _block,
        **{f"eth_get{name}": _by_hash(ask) for name, ask in BY_HASH.items()},
    },
    "transaction": {name: _by_hash(ask) for name, ask in OUTCOMES.items()},
}
"""The actions of each module. One raises `BadParams`."""
ANSWERS: dict[str, Answer] = {"/api": _answered}
