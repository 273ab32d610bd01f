"""A world on an existing node: real time, our keys, and no control over its blocks."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chain import asking
from tests.evm import circle
from tests.evm.helpers import refusal
from tests.serve.driver import ORDER
from x402sim import TESTNET, Fault, LocalServer, PaymentAuth, World
from x402sim.backends import Node
from x402sim.chain.base import ChainError
from x402sim.chain.node.anvil import AnvilNode
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, parse_address, to_hex
from x402sim.report.reading import checks_of
from x402sim.world.chains import KEYS

OWNER = Wallet("0x" + "51" * 32)
STRANGER = Wallet("0x" + "52" * 32)
ETHER = 10**18


@pytest.fixture(scope="module")
def node(program: Path) -> Iterator[str]:
    """A node that has our account's gas money on it, and nothing else."""
    anvil = AnvilNode(338, Clock().now_s(), program)
    anvil.rpc.ask_now("anvil_removeBlockTimestampInterval")  # its blocks have the real time
    for wallet in (OWNER, STRANGER):
        ask(anvil.url, "anvil_setBalance", wallet.address, hex(100 * ETHER))
    yield anvil.url
    anvil.stop()


@pytest.fixture(autouse=True)
def our_keys(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, OWNER.private_key)


def ask(url: str, method: str, *params: Any) -> Any:
    return asking.Node(url).result(method, *params)


@pytest.fixture(scope="module")
def token(node: str) -> Iterator[str]:
    """The token that `serve --deploy` deployed, and the server."""
    with LocalServer(chain=Node(node, deploy=True, keys=(OWNER.private_key,)), seed=1) as server:
        yield server.info.asset


def test_the_facilitator_asks_the_node_with_its_key_while_a_fault_stands(node: str):
    chain = Node(node, deploy=True, keys=(OWNER.private_key,))
    with LocalServer(chain=chain, seed=3) as server:
        wallet, url = server.wallets[0], f"{server.url}/api/perp/market"
        network = replace(TESTNET, asset=parse_address(server.info.asset))

        def paid() -> int:
            moved = server.transfers(wallet.address)  # the first transfer funded the wallet
            return sum(each.sender == wallet.address for each in moved)

        its = {"victim": "rpc", "caller": "facilitator"}
        server.fault(Fault(does="lose answer", contains="eth_sendRawTransaction", **its))
        assert httpx.get(url, auth=PaymentAuth(wallet, network=network)).status_code == 200
        assert paid() == 1
        server.fault(Fault(does="refuse", times=None, **its))
        payer = PaymentAuth(wallet, version=2, network=network)
        assert httpx.get(url, auth=payer).status_code == 502
        assert paid() == 1


def test_a_token_is_deployed_and_paid_with(node: str):
    with LocalServer(chain=Node(node, deploy=True), seed=1) as server:
        asset = server.info.asset
        assert server.info.chain == "node"
        assert [account.balance for account in server.info.accounts] == ["1000000000"] * 10
        network = replace(TESTNET, asset=parse_address(asset))
        payer = PaymentAuth(server.wallets[0], max_amount="0.05", network=network)
        answer = httpx.post(server.url + "/api/perp/quote", json=ORDER, auth=payer)
        assert answer.status_code == 200
        receipt = ask(node, "eth_getTransactionReceipt", payer.receipts[0].tx_hash)
        assert (receipt["status"], receipt["to"]) == ("0x1", asset.lower())
        assert receipt["from"] == OWNER.address.lower()


@pytest.mark.parametrize("name", ["lost_answer", "parallel_authorization"])
def test_stories_that_need_no_control_of_the_chain_pass(node: str, token: str, name: str):
    run = World(chain=Node(node, token=token)).play(name)
    if name == "lost_answer":
        assert run.reason == f"in-process on {node} does not offer control of the clock"
        return
    assert run.outcome == "passed", run.reason
    assert checks_of(run.journal)
    assert len(run.transfers) > 1


def test_the_same_story_passes_twice_on_one_chain(node: str, token: str, monkeypatch):
    """Payers, nonces and ids are drawn anew: on this chain nothing can be done twice.

    The second time the keys are given in Python.
    """
    runs = [World(chain=Node(node, token=token), seed=0).play("replay")]
    monkeypatch.delenv(KEYS)
    ours = Node(node, token=token, keys=(OWNER.private_key,))
    runs.append(World(chain=ours, seed=0).play("replay"))
    assert [run.outcome for run in runs] == ["passed", "passed"]
    assert runs[0].sha256 != runs[1].sha256


def test_without_the_owners_key_nothing_is_minted(node: str, token: str, monkeypatch):
    monkeypatch.setenv(KEYS, STRANGER.private_key)
    run = World(chain=Node(node, token=token)).play("replay")
    reason = f"in-process on {node} does not offer a payer with money"
    assert (run.outcome, run.reason) == ("skipped", reason)
    assert World(chain=Node(node, token=token)).play("unpaid_request").outcome == "passed"
    with LocalServer(chain=Node(node, token=token), seed=1) as server:
        asked = {"address": STRANGER.address, "amount": "1.00"}
        answer = httpx.post(f"{server.control_url}/faucet", json=asked)
    assert answer.status_code == 409
    assert answer.json()["reason"].endswith("and its key is not configured")


def test_keys_are_not_shown():
    secret = Node("http://user:hush@127.0.0.1:9/secret", keys=("0x12",))
    assert repr(secret) == "Node('http://127.0.0.1:9')"


CONTROLS: list[tuple[str, Any, str]] = [
    ("mine", {}, "mines at its own pace and in real time"),
    ("mining", {"automine": False}, "mines at its own pace and in real time"),
    ("clock/advance", {"seconds": 3600}, "mines at its own pace and in real time"),
    ("snapshot", {}, "cannot be rewound"),
    ("reorg", {}, "cannot be rewound"),
    ("drop", {}, "its state changes by transactions only"),
    ("force-revert", {}, "its state changes by transactions only"),
    ("reset", {}, "cannot be rewound"),
    ("send", {"from": "0x" + "77" * 20, "to": "0x" + "78" * 20}, "by transactions only"),
]


def test_control_that_the_node_does_not_offer_is_refused_with_409(node: str, token: str):
    with LocalServer(chain=Node(node, token=token), seed=1) as server:
        before_s = server.clock.now()
        for path, body, reason in CONTROLS:
            answer = httpx.post(f"{server.control_url}/{path}", json=body)
            assert (answer.status_code, answer.json()["error"]) == (409, "The chain refused")
            assert answer.json()["reason"].startswith(node)
            assert reason in answer.json()["reason"]
        assert server.clock.now() < before_s + 60
        for path in ("faults/clear", "indexer/run"):
            assert httpx.post(f"{server.control_url}/{path}", json={}).status_code == 200
        before = ask(server.rpc_url, "eth_blockNumber")
        asked = {"address": STRANGER.address, "amount": "2.50"}
        funded = httpx.post(f"{server.control_url}/faucet", json=asked)
        assert funded.json()["balance"] == "2500000"
        assert int(ask(server.rpc_url, "eth_blockNumber"), 16) == int(before, 16) + 1


def test_wrong_nodes_and_tokens_have_different_errors(node: str, token: str):
    for options, said in (
        (["--token", STRANGER.address], f"no contract at {STRANGER.address} on {node}"),
        (["--token", "0x12"], "the token: expected 0x and 40 hex digits, got '0x12'"),
        ([], "no contract at 0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0"),
    ):
        assert said in refusal("run", "replay", "--chain", node, *options)
    said = refusal("run", "replay", "--chain", "http://user:hush@127.0.0.1:9/secret?token=hidden")
    assert "--chain http://127.0.0.1:9: no answer from http://127.0.0.1:9" in said
    assert not [word for word in ("hush", "secret", "hidden") if word in said]
    mainnet = refusal("serve", "--chain", node, "--network", "cronos-mainnet", "--port", "0")
    assert f"{node} is chain 338, not 25 (cronos-mainnet)" in mainnet


# --- a token that is given by its address --------------------------------------------


def circles(node: str, **changes: Any) -> str:
    """Return the address of Circle's token, put on the node by transactions."""
    network = replace(circle.CIRCLE, token_name="USD Coin", **changes)
    return checksum(circle.deploy(partial(ask, node), network, OWNER.address_bytes))


def test_circles_token_is_taken_as_it_says_it_is(node: str):
    """The version is always "2", and the name was given at initialization."""
    token = circles(node)
    with LocalServer(chain=Node(node, token=token), seed=1) as server:
        assert (server.info.token.name, server.info.token.version) == ("USD Coin", "2")
        payer = Wallet("0x" + "53" * 32)
        asked = {"address": payer.address, "amount": "1.00"}
        assert httpx.post(f"{server.control_url}/faucet", json=asked).status_code == 200
        network = replace(
            TESTNET, asset=parse_address(token), token_name="USD Coin", token_version="2"
        )
        auth = PaymentAuth(payer, max_amount="0.05", network=network)
        answer = httpx.post(server.url + "/api/perp/quote", json=ORDER, auth=auth)
        assert answer.status_code == 200, answer.text


def test_the_decimals_of_a_token_are_read(node: str):
    with LocalServer(chain=Node(node, token=circles(node, decimals=18)), seed=1) as server:
        assert server.info.token.decimals == 18
        refused = httpx.post(server.url + "/api/perp/quote", json=ORDER)
        amount = refused.json()["paymentRequirements"]["maxAmountRequired"]
        assert amount == str(10**16)


def test_a_minter_mints_who_is_not_the_owner(node: str, monkeypatch: pytest.MonkeyPatch):
    token = circles(node)
    monkeypatch.setenv(KEYS, STRANGER.private_key)
    assert World(chain=Node(node, token=token)).play("replay").outcome == "skipped"
    configured = abi.selector("configureMinter(address,uint256)")
    configured += abi.word(STRANGER.address_bytes, 10**12)
    asked = {"from": OWNER.address, "to": token, "input": to_hex(configured)}
    ask(node, "eth_sendTransactionSync", asked)
    run = World(chain=Node(node, token=token)).play("replay")
    assert run.outcome == "passed", run.reason


def test_what_is_no_token_says_so(node: str, token: str):
    library = to_hex(circle.code("util/SignatureChecker"))
    made = ask(
        node, "eth_sendTransactionSync", {"from": OWNER.address, "input": library, "gas": "0xfffff"}
    )
    at = checksum(parse_address(made["contractAddress"]))
    said = refusal("run", "replay", "--chain", node, "--token", at)
    assert f"{at} on {node} has no name() and decimals(): it is no ERC-20 token" in said


def test_a_network_whose_token_is_another_says_what_is_there(node: str, token: str):
    network = replace(TESTNET, asset=parse_address(token), token_version="7")
    with pytest.raises(ChainError) as refused:
        World(chain=Node(node), network=network).play("replay")
    assert str(refused.value) == (
        f"the token {token} on {node} says name 'Bridged USDC (Stargate)', version '1', 6 decimals;"
        " wanted name 'Bridged USDC (Stargate)', version '7', 6 decimals, as of cronos-testnet;"
        f" take what it says with --token {token}, or describe it in a --network-file"
    )
