"""A world on a node of somebody else: real time, our keys, and no power over it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from x402sim import TESTNET, LocalServer, PaymentAuth, World
from x402sim.chain.node.anvil import AnvilProcess
from x402sim.cli import app
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.world.assembly import chains

OWNER = Wallet("0x" + "51" * 32)
STRANGER = Wallet("0x" + "52" * 32)
ETHER = 10**18
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


@pytest.fixture(scope="module")
def node(program: Path) -> Iterator[str]:
    """A node that has our account's gas money on it, and nothing else."""
    anvil = AnvilProcess(338, Clock().now_s(), program)
    for wallet in (OWNER, STRANGER):
        ask(anvil.url, "anvil_setBalance", wallet.address, hex(100 * ETHER))
    yield anvil.url
    anvil.stop()


@pytest.fixture(autouse=True)
def our_keys(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(chains.KEYS, OWNER.private_key)


def ask(url: str, method: str, *params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = httpx.post(url, json=body).json()
    assert "error" not in answer, answer
    return answer["result"]


@pytest.fixture(scope="module")
def token(node: str) -> Iterator[str]:
    """The token that `serve --deploy` puts there, and the server that did."""
    patch = pytest.MonkeyPatch()
    patch.setenv(chains.KEYS, OWNER.private_key)
    with deployed(node) as server:
        yield str(server.info["asset"])
    patch.undo()


def deployed(node: str) -> LocalServer:
    return LocalServer(chain=node, seed=1, deploy=True)


def test_a_token_is_deployed_and_paid_with(node: str):
    with deployed(node) as server:
        asset = server.info["asset"]
        assert server.info["chain"] == "node"
        assert [account["balance"] for account in server.info["accounts"]] == ["1000000000"] * 10
        network = replace(TESTNET, asset=parse_address(asset))
        payer = PaymentAuth(server.wallets[0], max_amount="0.05", network=network)
        answer = httpx.post(server.url + "/api/perp/quote", json=ORDER, auth=payer)
        assert answer.status_code == 200
        receipt = ask(node, "eth_getTransactionReceipt", payer.receipts[0].tx_hash)
        assert (receipt["status"], receipt["to"]) == ("0x1", asset.lower())
        assert receipt["from"] == OWNER.address.lower()


@pytest.mark.parametrize(
    "name", ["replay", "lost_answer", "wrong_amount", "parallel_authorization", "two_proofs"]
)
def test_stories_that_ask_for_no_power_pass(node: str, token: str, name: str):
    run = World(chain=node, token=token).play(name)
    if name == "lost_answer":
        assert run.reason == f"in-process on {node} does not offer control of the clock"
        return
    assert run.outcome == "passed", run.reason
    assert run.checked
    assert len(run.transfers) > 1


def test_the_same_story_again_meets_its_own_traces_and_passes(node: str, token: str):
    """Payers, nonces and ids are drawn anew: on this chain nothing can be done twice."""
    runs = [World(chain=node, token=token, seed=0).play("replay") for _ in range(2)]
    assert [run.outcome for run in runs] == ["passed", "passed"]
    assert runs[0].sha256 != runs[1].sha256


def test_without_the_owners_key_there_is_no_money(node: str, token: str, monkeypatch):
    monkeypatch.setenv(chains.KEYS, STRANGER.private_key)
    run = World(chain=node, token=token).play("replay")
    assert (run.outcome, run.reason) == (
        "skipped",
        f"in-process on {node} does not offer a payer with money",
    )
    assert World(chain=node, token=token).play("unpaid_request").outcome == "passed"


POWERS: list[tuple[str, Any, str]] = [
    ("mine", {}, "mine"),
    ("mining", {"automine": False}, "stop it from mining"),
    ("snapshot", {}, "take snapshots"),
    ("reorg", {}, "replace blocks"),
    ("drop", {}, "empty its mempool"),
    ("doom", {}, "let calls fail"),
    ("reset", {}, "begin again"),
    ("send", {"from": "0x" + "77" * 20, "to": "0x" + "78" * 20}, "make native currency"),
]


def test_what_needs_power_is_refused_and_said_so(node: str, token: str):
    with LocalServer(chain=node, seed=1, token=token) as server:
        for path, body, power in POWERS:
            answer = httpx.post(f"{server.control_url}/{path}", json=body)
            said = f"{node} is not ours: we cannot {power}"
            assert (answer.status_code, answer.json()["reason"]) == (409, said)
        before_s = server.clock.now()
        sooner = httpx.post(f"{server.control_url}/clock/advance", json={"seconds": 3600})
        assert sooner.json()["reason"] == "the chain is not ours: on it time is real"
        assert server.clock.now() < before_s + 60
        for path in ("faults/clear", "indexer/run"):
            assert httpx.post(f"{server.control_url}/{path}", json={}).status_code == 200
        before = ask(server.rpc_url, "eth_blockNumber")
        funded = httpx.post(
            f"{server.control_url}/faucet", json={"address": STRANGER.address, "amount": "2.50"}
        )
        assert funded.json()["balance"] == "2500000"
        assert int(ask(server.rpc_url, "eth_blockNumber"), 16) == int(before, 16) + 1


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    return result.output


def test_wrong_nodes_and_tokens_are_told_apart(node: str, token: str):
    for options, said in (
        (["--token", STRANGER.address], f"no contract at {STRANGER.address} on {node}"),
        (["--token", "0x12"], "the token: expected 0x and 40 hex digits, got '0x12'"),
        ([], "no contract at 0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0"),
    ):
        assert said in refusal("run", "replay", "--chain", node, *options)
    gone = "http://user:secret@127.0.0.1:9"
    said = refusal("run", "replay", "--chain", gone)
    assert "--chain http://127.0.0.1:9: no answer from http://127.0.0.1:9" in said
    mainnet = refusal("serve", "--chain", node, "--network", "cronos-mainnet", "--port", "0")
    assert f"{node} is chain 338, not 25 (cronos-mainnet)" in mainnet
