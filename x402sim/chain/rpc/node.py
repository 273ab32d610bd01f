"""A proxy to a node's own JSON-RPC, which passes requests and answers unchanged.

Every caller may use the methods of `OFFERED`, and send signed transactions. All other methods need
control of the world, because some of them control a test node.
"""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from x402sim.chain.base import ChainError
from x402sim.chain.node.evm_chain import POLL_S, EvmChain
from x402sim.chain.rpc import app, jsonrpc
from x402sim.chain.rpc.sending import read_wait
from x402sim.chain.rpc.subscriptions import Make, News, Subscriptions, converse, header
from x402sim.http.web import Application, answer, read_body
from x402sim.protocol.messages import BadMessage, decode, encode
from x402sim.protocol.rpc_values import BadParams, Json, read_hash, read_object, read_text, shown
from x402sim.tasks import Turns

OFFERED = sorted((*app.READS, *app.WITHOUT_EVM))
"""The methods for every caller, as far as the node has each."""
SENDS = ("eth_sendRawTransaction", "eth_sendRawTransactionSync")
"""The methods that every caller may send with: the transaction's sender has signed it, and pays."""
SUBSCRIBE = ("eth_subscribe", "eth_unsubscribe")
FILTERS = {
    "newHeads": "eth_newBlockFilter",
    "logs": "eth_newFilter",
    "newPendingTransactions": "eth_newPendingTransactionFilter",
}
"""The HTTP filter that stands in for each subscription."""


def node_rpc_app(chain: EvmChain, *, may_write: bool) -> Starlette:
    """Return an application that passes JSON-RPC on to the node of `chain`."""
    turns, everybody = Turns(), list[dict[str, News]]()

    async def answered(body: bytes, subscriptions: Subscriptions | None = None) -> bytes | Json:
        try:
            request = decode(body, Any)
        except BadMessage as wrong:
            return jsonrpc.error(None, app.PARSE_ERROR, f"cannot be read as JSON: {wrong}")
        method = request["method"] if jsonrpc.why_invalid(request) is None else None
        if subscriptions and method in SUBSCRIBE:
            return await _subscribed(subscriptions, request)
        if method == SENDS[1]:
            return await _sent(chain, request)
        several = request if isinstance(request, list) else [request]
        calls = [each for each in several if isinstance(each, dict)]
        writes = [each for each in calls if each.get("method") not in OFFERED]
        controls = [each for each in writes if each.get("method") != SENDS[0]]
        if controls and not may_write:
            named = shown(controls[0].get("method"))
            offered = ", ".join((*OFFERED, *SENDS))
            text = f"{named} is not offered here, only reading and sending: {offered}"
            return jsonrpc.error(controls[0].get("id"), app.UNKNOWN_METHOD, text)
        try:
            read = encode(request)  # not the body: the node might read duplicate keys differently
            return await chain.pass_on(read, writes=bool(writes))
        except ChainError as gone:
            return jsonrpc.error(None, app.REFUSED, str(gone))

    async def rpc(request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse(f"The JSON-RPC of {chain.node.name}: POST what you ask it.\n")
        result = await answered(await read_body(request))
        is_ours = isinstance(result, dict)
        return answer(result) if is_ours else Response(result, media_type="application/json")

    async def talk(socket: WebSocket) -> None:
        async def reply(body: bytes, mine: Subscriptions) -> bytes:
            result = await answered(body, mine)
            return result if isinstance(result, bytes) else encode(result)

        made = Subscriptions(_filters(chain), everybody)
        await converse(socket, chain.watchers, made, reply, turns, POLL_S)

    return Application([Route("/", rpc, methods=["GET", "POST"]), WebSocketRoute("/", talk)])


async def _sent(chain: EvmChain, request: Json) -> bytes | Json:
    """Send a transaction, wait here for the receipt, and answer with the receipt.

    Few nodes have this method, and a waiting node may answer no other request.
    """
    number = request.get("id")
    try:
        raw, *wait = request.get("params") or [None]
        wait_s = read_wait(*wait[:1])
        sends = {"jsonrpc": "2.0", "id": number, "method": SENDS[0], "params": [raw]}
        answer = await chain.pass_on(encode(sends), writes=True)
        sent = decode(answer, Any)
        if "result" not in sent:
            return answer
        await chain.wait(read_hash(sent["result"]), wait_s)
        receipt = await chain.node.ask("eth_getTransactionReceipt", sent["result"])
    except TimeoutError:
        return jsonrpc.error(number, app.NOT_MINED, app.LATE, sent["result"])
    except (BadParams, ChainError) as wrong:
        return jsonrpc.error(number, app.REFUSED, str(wrong))
    return jsonrpc.result(number, receipt)


async def _subscribed(subscriptions: Subscriptions, request: Json) -> Json:
    try:
        given = request.get("params") or [None]
        if request["method"] == SUBSCRIBE[0]:
            result: Any = await subscriptions.add(given[0], given[1] if given[1:] else None)
        else:
            result = subscriptions.remove(read_text(given[0], "a subscription's id"))
    except (ChainError, LookupError, BadParams) as wrong:
        return jsonrpc.error(request["id"], app.REFUSED, str(wrong))
    return jsonrpc.result(request["id"], result)


def _filters(chain: EvmChain) -> Make:
    """Return a maker of subscriptions by polling filters, which any node offers over HTTP."""

    async def make(kind: Any, wanted: Any) -> News:
        of = [read_object(wanted or {}, "a filter")] if kind == "logs" else []
        name = await chain.node.ask(FILTERS[kind], *of)

        async def news() -> list[Any]:
            result: list[Any] = await chain.node.ask("eth_getFilterChanges", name)
            if kind == "newHeads":
                each = [await chain.node.ask("eth_getBlockByHash", it, False) for it in result]
                return [header(block) for block in each if block]
            return result

        return news

    return make
