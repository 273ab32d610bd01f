"""The explorer in its dialects: known, unknown, waiting and mined transactions, and lag."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.chain.asking import Http
from x402sim.chain.base import Call
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.clock import Clock
from x402sim.explorer.app import DIALECTS, explorer_app
from x402sim.explorer.index import Index
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, to_hex
from x402sim.protocol.networks import TESTNET

START_S = 1_800_000_000
OWNER, SHOP = Address(b"\x01" * 20), Address(b"\x02" * 20)
UNKNOWN = "0x" + "ee" * 32
BAD_HASHES = ["", "0x", "0x12", "ee" * 32, "0x" + "zz" * 32, UNKNOWN + "0"]
NAMES = ["TransactionByHash", "TransactionReceipt"]


@dataclass
class Explorer:
    """A ledger, its clock, and an explorer of it."""

    clock: Clock
    ledger: LedgerChain
    http: Http

    def etherscan(self, action: str, **query: str) -> Any:
        params = {"module": "proxy", "action": action, "apikey": "KEY", **query}
        response = self.http.get("/api", params=params)
        assert response.status_code == 200
        return response.json()

    def cronos(self, action: str, **query: str) -> Any:
        response = self.http.get(f"/api/v1/ethproxy/{action}", params={"apikey": "KEY", **query})
        assert response.status_code == 200
        return response.json()

    def both(self, name: str, tx_hash: str) -> Any:
        """Ask in both dialects; return the one result they give."""
        one = self.etherscan(f"eth_get{name}", txhash=tx_hash)
        other = self.cronos(f"get{name}", txHash=tx_hash)
        assert one == {"jsonrpc": "2.0", "id": 1, "result": other["result"]}
        assert other.keys() == {"result"}
        return other["result"]

    def height(self) -> int:
        one, other = self.etherscan("eth_blockNumber"), self.cronos("getBlockNumber")
        assert one == {"jsonrpc": "2.0", "id": 1, "result": other["result"]}
        return int(other["result"], 16)

    def send(self) -> str:
        return to_hex(asyncio.run(self.ledger.send(Call(OWNER, SHOP, b"", 1))))

    def mine(self) -> None:
        asyncio.run(self.ledger.mine())

    def hold(self) -> None:
        asyncio.run(self.ledger.set_automine(False))


def new_explorer(lag_s: float = 0.0) -> Explorer:
    clock = Clock(lambda: float(START_S))
    ledger = LedgerChain(TESTNET, clock, owner=OWNER)
    return Explorer(clock, ledger, Http(explorer_app(Index(ledger, clock, lag_s))))


def test_the_index_lists_an_action_of_every_dialect_that_answers() -> None:
    explorer = new_explorer()
    tx_hash = explorer.send()
    lines = [line.split() for line in explorer.http.get("/").text.splitlines()]
    listed = [line[1] for line in lines if line[:1] == ["GET"]]
    assert len(listed) == len(DIALECTS)
    for path in listed:
        answer = explorer.http.get(path.replace("0x...", tx_hash))
        assert (answer.status_code, tx_hash in answer.text) == (200, True)


@pytest.mark.clause("8/indexer-query")
def test_a_mined_transaction_has_its_block_number() -> None:
    explorer = new_explorer()
    explorer.mine()
    tx_hash = explorer.send()
    tx = explorer.both("TransactionByHash", tx_hash)
    assert (tx["hash"], tx["blockNumber"], tx["transactionIndex"]) == (tx_hash, "0x2", "0x0")
    receipt = explorer.both("TransactionReceipt", tx_hash)
    assert (receipt["transactionHash"], receipt["status"]) == (tx_hash, "0x1")
    assert (receipt["blockNumber"], receipt["blockHash"]) == (tx["blockNumber"], tx["blockHash"])


@pytest.mark.clause("8/indexer-query")
def test_a_waiting_transaction_has_no_block_number_until_it_is_mined() -> None:
    explorer = new_explorer()
    explorer.hold()
    tx_hash = explorer.send()
    tx = explorer.both("TransactionByHash", tx_hash)
    assert tx["hash"] == tx_hash
    assert [tx[k] for k in ("blockHash", "blockNumber", "transactionIndex")] == [None] * 3
    assert explorer.both("TransactionReceipt", tx_hash) is None
    explorer.mine()
    assert explorer.both("TransactionByHash", tx_hash)["blockNumber"] == "0x1"
    assert explorer.both("TransactionReceipt", tx_hash)["status"] == "0x1"


@pytest.mark.clause("8/indexer-query")
def test_a_late_explorer_knows_a_transaction_only_when_the_lag_is_over() -> None:
    explorer = new_explorer(lag_s=10)
    explorer.clock.advance(100)
    tx_hash = explorer.send()
    explorer.clock.advance(9.5)
    assert [explorer.both(name, tx_hash) for name in NAMES] == [None, None]
    assert explorer.height() == 0
    explorer.clock.advance(0.5)
    assert [explorer.both(name, tx_hash)["blockNumber"] for name in NAMES] == ["0x1", "0x1"]
    assert explorer.height() == 1


def test_a_late_explorer_does_not_see_the_mempool() -> None:
    explorer = new_explorer(lag_s=1)
    explorer.hold()
    tx_hash = explorer.send()
    explorer.clock.advance(60)
    assert explorer.both("TransactionByHash", tx_hash) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_hash_is_an_error_in_a_200_or_a_400(name: str) -> None:
    explorer = new_explorer()
    for tx_hash in BAD_HASHES:
        body = explorer.etherscan(f"eth_get{name}", txhash=tx_hash)
        assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", 1, -32602)
        assert "64 hex digits" in body["error"]["message"]
        assert "result" not in body
    for query in ({}, {"txhash": UNKNOWN}, *({"txHash": tx_hash} for tx_hash in BAD_HASHES)):
        response = explorer.http.get(f"/api/v1/ethproxy/get{name}", params=query)
        assert response.status_code == 400
        assert response.json()["error"] == "Invalid transaction hash"
        assert "64 hex digits" in response.json()["reason"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, "Module"),
        ({"module": "account", "action": "balance"}, "Module"),
        ({"module": "proxy"}, "Action"),
        ({"module": "proxy", "action": "eth_mine"}, "Action"),
        ({"module": "proxy", "action": "TransactionByHash", "txhash": UNKNOWN}, "Action"),
    ],
)
def test_an_unknown_question_is_not_ok_in_a_200(query: dict[str, str], text: str) -> None:
    response = new_explorer().http.get("/api", params=query)
    assert response.status_code == 200
    body = response.json()
    assert (body["status"], body["message"]) == ("0", "NOTOK")
    assert body["result"].startswith(f"Error! Missing Or invalid {text} name")


# --- blocks and outcomes -------------------------------------------------------------


def transaction_of(explorer: Explorer, action: str, tx_hash: str, path: str = "/api") -> Any:
    params = {"module": "transaction", "action": action, "txhash": tx_hash}
    response = explorer.http.get(path, params=params)
    assert response.status_code == 200
    return response.json()


def fails(explorer: Explorer) -> str:
    """Send a call that the token refuses, mined at once; return its hash."""
    call = Call(OWNER, explorer.ledger.token, abi.transfer(SHOP, 1))
    return to_hex(asyncio.run(explorer.ledger.send(call)))


def test_a_block_is_told_by_number_and_tag_in_both_dialects() -> None:
    explorer = new_explorer()
    tx_hash = explorer.send()
    for tag in ("0x1", "latest"):
        one = explorer.etherscan("eth_getBlockByNumber", tag=tag, boolean="false")
        other = explorer.cronos("getBlockByNumber", tag=tag, txDetail="false")
        assert one == {"jsonrpc": "2.0", "id": 1, "result": other["result"]}
        assert (other["result"]["number"], other["result"]["transactions"]) == ("0x1", [tx_hash])
    whole = explorer.etherscan("eth_getBlockByNumber", tag="0x1", boolean="true")["result"]
    assert [tx["hash"] for tx in whole["transactions"]] == [tx_hash]
    assert explorer.cronos("getBlockByNumber", tag="0x1", txDetail="true")["result"] == whole
    assert explorer.etherscan("eth_getBlockByNumber", tag="0x2")["result"] is None
    assert explorer.etherscan("eth_getBlockByNumber", tag="first")["error"]["code"] == -32602
    refused = explorer.http.get("/api/v1/ethproxy/getBlockByNumber", params={"tag": "first"})
    assert (refused.status_code, refused.json()["error"]) == (400, "Invalid block tag")


def test_a_late_explorer_shows_no_newer_block() -> None:
    explorer = new_explorer(lag_s=10)
    explorer.clock.advance(100)
    explorer.send()
    assert explorer.etherscan("eth_getBlockByNumber", tag="0x1")["result"] is None
    assert explorer.etherscan("eth_getBlockByNumber", tag="latest")["result"]["number"] == "0x0"
    explorer.clock.advance(10)
    assert explorer.etherscan("eth_getBlockByNumber", tag="latest")["result"]["number"] == "0x1"


@pytest.mark.parametrize("path", ["/api", "/blockscout/api"])
def test_the_outcome_of_a_transaction_is_told(path: str) -> None:
    explorer = new_explorer()
    good, bad = explorer.send(), fails(explorer)
    status = [
        transaction_of(explorer, "gettxreceiptstatus", each, path) for each in (good, bad, UNKNOWN)
    ]
    assert [each.pop("result") for each in status] == [{"status": s} for s in ("1", "0", "")]
    assert status == [{"status": "1", "message": "OK"}] * 3
    assert transaction_of(explorer, "getstatus", bad, path)["result"]["isError"] == "1"
    no_error = {"isError": "0", "errDescription": ""}
    for each in (good, UNKNOWN):
        assert transaction_of(explorer, "getstatus", each, path)["result"] == no_error


def test_cronos_says_whether_a_transaction_failed() -> None:
    explorer = new_explorer()
    ask = partial(explorer.http.get, "/api/v1/transaction/getStatus")
    told = ask(params={"txHash": fails(explorer), "apikey": "KEY"}).json()
    reason = told["result"].pop("errDescription")
    assert told == {"status": "1", "message": "OK", "result": {"isError": "1"}}
    assert "exceeds balance" in reason
    assert ask(params={"txHash": "0x12"}).status_code == 400


@pytest.mark.parametrize("action", ["gettxreceiptstatus", "getstatus"])
def test_a_bad_hash_of_an_outcome_is_not_ok(action: str) -> None:
    told = transaction_of(new_explorer(), action, "0x12")
    not_ok = {"status": "0", "message": "NOTOK", "result": "Error! Invalid transaction hash"}
    assert told == not_ok


def test_a_form_asks_as_a_url_does() -> None:
    explorer = new_explorer()
    tx_hash = explorer.send()
    form = {"module": "proxy", "action": "eth_getTransactionByHash", "txhash": tx_hash}
    by_form = explorer.http.request("POST", "/api", data={**form, "apikey": "KEY"})
    by_url = explorer.http.request("POST", "/api", params=form)
    assert by_form.json() == by_url.json() == explorer.http.get("/api", params=form).json()
    path = "/api/v1/ethproxy/getTransactionByHash"
    posted = explorer.http.request("POST", path, data={"txHash": tx_hash})
    assert posted.json()["result"] == by_url.json()["result"]
    broken = explorer.http.request("POST", "/api", content=b"\xff")
    assert broken.status_code == 400


@pytest.mark.parametrize("path", ["/api", "/blockscout/api"])
def test_blockscout_shows_a_mined_transaction(path: str) -> None:
    explorer = new_explorer()
    tx_hash = explorer.send()
    explorer.mine()
    told = transaction_of(explorer, "gettxinfo", tx_hash, path)
    assert (told["status"], told["message"]) == ("1", "OK")
    shown = told["result"]
    assert (shown["hash"], shown["blockNumber"], shown["confirmations"]) == (tx_hash, "1", "1")
    assert (shown["from"], shown["success"], shown["logs"]) == (to_hex(OWNER), True, [])
    assert shown["timeStamp"] == str(START_S)
    assert transaction_of(explorer, "gettxinfo", fails(explorer), "/blockscout/api")["result"][
        "revertReason"
    ]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, "Unknown module"),
        ({"module": "proxy"}, "Unknown module"),
        ({"module": "transaction"}, "Unknown action"),
        ({"module": "transaction", "action": "gettxinfo"}, "Query parameter txhash is required"),
        (
            {"module": "transaction", "action": "gettxinfo", "txhash": "0x12"},
            "Invalid txhash format",
        ),
        (
            {"module": "transaction", "action": "gettxinfo", "txhash": UNKNOWN},
            "Transaction not found",
        ),
    ],
)
def test_blockscout_fails_in_its_own_words(query: dict[str, str], text: str) -> None:
    response = new_explorer().http.get("/blockscout/api", params=query)
    assert response.status_code == 200
    assert response.json() == {"status": "0", "message": text, "result": None}
