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
from x402sim.http.web import CONNECTION, Application, answer, read_body
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
"""The methods by name: the functions that are named as they are."""
MEANINGS = {
    "web3_clientVersion": "Return the name and version of this server.",
    "net_version": "Return the chain id in decimal.",
    "net_listening": "Return true.",
    "web3_sha3": "Return the Keccak-256 hash of bytes.",
    "eth_chainId": "Return the chain id.",
    "eth_syncing": "Return false: the chain is always in sync.",
    "eth_blockNumber": "Return the number of the newest block.",
    "eth_gasPrice": "Return the price of one unit of gas in wei; it is all base fee.",
    "eth_maxPriorityFeePerGas": "Return zero: a tip is not needed.",
    "eth_blobBaseFee": "Return the least there is: no block has blobs.",
    "eth_feeHistory": "Return base fees, how full the blocks were, and no tips: none is needed.",
    "eth_accounts": "Return the accounts of this server; a wallet would ask its user first.",
    "eth_requestAccounts": "Return the accounts of this server; a wallet would ask its user first.",
    "eth_getBalance": "Return an account's native balance in wei.",
    "eth_getTransactionCount": "Return how many transactions an account has sent; with `pending`, the waiting ones too.",
    "eth_getCode": "Return a contract's code; 0x for any other account.",
    "eth_getStorageAt": "Return a word of the token's storage, where Circle's FiatToken v2.2 has it.",
    "eth_getBlockByNumber": "Return a block by tag or number, null if not mined; `pending` is the next one.",
    "eth_getBlockByHash": "Return a block by hash, null if unknown.",
    "eth_getBlockReceipts": "Return the receipts of a block's transactions, in order, null if it is not mined.",
    "eth_getTransactionByHash": "Return a transaction, null if unknown; v=r=s=0 if the chain sent it without a signature.",
    "eth_getTransactionByBlockHashAndIndex": "Return a transaction of a block by its place, null if there is none.",
    "eth_getTransactionByBlockNumberAndIndex": "Return a transaction of a block by its place, null if there is none.",
    "eth_getBlockTransactionCountByHash": "Return how many transactions a block has, null if it is unknown.",
    "eth_getBlockTransactionCountByNumber": "Return how many transactions a block has, null if it is not mined.",
    "eth_getTransactionReceipt": "Return the receipt of a transaction, null until it is mined.",
    "eth_getLogs": "Return events, by fromBlock and toBlock or blockHash, address, topics.",
    "eth_newFilter": "Make a filter of new events; it ends after 5 idle minutes.",
    "eth_newBlockFilter": "Make a filter of new blocks.",
    "eth_newPendingTransactionFilter": "Make a filter of arriving transactions.",
    "eth_getFilterChanges": "Return what is new for a filter since the last call.",
    "eth_getFilterLogs": "Return every event that passes a filter of events.",
    "eth_uninstallFilter": "Forget a filter; false if it is unknown.",
    "eth_subscribe": "On a WebSocket: tell of newHeads, logs (by address and topics) or newPendingTransactions (whole, with true).",
    "eth_unsubscribe": "End a subscription.",
    "eth_call": "Return the result of a call.",
    "eth_estimateGas": "Return the gas a call needs.",
    "txpool_status": "Return how many transactions wait: pending for the next block, queued behind gaps in nonces.",
    "txpool_content": "Return the transactions that wait, by sender and nonce.",
    "eth_sendRawTransaction": "Put a signed transaction of type 0 (EIP-155), 1, 2 or 4 into the mempool; return its hash.",
    "eth_sendRawTransactionSync": "The same, and return its receipt once it is mined; an error of code 4 has the hash as data.",
    "eth_sendTransaction": "Send a transaction of an unlocked account, signed here, or of an impersonated one; return its hash.",
    "eth_sign": "Sign bytes with an account, as a message of EIP-191.",
    "personal_sign": "Sign bytes as eth_sign does: the parameters are in the other order.",
    "eth_signTypedData_v4": "Sign typed data of EIP-712 with an account; it is an object or its JSON text.",
}
"""What each method does."""
WITHOUT_EVM = {
    "eth_createAccessList": "to know which slots a call reads",
    "eth_getProof": "a proof of a state in a trie",
    "eth_simulateV1": "several calls of several blocks, with any code",
    "debug_traceTransaction": "a trace of the calls that code makes",
}
"""The methods that are refused by name, and what each would need; a proxy to a node has them."""
LATE = "the transaction is in the mempool and was not mined in time"
PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602
DEVELOPMENT = ("evm_", "anvil_", "hardhat_")
"""The prefixes of the methods by which developers control a test node."""
REFUSED, TOO_LARGE, TOO_MANY, REVERTED, NOT_MINED = -32000, -32003, -32005, 3, 4


def documentation() -> str:
    """Return the list of the methods as plain text, generated from the table."""
    rows = [f"{name}({_parameters(it)})\n    {MEANINGS[name]}" for name, it in METHODS.items()]
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
    """Return the parameters of a method after the context, which all have a place."""
    return [*inspect.signature(method).parameters.values()][1:]


def _parameters(method: Method) -> str:
    return ", ".join(p.name + ("" if p.default is p.empty else "?") for p in _declared(method))


@cache
def _counts(method: Method) -> range:
    """Return how many parameters a method takes."""
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
    """Return the id of a request; None if it has none that an answer can have."""
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
    return await _answer_batch(context, payload) or None


async def _answer_batch(context: RpcContext, requests: list[Any]) -> list[Raw]:
    """Return the encoded answers to a batch; requests beyond the limit of bytes get an error."""
    replies, size = [], 0
    for request in requests:
        if size > MAX_BATCH_BYTES:
            text = f"the batch has passed {MAX_BATCH_BYTES} bytes; send this request again"
            reply: Json | None = error(_id_of(request), TOO_LARGE, text)
        else:
            reply = await _answer_one(context, request)
        if reply is not None:
            replies.append(Raw(encode(reply)))
            size += len(replies[-1])
    return replies


# --- HTTP ----------------------------------------------------------------------------


def rpc_app(chain: LedgerChain, *, keys: Sequence[bytes] = (), unlocked: bool = False) -> Starlette:
    """Return an application that answers JSON-RPC at its root.

    GET answers the list of methods. `keys` are those of the accounts to list; only if `unlocked`
    does it sign with them.
    """
    accounts = {PrivateKey(key).address: key for key in keys}
    context, turns = RpcContext(chain, accounts, unlocked), Turns()
    everybody = list[dict[str, News]]()

    async def rpc(request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse(documentation())
        develop = request.scope.get(DEVELOP)
        is_outside = CONNECTION in request.scope
        for_caller = replace(context, develop=develop, turns=turns if is_outside else None)
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
