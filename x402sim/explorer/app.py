"""The chain explorer over HTTP, in two dialects: Etherscan's proxy and the Cronos explorer.

Etherscan's form answers every question with status 200, errors too; the Cronos form
answers a bad hash with 400. An `apikey` is not read. What the indexer of clause
8/indexer-query wants is `blockNumber` in the answer of getTransactionByHash.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.chain.rpc.jsonrpc import (
    BadParams,
    Json,
    error,
    quantity,
    read_hash,
    receipt_object,
    result,
    transaction_object,
)
from x402sim.explorer.index import Index
from x402sim.protocol.crypto import Hash
from x402sim.web import Refused, answer, application

_ID = 1  # a question in a URL has no id of its own, so every answer has this one
_BAD_PARAMS = -32602


async def _transaction(index: Index, tx_hash: Hash) -> Json | None:
    tx = await index.transaction(tx_hash)
    return transaction_object(tx, index.chain.chain_id) if tx else None


async def _receipt(index: Index, tx_hash: Hash) -> Json | None:
    receipt = await index.receipt(tx_hash)
    return receipt_object(receipt) if receipt else None


ByHash = Callable[[Index, Hash], Awaitable[Json | None]]
BY_HASH: dict[str, ByHash] = {"TransactionByHash": _transaction, "TransactionReceipt": _receipt}
"""What can be asked about a hash: `eth_getX` in one dialect, `getX` in the other."""


def explorer_app(index: Index) -> Starlette:
    """Return the explorer of a chain."""
    path = "/api/v1/ethproxy"
    return application(
        [
            Route("/api", _etherscan(index)),
            Route(f"{path}/getBlockNumber", _cronos_height(index)),
            *(Route(f"{path}/get{name}", _cronos(index, ask)) for name, ask in BY_HASH.items()),
        ]
    )


Endpoint = Callable[[Request], Awaitable[Response]]


def _etherscan(index: Index) -> Endpoint:
    async def etherscan(request: Request) -> Response:
        query = request.query_params
        if query.get("module") != "proxy":
            return _not_ok("Missing Or invalid Module name", "proxy")
        action = query.get("action", "")
        if action == "eth_blockNumber":
            return answer(result(_ID, quantity(await index.height())))
        ask = BY_HASH.get(action.removeprefix("eth_get"))
        if ask is None or not action.startswith("eth_get"):
            known = ", ".join(["eth_blockNumber", *(f"eth_get{name}" for name in BY_HASH)])
            return _not_ok("Missing Or invalid Action name", known)
        return answer(await _by_hash(index, ask, query.get("txhash", "")))

    return etherscan


async def _by_hash(index: Index, ask: ByHash, text: str) -> Json:
    try:
        tx_hash = read_hash(text, "txhash")
    except BadParams as wrong:
        return error(_ID, _BAD_PARAMS, f"invalid argument 0: {wrong}")
    return result(_ID, await ask(index, tx_hash))


def _not_ok(text: str, known: str) -> Response:
    body: dict[str, Any] = {
        "status": "0",
        "message": "NOTOK",
        "result": f"Error! {text}; known here: {known}",
    }
    return answer(body)


def _cronos(index: Index, ask: ByHash) -> Endpoint:
    async def cronos(request: Request) -> Response:
        try:
            tx_hash = read_hash(request.query_params.get("txHash", ""), "txHash")
        except BadParams as wrong:
            raise Refused(400, "Invalid transaction hash", str(wrong)) from wrong
        return answer({"result": await ask(index, tx_hash)})

    return cronos


def _cronos_height(index: Index) -> Endpoint:
    async def height(_: Request) -> Response:
        return answer({"result": quantity(await index.height())})

    return height
