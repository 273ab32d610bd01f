"""The explorer in its dialects: known, unknown, waiting and mined transactions, and lag."""

from functools import partial
from typing import Any

import pytest

from tests.asgi import Http
from tests.chain.asking import Rpc
from tests.chain.helpers import SHOP, LedgerDriver
from x402sim.explorer.app import DIALECTS, explorer_app
from x402sim.explorer.index import Index
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex

UNKNOWN = "0x" + "ee" * 32
BAD_HASHES = ["", "0x", "0x12", "ee" * 32, "0x" + "zz" * 32, UNKNOWN + "0"]
NAMES = ["TransactionByHash", "TransactionReceipt"]


class Explorer(LedgerDriver):
    """A ledger, a clock, and an explorer."""

    def __init__(self, lag_s: float = 0.0) -> None:
        super().__init__()
        self.http = Http(explorer_app(Index(self.ledger, self.clock, lag_s)))

    def ask(self, path: str, **query: str) -> Any:
        response = self.http.get(path, params={"apikey": "KEY", **query})
        assert response.status_code == 200
        return response.json()

    def both(self, name: str, options: tuple[str, str] = ("", ""), **query: str) -> Any:
        """Ask in both dialects; return the common result."""
        etherscan, cronos = ({name: "true"} if name else {} for name in options)
        one = self.etherscan(name, **query, **etherscan)
        query = {"txHash" if key == "txhash" else key: value for key, value in query.items()}
        other = self.ask(f"/api/v1/ethproxy/get{name}", **query, **cronos)
        assert one == {"jsonrpc": "2.0", "id": 1, "result": other["result"]}
        assert other.keys() == {"result"}
        return other["result"]

    def etherscan(self, name: str, **query: str) -> Any:
        action = "eth_blockNumber" if name == "BlockNumber" else f"eth_get{name}"
        return self.ask("/api", module="proxy", action=action, **query)

    def outcome(self, action: str, tx_hash: str) -> Any:
        return self.ask("/api", module="transaction", action=action, txhash=tx_hash)

    def sent(self) -> str:
        """Send a coin; return the hash."""
        return to_hex(self.put(b"", to=SHOP.address_bytes, value=1))

    def failed(self) -> str:
        """Send a call that the token refuses; return the hash."""
        return to_hex(self.put(abi.transfer(SHOP.address_bytes, 1)))


@pytest.fixture
def explorer() -> Explorer:
    return Explorer()


@pytest.fixture
def late() -> Explorer:
    """An explorer ten seconds behind its chain, which began long ago."""
    explorer = Explorer(lag_s=10)
    explorer.clock.advance(100)
    return explorer


def test_the_index_lists_an_action_of_every_dialect_that_answers(explorer: Explorer) -> None:
    tx_hash = explorer.sent()
    lines = [line.split() for line in explorer.http.get("/").text.splitlines()]
    listed = [line[1] for line in lines if line[:1] == ["GET"]]
    assert len(listed) == len(DIALECTS)
    for path in listed:
        answer = explorer.http.get(path.replace("0x...", tx_hash))
        assert (answer.status_code, tx_hash in answer.text) == (200, True)


@pytest.mark.clause("8/indexer-query")
def test_a_transaction_has_its_block_number_once_it_is_mined(explorer: Explorer) -> None:
    rpc = Rpc(ledger=explorer.ledger)
    explorer.mine()
    explorer.set_automine(False)
    tx_hash = explorer.sent()
    for number in (None, "0x2"):
        told = [explorer.both(name, txhash=tx_hash) for name in NAMES]
        assert told == [rpc.result(f"eth_get{name}", tx_hash) for name in NAMES]
        assert told[0]["blockNumber"] == number
        explorer.mine()


@pytest.mark.clause("8/indexer-query")
def test_a_late_explorer_knows_a_transaction_only_when_the_lag_is_over(late: Explorer) -> None:
    tx_hash = late.sent()
    late.clock.advance(9.5)
    assert [late.both(name, txhash=tx_hash) for name in NAMES] == [None, None]
    assert late.both("BlockNumber") == "0x0"
    assert late.both("BlockByNumber", tag="0x1") is None
    assert late.both("BlockByNumber", tag="latest")["number"] == "0x0"
    late.clock.advance(0.5)
    assert [late.both(name, txhash=tx_hash)["blockNumber"] for name in NAMES] == ["0x1", "0x1"]
    assert late.both("BlockNumber") == "0x1"
    assert late.both("BlockByNumber", tag="latest")["number"] == "0x1"
    late.set_automine(False)
    waiting = late.sent()
    late.clock.advance(60)
    assert late.both("TransactionByHash", txhash=waiting) is None, "it does not see the mempool"


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_hash_is_an_error_in_a_200_or_a_400(explorer: Explorer, name: str) -> None:
    for tx_hash in BAD_HASHES:
        body = explorer.etherscan(name, txhash=tx_hash)
        assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", 1, -32602)
        assert "64 hex digits" in body["error"]["message"]
        assert "result" not in body
    for query in ({}, {"txhash": UNKNOWN}, *({"txHash": tx_hash} for tx_hash in BAD_HASHES)):
        response = explorer.http.get(f"/api/v1/ethproxy/get{name}", params=query)
        assert response.status_code == 400
        assert response.json()["error"] == "Invalid transaction hash"
        assert "64 hex digits" in response.json()["reason"]


def not_ok(text: str) -> dict[str, str]:
    return {"status": "0", "message": "NOTOK", "result": f"Error! {text}"}


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
def test_an_unknown_question_is_not_ok_in_a_200(
    explorer: Explorer, query: dict[str, str], text: str
) -> None:
    assert explorer.ask("/api", **query) == not_ok(f"Missing Or invalid {text} name")


# --- blocks and outcomes -------------------------------------------------------------


def test_a_block_is_told_by_number_and_tag_in_both_dialects(explorer: Explorer) -> None:
    explorer.sent()
    rpc = Rpc(ledger=explorer.ledger)
    for tag in ("0x1", "latest", "0x2"):
        block = explorer.both("BlockByNumber", tag=tag)
        assert block == rpc.result("eth_getBlockByNumber", tag, False)
    whole = explorer.both("BlockByNumber", ("boolean", "txDetail"), tag="0x1")
    assert whole == rpc.result("eth_getBlockByNumber", "0x1", True)
    assert explorer.etherscan("BlockByNumber", tag="first")["error"]["code"] == -32602
    refused = explorer.http.get("/api/v1/ethproxy/getBlockByNumber", params={"tag": "first"})
    assert (refused.status_code, refused.json()["error"]) == (400, "Invalid block tag")


def test_the_outcome_of_a_transaction_is_told(explorer: Explorer) -> None:
    good, bad = explorer.sent(), explorer.failed()
    status = [explorer.outcome("gettxreceiptstatus", each) for each in (good, bad, UNKNOWN)]
    assert [each.pop("result") for each in status] == [{"status": s} for s in ("1", "0", "")]
    assert status == [{"status": "1", "message": "OK"}] * 3
    assert explorer.outcome("getstatus", bad)["result"]["isError"] == "1"
    bad_hash = [explorer.outcome(each, "0x12") for each in ("gettxreceiptstatus", "getstatus")]
    assert bad_hash == [not_ok("Invalid transaction hash")] * 2
    no_error = {"isError": "0", "errDescription": ""}
    for each in (good, UNKNOWN):
        assert explorer.outcome("getstatus", each)["result"] == no_error


def test_cronos_says_whether_a_transaction_failed(explorer: Explorer) -> None:
    ask = partial(explorer.http.get, "/api/v1/transaction/getStatus")
    told = ask(params={"txHash": explorer.failed(), "apikey": "KEY"}).json()
    reason = told["result"].pop("errDescription")
    assert told == {"status": "1", "message": "OK", "result": {"isError": "1"}}
    assert "exceeds balance" in reason
    assert ask(params={"txHash": "0x12"}).status_code == 400


def test_a_form_asks_as_a_url_does(explorer: Explorer) -> None:
    tx_hash = explorer.sent()
    form = {"module": "proxy", "action": "eth_getTransactionByHash", "txhash": tx_hash}
    by_form = explorer.http.post("/api", data={**form, "apikey": "KEY"})
    by_url = explorer.http.post("/api", params=form)
    assert by_form.json() == by_url.json() == explorer.ask("/api", **form)
    path = "/api/v1/ethproxy/getTransactionByHash"
    posted = explorer.http.post(path, data={"txHash": tx_hash})
    assert posted.json()["result"] == by_url.json()["result"]
    assert explorer.http.post("/api", content=b"\xff").status_code == 400
