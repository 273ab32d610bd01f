"""The development methods of anvil and Hardhat on a served ledger, and who may use them."""

from collections.abc import Iterator

import pytest

from tests.chain.asking import Node
from tests.serve.driver import Server, started
from tests.serve.hosted import hosted
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, parse_address, to_hex

NOBODY = "0x" + "77" * 20
ETHER = 10**18


def newest(node: Node) -> tuple[int, int]:
    """Return number and time of the newest block."""
    block = node.result("eth_getBlockByNumber", "latest", False)
    return int(block["number"], 16), int(block["timestamp"], 16)


@pytest.fixture
def server() -> Iterator[Server]:
    with hosted() as running:
        yield running


@pytest.fixture
def node(server: Server) -> Node:
    return Node(server.ready["rpc"])


@pytest.mark.parametrize("prefix", ["evm", "anvil"])
def test_a_snapshot_holds_the_whole_world(server: Server, node: Node, prefix: str) -> None:
    payer = server.account().address
    first, saved = server.balance(payer), node.result(f"{prefix}_snapshot")
    server.account().paid()
    assert server.balance(payer) < first
    assert node.result(f"{prefix}_revert", saved) is True
    assert server.balance(payer) == first
    assert server.state()["rows"]["payments"] == 0
    assert node.result(f"{prefix}_revert", saved) is False
    server.account().paid()


def test_time_goes_on_for_all_of_the_world(server: Server, node: Node) -> None:
    _, at_s = newest(node)
    assert node.result("evm_increaseTime", "0xe10") >= 3600
    assert node.result("evm_mine") == "0x0"
    _, later_s = newest(node)
    assert at_s + 3600 <= later_s <= server.now_s()
    wanted = server.now_s() + 1000
    assert node.result("evm_setNextBlockTimestamp", wanted) is None
    number, _ = newest(node)  # the world's heartbeat may have mined a block, too
    node.result("hardhat_mine", "0x3", "0xa")
    after, mined_s = newest(node)
    assert (after, mined_s - wanted in range(20, 25)) == (number + 3, True)
    node.result("evm_mine", {"timestamp": wanted + 500, "blocks": 2})
    assert newest(node)[1] - wanted in range(500, 505)
    assert "cannot go back" in node.error("evm_setNextBlockTimestamp", at_s)["message"]
    server.account().paid()
    assert sum(each["event"] == "time advanced" for each in server.journal()) >= 4


def test_any_account_can_be_impersonated_and_given_money(server: Server, node: Node) -> None:
    payer = server.account()
    token, shop = server.ready["asset"], Address(b"\x09" * 20)
    node.result("hardhat_setBalance", NOBODY, hex(5 * ETHER))
    assert int(node.result("eth_getBalance", NOBODY), 16) == 5 * ETHER
    paid = abi.transfer(parse_address(NOBODY), 700)
    node.result("eth_sendTransaction", {"from": payer.address, "to": token, "data": to_hex(paid)})
    call = {"from": NOBODY, "to": token, "data": to_hex(abi.transfer(shop, 7))}
    assert "not unlocked" in node.error("eth_sendTransaction", call)["message"]
    node.result("anvil_impersonateAccount", NOBODY)
    sent = node.result("eth_sendTransaction", call)
    assert node.result("eth_getTransactionReceipt", sent)["status"] == "0x1"
    assert server.balance("0x" + "09" * 20) == 7
    node.result("hardhat_stopImpersonatingAccount", NOBODY)
    assert "not unlocked" in node.error("eth_sendTransaction", call)["message"]


def test_other_methods_name_the_way(node: Node) -> None:
    assert "GET /_sim lists" in node.error("anvil_reset")["message"]
    assert "GET /_sim lists" in node.error("hardhat_setStorageAt", NOBODY, "0x0", "0x0")["message"]
    assert "1 parameters" in node.error("evm_snapshot", 1)["message"]
    assert "expected a number" in node.error("evm_increaseTime", True)["message"]
    assert "expected at most" in node.error("anvil_mine", 10**6)["message"]
    assert node.result("anvil_setAutomine", False) is None
    assert node.result("anvil_getAutomine") is False


def test_a_wallet_that_is_let_in_to_the_chain_does_not_control_it() -> None:
    wallet = "https://wallet.example"
    with started("--control-token", "secret", "--rpc-origin", wallet) as server:
        stranger = Node(server.ready["rpc"])
        page = Node(server.ready["rpc"], {"Origin": wallet, "Authorization": "Bearer secret"})
        assert "needs control of the world" in page.error("evm_snapshot")["message"]
        assert "needs control of the world" in stranger.error("evm_snapshot")["message"]
        assert int(stranger.result("eth_blockNumber"), 16) >= 0
        friend = Node(server.ready["rpc"], {"Authorization": "Bearer secret"})
        assert friend.result("evm_snapshot") == "0x1"
        friend.result("anvil_impersonateAccount", NOBODY)
        call = {"from": NOBODY, "to": NOBODY, "data": "0x"}
        assert "not unlocked" in stranger.error("eth_sendTransaction", call)["message"]
