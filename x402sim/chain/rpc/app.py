"""The chain over HTTP and WebSocket: JSON-RPC 2.0, single calls and batches.

POST answers one call or a batch, always with status 200; GET answers a generated list of the
methods. On a WebSocket each message is a call or a batch.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from msgspec import Raw
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from x402sim.chain import reverts
from x402sim.chain.base import ChainError, Reverted
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.rpc import reading, sending
from x402sim.chain.rpc.jsonrpc import NO_EVM, error, is_id, result, why_invalid
from x402sim.chain.rpc.reading import DEVELOP, RpcContext
from x402sim.chain.rpc.subscriptions import News, Subscriptions, TooManyLogs, converse, on_ledger
from x402sim.http.limits import MAX_BATCH, MAX_BATCH_BYTES
from x402sim.http.web import Application, answer, connection, read_body
from x402sim.protocol.crypto import PrivateKey, to_hex
from x402sim.protocol.messages import BadMessage, decode, encode
from x402sim.protocol.rpc_values import BadParams, Json, shown
from x402sim.tasks import Turns

Method = Callable[..., Awaitable[Any]]


def _named(module: ModuleType) -> dict[str, Method]:
    prefixes = ("eth_", "net_", "web3_", "personal_", "txpool_")
    return {name: it for name, it in vars(module).items() if name.startswith(prefixes)}


READS = _named(reading)
"""The methods that neither send nor sign; a proxy to a node offers these to every caller."""
METHODS = {**READS, **_named(sending)}
"""The methods by name: the functions of the same names."""
WITHOUT_EVM = {
    "eth_createAccessList": "to know which slots a call reads",
    "eth_getProof": "a proof of a state in a trie",
    "eth_simulateV1": "several calls of several blocks, with any code",
    "debug_traceTransaction": "a trace of the calls that code makes",
}
"""The methods refused by name, and the need for an EVM of each; a proxy to a node offers these
methods.
"""
LATE = "the transaction is in the mempool and was not mined in time"
PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602
DEVELOPMENT = ("evm_", "anvil_", "hardhat_")
"""The prefixes of the methods by which developers control a test node."""
REFUSED, TOO_LARGE, TOO_MANY, REVERTED, NOT_MINED = -32000, -32003, -32005, 3, 4


def documentation() -> str:
    """Return the list of the methods as plain text, generated from the table."""
    rows = [f"{name}({_parameters(it)})" for name, it in METHODS.items()]
    return "\n".join(
        (
            "Ethereum JSON-RPC 2.0, a subset. POST one call or a batch here, for example",
            '    {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []}',
            "The tags latest, safe and finalized all mean the newest block; pending means the one",
            "that would be mined now. The state after every block can be read.",
            "A WebSocket at this address answers the same, and tells of what is new.",
            "evm_, anvil_ and hardhat_ methods control the world, for whom /_sim is open.",
            "",
            *rows,
            *(f"{name}\n    Not offered: {NO_EVM.format(it)}." for name, it in WITHOUT_EVM.items()),
            "",
        )
    )


def _declared(method: Method) -> list[inspect.Parameter]:
    return [*inspect.signature(method).parameters.values()][1:]


def _parameters(method: Method) -> str:
    return ", ".join(p.name + ("" if p.default is p.empty else "?") for p in _declared(method))


@cache
def _counts(method: Method) -> range:
    declared = _declared(method)
    return range(sum(p.default is p.empty for p in declared), len(declared) + 1)


# --- JSON-RPC 2.0 --------------------------------------------------------------------


class _Unknown(Exception):
    """No method has this name."""


def _begun(context: RpcContext, name: str, params: Any) -> Awaitable[Any]:
    """Return the call of a method; raises `BadParams`, `ChainError` and `_Unknown`."""
    develops = name.startswith(DEVELOPMENT)
    if develops and context.develop is None:
        raise ChainError(f"{name} needs control of the world, under the same rules as /_sim")
    if name in WITHOUT_EVM:
        raise _Unknown(f"{name}: " + NO_EVM.format(WITHOUT_EVM[name]))
    if not develops and name not in METHODS:
        raise _Unknown(f"no method {shown(name)}; a GET of this address lists those offered")
    given = [] if params is None else params
    if not isinstance(given, list):
        raise BadParams(f"expected params as an array, got {shown(params)}")
    if develops and context.develop:
        return context.develop(context, name, given)
    method = METHODS[name]
    if len(given) not in _counts(method):
        text = f"expected parameters ({_parameters(method)}), got {len(given)} of them"
        raise BadParams(text)
    return method(context, *given)


def _id_of(request: Any) -> Any:
    """Return the id of a request; None without an id that an answer can have."""
    given = request.get("id") if isinstance(request, dict) else None
    return given if is_id(given) else None


async def _answer_one(context: RpcContext, request: Any) -> Json | None:
    """Return the answer to one request; None for a notification."""
    request_id = _id_of(request)
    if problem := why_invalid(request):
        return error(request_id, INVALID_REQUEST, problem)
    await context.turn()
    try:
        reply = result(request_id, await _begun(context, request["method"], request.get("params")))
    except _Unknown as unknown:
        reply = error(request_id, UNKNOWN_METHOD, str(unknown))
    except BadParams as wrong:
        reply = error(request_id, BAD_PARAMS, str(wrong))
    except sending.NotMined as late:
        reply = error(request_id, NOT_MINED, LATE, str(late))
    except TooManyLogs as many:
        reply = error(request_id, TOO_MANY, str(many))
    except ChainError as refused:
        reply = error(request_id, REFUSED, str(refused))
    except Reverted as reverted:
        text = ": ".join(filter(None, ("execution reverted", str(reverted))))
        reply = error(request_id, REVERTED, text, to_hex(reverts.data_of(reverted)))
    return reply if "id" in request else None


async def _answer(context: RpcContext, body: bytes) -> Json | list[Raw] | None:
    try:
        payload = decode(body, Any)
    except BadMessage as wrong:
        return error(None, PARSE_ERROR, f"cannot be read as JSON: {wrong}")
    if not isinstance(payload, list):
        return await _answer_one(context, payload)
    if not 1 <= len(payload) <= MAX_BATCH:
        text = f"expected a batch of 1 to {MAX_BATCH} requests, got {len(payload)}"
        return error(None, INVALID_REQUEST, text)
    replies, size = [], 0
    for request in payload:
        if size > MAX_BATCH_BYTES:
            text = f"the batch has passed {MAX_BATCH_BYTES} bytes; send this request again"
            reply: Json | None = error(_id_of(request), TOO_LARGE, text)
        else:
            reply = await _answer_one(context, request)
        if reply is not None:
            replies.append(Raw(encode(reply)))
            size += len(replies[-1])
    return replies or None


# --- HTTP ----------------------------------------------------------------------------


def rpc_app(chain: LedgerChain, *, keys: Sequence[bytes] = (), unlocked: bool = False) -> Starlette:
    """Return an application that answers JSON-RPC at the root path.

    GET answers the list of methods. `keys` are of the accounts to list; only an `unlocked`
    application signs with these keys.
    """
    accounts = {PrivateKey(key).address: key for key in keys}
    context, turns = RpcContext(chain, accounts, unlocked), Turns()
    everybody = list[dict[str, News]]()

    async def rpc(request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse(documentation())
        develop = request.scope.get(DEVELOP)
        outside = turns if connection(request).is_socket else None
        for_caller = replace(context, develop=develop, turns=outside)
        reply = await _answer(for_caller, await read_body(request))
        return Response(status_code=204) if reply is None else answer(reply)

    async def talk(socket: WebSocket) -> None:
        develop = socket.scope.get(DEVELOP)

        async def reply(body: bytes, mine: Subscriptions) -> bytes | None:
            for_caller = replace(context, develop=develop, turns=turns, subscriptions=mine)
            response = await _answer(for_caller, body)
            return None if response is None else encode(response)

        made = Subscriptions(on_ledger(chain), everybody)
        await converse(socket, chain.watchers, made, reply, turns)

    return Application([Route("/", rpc, methods=["GET", "POST"]), WebSocketRoute("/", talk)])
