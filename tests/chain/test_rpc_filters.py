"""Filters over JSON-RPC, beside what `tests/evm/test_rpc.py` compares: none lost, not for ever."""

import asyncio
import json
from typing import Any

import pytest

from tests.chain.asking import ALICE, PAYMENT, SHOP, Rpc
from x402sim.chain.base import Call
from x402sim.chain.ledger import machine
from x402sim.chain.rpc import subscriptions
from x402sim.chain.rpc.app import rpc_app
from x402sim.http import web
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.networks import TESTNET

TRANSFERS = {"address": to_hex(TESTNET.asset), "topics": [to_hex(abi.TRANSFER_EVENT)]}
NOT_FOUND = {"code": -32000, "message": "filter not found"}


def changes(rpc: Rpc, name: str) -> Any:
    return rpc.result("eth_getFilterChanges", name)


def test_a_filter_keeps_to_its_range_and_only_one_of_logs_has_logs(rpc: Rpc) -> None:
    later = rpc.result("eth_newFilter", {"fromBlock": "0x3"})
    for _ in range(3):
        rpc.run(rpc.ledger.fund(ALICE, 5))
    assert {log["blockNumber"] for log in changes(rpc, later)} == {"0x3"}
    for kind in ("eth_newBlockFilter", "eth_newPendingTransactionFilter"):
        assert rpc.error("eth_getFilterLogs", rpc.result(kind)) == NOT_FOUND


def test_a_reorganisation_removes_logs_and_tells_of_the_new_ones(rpc: Rpc) -> None:
    logs, blocks = rpc.result("eth_newFilter", TRANSFERS), rpc.result("eth_newBlockFilter")
    payment = rpc.send()
    rpc.run(rpc.ledger.mine())
    (before,) = changes(rpc, logs)
    passed = changes(rpc, blocks)
    rpc.run(rpc.ledger.reorg(2))
    gone, again = changes(rpc, logs)
    assert gone == {**before, "removed": True}
    assert (again["blockNumber"], again["removed"]) == ("0x2", False)
    assert again["transactionHash"] == to_hex(payment)
    replaced = changes(rpc, blocks)
    assert len(replaced) == 2
    assert not set(replaced) & set(passed)
    rpc.run(rpc.ledger.reorg(1, [payment]))
    (lost,) = changes(rpc, logs)
    assert lost == {**again, "removed": True}
    assert changes(rpc, logs) == []


def test_a_reset_is_noticed(rpc: Rpc) -> None:
    name = rpc.result("eth_newBlockFilter")
    rpc.run(rpc.ledger.mine(3))
    assert len(changes(rpc, name)) == 3
    rpc.run(rpc.ledger.reset())
    assert changes(rpc, name) == []
    rpc.run(rpc.ledger.mine())
    assert len(changes(rpc, name)) == 1


def test_filters_end_when_they_are_uninstalled_or_nobody_asks(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, left = rpc.result("eth_newBlockFilter"), rpc.result("eth_newBlockFilter")
    assert [rpc.result("eth_uninstallFilter", name) for _ in range(2)] == [True, False]
    assert rpc.error("eth_getFilterChanges", 1)["code"] == -32602
    monkeypatch.setattr(subscriptions, "MAX_AGE_S", -1)
    for gone in (name, left):
        assert rpc.error("eth_getFilterChanges", gone) == NOT_FOUND


def test_the_number_of_filters_is_bounded(rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_FILTERS", 3)
    names = [rpc.result("eth_newBlockFilter") for _ in range(3)]
    changes(rpc, names[0])  # the second is now the one that was not asked about for longest
    names.append(rpc.result("eth_newBlockFilter"))
    assert rpc.error("eth_getFilterChanges", names[1]) == NOT_FOUND
    for name in (names[0], *names[2:]):
        assert changes(rpc, name) == []


def test_what_a_filter_remembers_is_bounded(rpc: Rpc) -> None:
    name = rpc.result("eth_newFilter", {})
    rpc.run(rpc.ledger.mine(500))
    rpc.send(Call(PAYMENT.sender, TESTNET.asset, abi.transfer(SHOP, 0)))
    assert len(changes(rpc, name)) == 1
    rpc.run(rpc.ledger.reorg(501))
    assert [log["removed"] for log in changes(rpc, name)] == [True, False]


def test_a_filter_of_arrivals_tells_each_once(rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mined at once or not, put back by a reorganisation, and after a reset; of too many, the newest."""
    name = rpc.result("eth_newPendingTransactionFilter")
    mined = rpc.send()
    rpc.run(rpc.ledger.set_automine(False))
    waits = rpc.send(Call(PAYMENT.sender, TESTNET.asset, abi.transfer(SHOP, 1)))
    assert changes(rpc, name) == [to_hex(mined), to_hex(waits)]
    rpc.run(rpc.ledger.mine())
    assert changes(rpc, name) == []
    rpc.run(rpc.ledger.reorg(1))
    assert changes(rpc, name) == [to_hex(waits)]
    rpc.run(rpc.ledger.reset())
    rpc.run(rpc.ledger.set_automine(False))
    assert changes(rpc, name) == []
    sent = [rpc.send(Call(PAYMENT.sender, TESTNET.asset, abi.transfer(SHOP, n))) for n in range(4)]
    assert changes(rpc, name) == [to_hex(each) for each in sent]
    monkeypatch.setattr(machine, "KEPT_ARRIVALS", 3)
    monkeypatch.setattr(subscriptions, "AT_ONCE", 2)
    small = Rpc()
    name = small.result("eth_newPendingTransactionFilter")
    sent = [
        small.send(Call(PAYMENT.sender, TESTNET.asset, abi.transfer(SHOP, n))) for n in range(9)
    ]
    assert changes(small, name) == [to_hex(each) for each in sent[-3:]]
    assert changes(small, name) == []


def test_a_filter_that_is_far_behind_goes_on_where_an_answer_is_full(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answered -32005 to each poll, for ever (issue 51)."""
    logs, blocks = rpc.result("eth_newFilter", TRANSFERS), rpc.result("eth_newBlockFilter")
    monkeypatch.setattr(subscriptions, "MAX_LOGS", 3)
    rpc.run(rpc.ledger.set_automine(False))
    for size in (2, 2, 5, 1):
        for _ in range(size):
            rpc.run(rpc.ledger.fund(ALICE, 5))
        rpc.run(rpc.ledger.mine())
    told = [[log["blockNumber"] for log in changes(rpc, logs)] for _ in range(5)]
    assert told == [["0x1"] * 2, ["0x2"] * 2, ["0x3"] * 5, ["0x4"], []]
    assert [len(changes(rpc, blocks)) for _ in range(3)] == [3, 1, 0]


BACKLOG = 500
"""Blocks, of which each subscription is a few milliseconds of work."""


class Left(web.Connection):
    """A connection of a WebSocket: whether its client has left."""

    has_left = False

    def is_closed(self) -> bool:
        return self.has_left


def test_a_backlog_leaves_the_others_their_turns_and_ends_with_its_client(rpc: Rpc) -> None:
    told, turns, most, client = 0, 0, dict[int, int](), Left()
    asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]}
    message = {"type": "websocket.receive", "bytes": json.dumps(asked).encode()}

    async def main() -> None:
        incoming = asyncio.Queue[dict[str, Any]]()
        incoming.put_nowait({"type": "websocket.connect"})
        for _ in range(subscriptions.MAX_SUBSCRIPTIONS):
            incoming.put_nowait(message)

        async def send(sent: dict[str, Any]) -> None:
            nonlocal told
            if "eth_subscription" in sent.get("text", ""):
                told += 1
                most[turns] = most.get(turns, 0) + 1

        async def look() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        scope = {"type": "websocket", "path": "/", "headers": [], web.CONNECTION: client}
        server = asyncio.create_task(rpc_app(rpc.ledger)(scope, incoming.get, send))
        looking = asyncio.create_task(look())
        while incoming.qsize():
            await asyncio.sleep(0.01)
        await rpc.ledger.mine(BACKLOG)
        while told < BACKLOG:
            await asyncio.sleep(0.01)
        client.has_left = True
        incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
        before = told
        await asyncio.wait_for(server, 10)
        assert told - before <= 1
        looking.cancel()

    asyncio.run(main())
    assert max(most.values()) <= 2
