"""JSON-RPC 2.0: the envelopes of answers, and the parameters that name blocks, calls and logs."""

from typing import Any

from x402sim.chain.base import Call, ChainError, LogFilter
from x402sim.protocol.crypto import ZERO_ADDRESS
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    read_address,
    read_bytes,
    read_hash,
    read_object,
    read_quantity,
    shown,
)

MAX_TOPICS = 4
NO_EVM = "{} needs an EVM, which the ledger is not: use --chain anvil"
NEWEST_TAGS = ("latest", "pending", "safe", "finalized")
"""All mean the newest state: blocks are final immediately, as on Cronos."""


# --- envelopes -----------------------------------------------------------------------


def result(request_id: Any, value: Any) -> Json:
    """Return the body of a call that succeeded."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: Any, code: int, message: str, data: str | None = None) -> Json:
    """Return the body of a call that failed; `data` is the hex data of a revert."""
    more = {} if data is None else {"data": data}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": code, "message": message, **more},
    }


def why_invalid(request: Any) -> str | None:
    """Return why a value is not a JSON-RPC 2.0 request; None if it is one."""
    if not isinstance(request, dict):
        return f"expected an object, got {shown(request)}"
    if request.get("jsonrpc") != "2.0":
        return f'expected "jsonrpc": "2.0", got {shown(request.get("jsonrpc"))}'
    if not isinstance(request.get("method"), str):
        return f"expected `method` as a string, got {shown(request.get('method'))}"
    if not is_id(request.get("id")):
        return f"expected `id` as a string, a number or null, got {shown(request['id'])}"
    return None


def is_id(value: Any) -> bool:
    """Whether a value can be the id of a request."""
    return isinstance(value, str | int | float | None) and not isinstance(value, bool)


# --- parameters ----------------------------------------------------------------------


def read_block_number(value: Any, head: int) -> int:
    """Return a block's number from a tag or a quantity, where null is the newest block.

    Raises `BadParams`.
    """
    if value is None or value in NEWEST_TAGS:
        return head
    if value == "earliest":
        return 0
    tags = ", ".join((*NEWEST_TAGS, "earliest"))
    return read_quantity(value, f"a block (one of {tags}, or a number)")


def read_call(value: Any) -> Call:
    """Return a call from a transaction object; raises `BadParams`, and `ChainError` for code.

    Gas and fees in the object are ignored.
    """
    fields = read_object(value, "a transaction")
    if "to" not in fields:
        raise ChainError(NO_EVM.format("code that is sent, a deployment or a deployless call,"))
    given = [read_bytes(fields[name], name) for name in ("input", "data") if name in fields]
    if given[1:] and given[0] != given[1]:
        raise BadParams("a transaction: `input` and `data` differ; send one of them")
    return Call(
        sender=read_address(fields["from"], "from") if "from" in fields else ZERO_ADDRESS,
        to=read_address(fields["to"], "to"),
        data=given[0] if given else b"",
        value=read_quantity(fields["value"], "value") if "value" in fields else 0,
    )


def read_lists(transaction: Json) -> tuple[int, int, int]:
    """Return how many addresses and slots the access list of a transaction object has, and how many
    delegations it has; raises `BadParams`.
    """
    lists = [transaction.get(name) or [] for name in ("accessList", "authorizationList")]
    if wrong := [each for each in lists if not isinstance(each, list)]:
        raise BadParams(f"a transaction: expected a list, got {shown(wrong[0])}")
    keys = [read_object(each, "an access").get("storageKeys", []) for each in lists[0]]
    if wrong := [each for each in keys if not isinstance(each, list)]:
        raise BadParams(f"storageKeys: expected a list, got {shown(wrong[0])}")
    return len(keys), sum(map(len, keys)), len(lists[1])


def read_log_filter(fields: Json, first: int, last: int) -> LogFilter:
    """Return a filter of the logs between two blocks; raises `BadParams`.

    `fields` are those of `read_object`, which drops a member that is null. `address` is one or a
    list; without it, any. `topics` has for each position null (any), one topic, or a list of
    alternatives.
    """
    if first > last:
        raise BadParams(f"a filter: fromBlock {first} is after toBlock {last}")
    given, topics = fields.get("address", []), fields.get("topics", [])
    several = given if isinstance(given, list) else [given]
    addresses = tuple(read_address(one, "address") for one in several)
    if not isinstance(topics, list) or len(topics) > MAX_TOPICS:
        raise BadParams(f"topics: expected a list of at most {MAX_TOPICS}, got {shown(topics)}")
    return LogFilter(first, last, addresses, tuple(map(_alternatives, topics)))


def _alternatives(position: Any) -> tuple[bytes, ...]:
    several = position if isinstance(position, list) else [position]
    if None in several:
        return ()
    return tuple(read_hash(one, "a topic") for one in several)
