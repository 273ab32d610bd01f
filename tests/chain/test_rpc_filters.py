"""Filters over JSON-RPC, beside what `tests/evm/test_rpc.py` compares: none lost, not for ever."""

from typing import Any

import pytest

from tests.chain.asking import ALICE, PAYMENT, SHOP, Rpc
from x402sim.chain.base import Call
from x402sim.chain.rpc import subscriptions
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
