"""The development methods of anvil and Hardhat on a served ledger, and who may use them."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.chain.asking import Node
from tests.hostile.inputs import TOKENS
from tests.hostile.town import CONTROL
from tests.serve.driver import Server, started
from tests.serve.hosted import hosted
from x402sim.chain.rpc.app import METHODS
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, parse_address, to_hex
from x402sim.serving.control import development

NOBODY = "0x" + "77" * 20
ETHER = 10**18


def newest(node: Node) -> tuple[int, int]:
    block = node.result("eth_getBlockByNumber", "latest", False)
    return int(block["number"], 16), int(block["timestamp"], 16)


@pytest.fixture
def server() -> Iterator[Server]:
    with hosted() as running:
        yield running


@pytest.fixture
def node(server: Server) -> Node:
    return Node(server.ready["rpc"])


def test_a_snapshot_holds_the_whole_world(server: Server, node: Node) -> None:
    payer = server.account().address
    first, saved = server.balance(payer), node.result("evm_snapshot")
    server.account().paid()
    assert server.balance(payer) < first
    assert node.result("anvil_revert", saved) is True
    assert server.balance(payer) == first
    assert server.state()["rows"]["payments"] == 0
    assert node.result("evm_revert", saved) is False
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


def test_a_transaction_is_dropped_from_the_mempool(node: Node) -> None:
    node.result("evm_setAutomine", False)
    sender = node.result("eth_accounts")[0]
    node.result("anvil_impersonateAccount", sender)
    asked = {"from": sender, "to": NOBODY, "value": "0x1"}
    sent = [node.result("eth_sendTransaction", asked) for _ in range(3)]
    assert node.result("anvil_dropTransaction", sent[1]) == sent[1]
    assert node.result("anvil_dropTransaction", sent[1]) is None
    assert node.result("txpool_status") == {"pending": "0x1", "queued": "0x0"}
    node.result("evm_mine")
    assert int(node.result("eth_getBalance", NOBODY), 16) == 1


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


def test_code_and_nonces_are_set_and_reset(server: Server, node: Node) -> None:
    node.result("anvil_setCode", NOBODY, "0x6001")
    node.result("anvil_setNonce", NOBODY, "0x9")
    assert node.result("eth_getCode", NOBODY) == "0x6001"
    assert node.result("eth_getTransactionCount", NOBODY) == "0x9"
    node.result("evm_mine")
    assert node.result("anvil_reset") is None
    assert node.result("eth_blockNumber") == "0x0"
    assert node.result("eth_getCode", NOBODY) == "0x"
    server.account().paid()


def test_other_methods_name_the_way(node: Node) -> None:
    assert "GET /_sim lists" in node.error("anvil_nodeInfo")["message"]
    assert "--chain anvil" in node.error("anvil_reset", {"forking": {}})["message"]
    assert "1 parameters" in node.error("evm_snapshot", 1)["message"]
    assert "expected a number" in node.error("evm_increaseTime", True)["message"]
    assert "from 0 to 1000, got 1000000" in node.error("anvil_mine", 10**6)["message"]
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


HUGE = ["9" * 401, "9" * 4300, "-" + "9" * 400, str(2**256), str(2**63), "1e308", "-0.0", "1.5"]
_NUMBERS = st.sampled_from([*HUGE, *TOKENS]) | (st.integers() | st.booleans()).map(json.dumps)
_WORDS = st.sampled_from(["latest", NOBODY, "0x" + "f" * 64, "0x1" + "0" * 64, "9" * 78, "9" * 79])
_NAMED = st.sampled_from(["timestamp", "blocks", "to", "value", "gas", "nonce", "fromBlock"])
_ONE = st.one_of(
    _NUMBERS,
    _WORDS.map(json.dumps),
    st.builds('{{"to": "{}", "{}": {}}}'.format, st.just(NOBODY), _NAMED, _NUMBERS),
    st.builds("[{}]".format, _NUMBERS),
)
_DEVELOPMENT = [
    *(f"{prefix}_{name}" for prefix in ("evm", "anvil", "hardhat") for name in development.METHODS),
    "evm_mine",
]
_FIELDS = sorted((path, name) for path, body in CONTROL.items() for name in body)
WITHIN_S = 5


@pytest.fixture(scope="module")
def attacked() -> Iterator[Server]:
    with hosted() as running:
        yield running


def assert_answered(server: Server, url: str, body: str, caplog: Any) -> httpx.Response:
    """Send what may be no JSON; it is answered soon, and nothing broke."""
    caplog.clear()
    reply = server.http.post(url, content=body.encode(), timeout=WITHIN_S)
    assert reply.status_code < 500, (body[:300], reply.text)
    assert not [each for each in caplog.records if each.exc_info], body[:300]
    assert len(reply.text) < 20_000
    return reply


_often = settings(max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_often
@given(
    method=st.sampled_from(sorted(METHODS)) | st.sampled_from(_DEVELOPMENT),
    params=st.lists(_ONE, max_size=3),
)
def test_a_number_of_any_size_is_answered_by_every_method(
    attacked: Server, caplog: pytest.LogCaptureFixture, method: str, params: list[str]
) -> None:
    caplog.set_level(logging.WARNING)
    asked = f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": [{", ".join(params)}]}}'
    reply = assert_answered(attacked, attacked.ready["rpc"], asked, caplog).json()
    assert ("result" in reply) != ("error" in reply)
    code = reply.get("error", {"code": 3})["code"]
    assert code in (3, -32000, -32602, -32600, -32700), (asked[:300], reply)


@_often
@given(field=st.sampled_from(_FIELDS), value=_ONE)
def test_a_number_of_any_size_is_answered_by_every_action(
    attacked: Server, caplog: pytest.LogCaptureFixture, field: tuple[str, str], value: str
) -> None:
    caplog.set_level(logging.WARNING)
    path, name = field
    body = json.dumps({**CONTROL[path], name: "@@"}).replace('"@@"', value)
    assert_answered(attacked, path, body, caplog)


@pytest.mark.parametrize("digits", [19, 401, 4300])
@pytest.mark.parametrize(
    ("method", "place"),
    [
        *((f"evm_{name}", "{}") for name in ("mine", "increaseTime", "setNextBlockTimestamp")),
        *((f"anvil_{name}", "{}") for name in ("mine", "revert")),
        *(("evm_mine", f'{{"{name}": {{}}}}') for name in ("blocks", "timestamp")),
        *(("anvil_mine", "1, {}"), ("anvil_setBalance", f'"{NOBODY}", {{}}')),
        ("eth_feeHistory", '{}, "latest"'),
    ],
)
def test_a_number_beyond_its_bound_is_refused_by_name(
    attacked: Server, method: str, place: str, digits: int
) -> None:
    params = place.replace("{}", "9" * digits)
    asked = f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": [{params}]}}'
    reply = attacked.http.post(attacked.ready["rpc"], content=asked).json()
    if digits == 19 and method in ("anvil_setBalance", "anvil_revert"):
        assert "result" in reply, "within the bound"
        return
    assert reply["error"]["code"] == -32602
    assert "expected a number from" in reply["error"]["message"]
    assert len(reply["error"]["message"]) < 200
