"""The chain over JSON-RPC: what is asked wrongly, in batches, and of older states.

`tests/evm/test_rpc.py` compares what is asked rightly with anvil's answers.
"""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from starlette.types import Receive, Scope, Send

from tests.chain.asking import (
    ALICE,
    OWNER,
    OWNER_KEY,
    PAYMENT,
    SHOP,
    UNKNOWN,
    Http,
    Rpc,
)
from tests.chain.helpers import LedgerDriver
from tests.strategies import json_values
from x402sim.chain.rpc.app import MAX_BATCH, METHODS, rpc_app
from x402sim.http.exchange import Request, Url
from x402sim.http.web import CONNECTION, Connection
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, to_hex
from x402sim.protocol.networks import TESTNET
from x402sim.tasks import Turns
from x402sim.world.link import Asgi

# --- HTTP ----------------------------------------------------------------------------


def test_the_page_lists_every_method(rpc: Rpc) -> None:
    response = rpc.http.get("/")
    assert response.headers["content-type"].startswith("text/plain")
    assert all(f"\n{name}(" in response.text for name in METHODS)
    assert "eth_getBalance(address, block?)" in response.text


class _Socket(Connection):
    is_socket = True


@pytest.mark.parametrize("is_socket", [False, True])
def test_only_a_call_over_a_socket_waits_for_its_turn(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch, is_socket: bool
) -> None:
    turns = list[Turns]()

    async def mine(self: Turns) -> None:
        turns.append(self)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = _Socket() if is_socket else scope[CONNECTION]
        await rpc_app(rpc.ledger)({**scope, CONNECTION: connection}, receive, send)

    monkeypatch.setattr(Turns, "mine", mine)
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}'
    request = Request("POST", Url.of(httpx.URL("http://rpc/")), [], body)
    answer = rpc.run(Asgi(app).send(request))
    assert b"result" in answer.content
    assert len(turns) == is_socket


# --- JSON-RPC 2.0 --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "seen_id"),
    [
        (b"", -32700, None),
        (b"\xff", -32700, None),
        (b"[" * 100_000, -32700, None),  # web3 is imported here: unguarded, this is a SIGSEGV
        (b"[]", -32600, None),
        ({"id": 1, "method": "eth_chainId"}, -32600, 1),
        ({"jsonrpc": "1.0", "id": 1, "method": "eth_chainId"}, -32600, 1),
        ({"jsonrpc": "2.0", "id": "a", "method": 5}, -32600, "a"),
        ({"jsonrpc": "2.0", "id": True, "method": "eth_chainId"}, -32600, None),
        ({"jsonrpc": "2.0", "id": {}, "method": "eth_chainId"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 1, "method": "eth_mine"}, -32601, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": {}}, -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": [1]}, -32602, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": []}, -32602, 1),
        ([1] * (MAX_BATCH + 1), -32600, None),
    ],
)
def test_a_malformed_request_is_answered_with_its_code(
    rpc: Rpc, body: Any, code: int, seen_id: Any
) -> None:
    reply = rpc.post(body)
    assert reply["error"]["code"] == code
    assert reply["id"] == seen_id


def test_a_batch_is_answered_in_order_and_its_notifications_are_not(rpc: Rpc) -> None:
    call = {"jsonrpc": "2.0", "method": "eth_chainId"}
    replies = rpc.post([{**call, "id": 2}, call, 5, {**call, "id": None}, {**call, "id": "x"}])
    assert [reply["id"] for reply in replies] == [2, None, None, "x"]
    assert ["result" in reply for reply in replies] == [True, False, True, True]


def test_the_answers_of_a_batch_are_limited_as_a_whole(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("x402sim.chain.rpc.app.MAX_BATCH_BYTES", 100)
    calls = [{"jsonrpc": "2.0", "id": n, "method": "eth_blockNumber"} for n in range(5)]
    replies = rpc.post(calls)
    assert [reply["id"] for reply in replies] == [0, 1, 2, 3, 4]
    answered = [n for n, reply in enumerate(replies) if "result" in reply]
    assert answered == [0, 1, 2], "each answer has 39 bytes"
    assert {reply["error"]["code"] for reply in replies[3:]} == {-32003}
    assert "passed 100 bytes" in replies[3]["error"]["message"]


@pytest.mark.parametrize("method", ["eth_chainId", "eth_nothing"])
@pytest.mark.parametrize("batch", [True, False])
def test_notifications_get_no_answer(rpc: Rpc, method: str, batch: bool) -> None:
    call = {"jsonrpc": "2.0", "method": method}
    response = rpc.http.post("/", json=[call, call] if batch else call)
    assert (response.status_code, response.content) == (204, b"")


_NAMES = ["to", "from", "data", "input", "value", "nonce", "blockHash", "blockNumber"]
_NAMES += ["fromBlock", "toBlock", "address", "topics"]
_TEXTS = ["0x", "0x0", "0xg", "latest", UNKNOWN, to_hex(ALICE), to_hex(TESTNET.asset)]
_VALUES = json_values | st.sampled_from([*_TEXTS, to_hex(PAYMENT.data)])
_JUNK = _VALUES | st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=5)


@settings(max_examples=40)
@given(method=st.sampled_from(sorted(METHODS)), params=st.lists(_JUNK, max_size=4) | _JUNK)
def test_no_parameters_break_the_server(method: str, params: Any) -> None:
    http = Http(rpc_app(LedgerDriver().ledger, keys=[OWNER_KEY.secret], unlocked=True))
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = http.post("/", content=json.dumps(body))  # also of what JSON has not
    assert response.status_code == 200
    reply = response.json()
    assert ("result" in reply) != ("error" in reply)
    assert reply.get("error", {"code": 3})["code"] in (3, -32000, -32602, -32700)


# --- logs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"toBlock": "0x" + "f" * 64}, 4),
        ({"topics": [[None, UNKNOWN]]}, 4),
        ({"topics": [None] * 4}, 0),  # no log has four topics
    ],
)
def test_logs_are_filtered(rpc: Rpc, wanted: Any, count: int) -> None:
    """`tests/evm/test_rpc.py` compares what is filtered otherwise with anvil."""
    rpc.send()
    rpc.run(rpc.ledger.fund(ALICE, 5))
    assert len(rpc.result("eth_getLogs", {"fromBlock": "0x0", **wanted})) == count


# --- state and calls -----------------------------------------------------------------


def _balance_of(account: Address) -> dict[str, str]:
    return {"to": to_hex(TESTNET.asset), "data": to_hex(abi.balance_of(account))}


STATE_METHODS = [
    ("eth_call", _balance_of(ALICE)),
    ("eth_estimateGas", _balance_of(ALICE)),
    ("eth_getBalance", to_hex(OWNER)),
    ("eth_getTransactionCount", to_hex(OWNER)),
    ("eth_getCode", to_hex(TESTNET.asset)),
]


def test_reads_of_the_newest_state(rpc: Rpc) -> None:
    assert rpc.result("web3_clientVersion").startswith("x402sim/")
    rpc.send()
    for newest in ("latest", "pending", "safe", "finalized", "0x1", {"blockNumber": "0x1"}, None):
        assert int(rpc.result("eth_call", _balance_of(SHOP), newest), 16) == 10_000


@pytest.mark.parametrize(("method", "first"), STATE_METHODS)
def test_the_state_of_every_block_is_kept(rpc: Rpc, method: str, first: Any) -> None:
    then = rpc.result(method, first)
    genesis = rpc.result("eth_getBlockByNumber", "0x0")["hash"]
    rpc.send()
    older = ("earliest", "0x0", {"blockNumber": "0x0"}, {"blockHash": genesis})
    assert [rpc.result(method, first, old) for old in older] == [then] * 4
    absent = rpc.error(method, first, "0x2")
    told = "header not found: block 2; the newest is block 1"
    assert absent == {"code": -32000, "message": told}
    assert rpc.error(method, first, {"blockHash": UNKNOWN})["code"] == -32000
    for bad in ("newest", 0, {}, [], {"blockHash": genesis, "blockNumber": "0x0"}):
        assert rpc.error(method, first, bad)["code"] == -32602
    rpc.run(rpc.ledger.mine(2000))
    assert [rpc.result(method, first, old) for old in older] == [then] * 4


def test_a_revert_gives_its_reason_in_text_and_data(rpc: Rpc) -> None:
    rpc.send()
    call = {"to": to_hex(TESTNET.asset), "input": to_hex(PAYMENT.data)}
    reason = "FiatTokenV2: authorization is used or canceled"
    for method in ("eth_call", "eth_estimateGas"):
        assert rpc.error(method, call) == {
            "code": 3,
            "message": f"execution reverted: {reason}",
            "data": to_hex(abi.revert_data(reason)),
        }
    silent = rpc.error("eth_call", {"to": to_hex(TESTNET.asset), "data": "0x12345678"})
    assert silent == {"code": 3, "message": "execution reverted", "data": "0x"}


FILTERS = [
    *(5, {"fromBlock": "0x01"}, {"fromBlock": 1}, {"fromBlock": "0x5", "toBlock": "0x1"}),
    {"blockHash": UNKNOWN, "fromBlock": "0x0"},
    *({"address": "0x12"}, {"topics": "0x"}, {"topics": [[["0x"]]]}, {"topics": [None] * 5}),
]
CALLS = [
    *(None, {"to": "0x12"}),
    *({"to": to_hex(SHOP), "data": data} for data in ("0x1", 5)),
    {"to": to_hex(SHOP), "data": "0x11", "input": "0x22"},
    {"to": to_hex(SHOP), "from": "alice"},
    *({"to": to_hex(SHOP), "value": value} for value in (5, "0x1" + "0" * 64)),
]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        *(("eth_getLogs", [each]) for each in FILTERS),
        *(("eth_call", [each]) for each in CALLS),
        ("eth_call", [_balance_of(ALICE), "latest", {}, {"time": "0x5"}]),
        *(("eth_feeHistory", [count, "latest"]) for count in (0, "0x401", True)),
        ("eth_feeHistory", [1, "latest", "10"]),
    ],
)
def test_bad_parameters_are_refused(rpc: Rpc, method: str, params: Any) -> None:
    error = rpc.error(method, *params)
    assert error["code"] == -32602
    assert error["message"]


def test_the_fee_history(rpc: Rpc) -> None:
    rpc.send()
    history = rpc.result("eth_feeHistory", "0x2", "latest", [10, 50])
    assert (history["oldestBlock"], len(history["baseFeePerGas"])) == ("0x0", 3)
    assert history["gasUsedRatio"][0] == 0 < history["gasUsedRatio"][1] < 1
    assert history["reward"] == [["0x0", "0x0"]] * 2
    assert rpc.error("eth_feeHistory", 1, "0x9")["code"] == -32000
