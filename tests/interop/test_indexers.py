"""Other people's indexers follow the chain, and read the token's state at the block of each event.

They find what the logs say, in blocks that are long past, in new ones, and after a reorganisation.
"""

import time
from collections import Counter
from itertools import groupby
from typing import Any

import httpx
import pytest

from tests.interop import onchain, programs
from tests.interop.table import shows
from tests.serve.driver import Server, client
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex

pytestmark = pytest.mark.campaign
INDEXERS = {"ponder": "npm_index/ponder.mjs", "squid": "npm_index/squid.mjs"}
PACKAGES = {"ponder": "npm ponder", "squid": "npm @subsquid/evm-processor"}
USED = to_hex(abi.topic("AuthorizationUsed(address,bytes32)"))
EVENTS = {to_hex(abi.TRANSFER_EVENT): "Transfer", USED: "AuthorizationUsed"}
EMPTY_BLOCKS = 150
"""Twice for each indexer: the anvil of `--chain anvil` keeps 1024 states."""
WITHIN_S = 120
"""ponder takes a third of a minute to start on a busy machine."""


@shows("indexer", PACKAGES, "JSON-RPC, reads at past blocks")
@pytest.mark.parametrize("name", INDEXERS)
def test_an_indexer_reads_the_state_at_each_event(server: Server, name: str) -> None:
    payer, told = server.payer(), onchain.token(server) | {"events": EVENTS}
    for _ in range(2):
        payer.paid()
        server.rpc("anvil_mine", hex(EMPTY_BLOCKS))
    payer.paid()
    with programs.serving(INDEXERS[name], told, WITHIN_S) as url, client(url) as indexer:
        assert_indexed(server, indexer, least=7)
        payer.paid()
        assert_indexed(server, indexer, least=9)
        newest = server.rpc("eth_getBlockByNumber", "latest", False)
        server.sim("reorg", depth=2, drop=newest["transactions"])
        payer.paid()
        assert_indexed(server, indexer, least=9)


def assert_indexed(server: Server, indexer: httpx.Client, least: int) -> None:
    """Check that it comes to know every event, with the balance that its account had then."""
    wanted = expected(server)
    assert len(wanted) >= least
    end = time.monotonic() + WITHIN_S
    while (found := indexer.get("/rows").json()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    assert found == wanted


def expected(server: Server) -> list[list[Any]]:
    """Return what the logs say: block, index, event, account, its value or nonce, and balance.

    The balance is that after the block, summed up from the transfers: those who take part had none
    before.
    """
    rows: list[list[Any]] = []
    balances: Counter[str] = Counter()
    wanted = {"address": server.ready["asset"], "fromBlock": "0x0", "topics": [[*EVENTS]]}
    for block, of_block in groupby(server.rpc("eth_getLogs", wanted), _number):
        found = []
        for log in of_block:
            event, first, second = log["topics"]
            who, what = address(first), second
            if event != USED:
                who, what = address(second), str(int(log["data"], 16))
                balances[address(first)] -= int(what)
                balances[who] += int(what)
            found.append([block, int(log["logIndex"], 16), EVENTS[event], who, what])
        rows += [[*row, str(balances[row[3]])] for row in found]
    return rows


def address(word: str) -> str:
    return "0x" + word[26:]


def _number(log: dict[str, Any]) -> int:
    return int(log["blockNumber"], 16)
