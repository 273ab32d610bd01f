"""A whole world on a real chain: the same stories, told the same, event by event."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from eth_account import Account

from tests.chain.asking import Http, Node
from tests.evm.helpers import refusal
from tests.serve.driver import ORDER
from tests.serve.sockets import talking
from x402sim import Fault, LiveWorld, LocalServer, PaymentAuth, World
from x402sim.backends import Anvil, Observed
from x402sim.chain import contract
from x402sim.chain.base import ChainError
from x402sim.chain.node.anvil import VARIABLE
from x402sim.events import TransactionMined, name_of
from x402sim.journal import Journal
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.report.reading import checks_of
from x402sim.report.run import Run
from x402sim.world.running_world import build
from x402sim.world.scenario import Scenario, shipped

FIAT_TOKEN_ONLY = {"frozen_token", "token_rules", "sponsored_permit"}
HASH = re.compile("0x[0-9a-f]{64}")


@pytest.fixture(autouse=True)
def anvil_at_hand(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(program))


def journal_lines(run: Run) -> list[str]:
    """Return a journal as lines that are the same for any chain and token.

    Hashes are numbered in the order they appear. The gas is left out, and a revert reason is only
    whether there is one.
    """
    numbers: dict[str, int] = {}
    lines = []
    for entry in run.journal:
        fields = msgspec.to_builtins(entry.event)
        data = {name: value for name, value in fields.items() if name not in ("chain", "gas")}
        if isinstance(entry.event, TransactionMined):
            data["revert_reason"] = entry.event.revert_reason is not None
        line = json.dumps([entry.seq, entry.at_ms, name_of(entry.event), data])
        lines.append(HASH.sub(lambda found: f"#{numbers.setdefault(found[0], len(numbers))}", line))
    return lines


# --- the stories ---------------------------------------------------------------------

EVERY_DAY = {
    *("parallel_authorization", "used_versus_cancelled", "drained_wallet", "reorg_after_indexing"),
    *(
        "stuck_transaction",
        "replaced_transaction",
        "dropped_before_indexing",
        "several_services",
        "submitted_by_others",
        "metered_answer",
    ),
    *FIAT_TOKEN_ONLY,
}
"""Scenarios that together use every control of the chain and every outcome of a payment; the others
repeat them."""


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            each, id=each.name, marks=[] if each.name in EVERY_DAY else [pytest.mark.campaign]
        )
        for each in shipped()
    ],
)
def test_a_scenario_is_the_same_on_anvil_event_by_event(scenario: Scenario):
    run = World(chain="anvil").play(scenario)
    if scenario.name in FIAT_TOKEN_ONLY:
        assert run.outcome == "skipped"
        assert run.reason.startswith("in-process on anvil does not offer Circle's token")
        return
    assert run.outcome == "passed", run.reason
    assert journal_lines(run) == journal_lines(World(chain="ledger").play(scenario))


def test_blocks_on_a_pace_of_their_own():
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        paid = await alice.buy()
        world.expect(paid.status, 200, "4.1/receipt")

    runs = [World(chain=chain, block_time_s=5).play(story) for chain in ("anvil", "ledger")]
    assert [run.outcome for run in runs] == ["passed", "passed"]
    assert journal_lines(runs[0]) == journal_lines(runs[1])


@pytest.mark.parametrize(
    ("chain", "by"),
    [("anvil", "/_sim/mining"), ("anvil", "evm_setAutomine"), ("ledger", "/_sim/mining")],
)
def test_while_mining_is_off_no_block_comes_by_itself(chain: str, by: str):
    """Also if a client has told the node itself."""

    async def story(world: LiveWorld) -> None:
        parts = world.stage.parts
        blocks, pause_s = parts.chain, 3 * parts.options.heartbeat_s
        alice = await world.payer("alice", balance="1.00")

        async def switch(on: bool) -> None:
            if by == "/_sim/mining":
                await world.mining(automine=on)
                return
            asked = {"jsonrpc": "2.0", "id": 1, "method": by, "params": [on]}
            transport = httpx.ASGITransport(parts.rpc_app)
            async with httpx.AsyncClient(transport=transport, base_url="http://rpc") as node:
                assert "result" in (await node.post("/", json=asked)).json()

        await switch(False)
        paying = asyncio.create_task(alice.buy())
        await world.clock.sleep(1)
        height = await blocks.height()
        await world.clock.sleep(pause_s)
        assert (await blocks.height(), await blocks.waiting()) == (height, 1)
        assert await world.transfers(alice) == []
        await switch(True)
        await paying
        assert len(await world.transfers(alice)) == 1
        mined = await blocks.height()
        await world.clock.sleep(pause_s)
        assert await blocks.height() > mined > height, "and then the heartbeat goes on"

    run = World(chain=chain).play(story)
    assert run.outcome == "passed", run.reason


def test_an_invariant_sees_money_out_of_nothing():
    """The token's own count is asked, so what no event tells of is seen all the same."""

    async def story(world: LiveWorld) -> None:
        chain = world.stage.parts.chain
        slot = f"0x{contract.artifact().storage['_totalSupply']:064x}"
        await chain.node.ask("anvil_setStorageAt", checksum(chain.token), slot, "0x" + "11" * 32)
        await (await world.payer("alice", balance="1.00")).buy()

    run = World(chain="anvil").play(story)
    assert {c.clause for c in checks_of(run.journal) if not c.ok} == {"invariant/value-conserved"}


# --- the mock server -----------------------------------------------------------------


@pytest.fixture(scope="module")
def server(program: Path) -> Iterator[LocalServer]:
    with LocalServer(chain=Anvil(program), seed=1) as running:
        yield running


def ask(server: LocalServer, method: str, *params: Any) -> Any:
    return Node(server.rpc_url).ask(method, *params)


def control(server: LocalServer, path: str, body: Any = None) -> Any:
    url = f"{server.control_url}/{path}"
    return (httpx.get(url) if body is None else httpx.post(url, json=body)).json()


def pay(server: LocalServer, account: int) -> PaymentAuth:
    payer = PaymentAuth(server.wallets[account], max_amount="0.05", clock=server.clock)
    answer = httpx.post(server.url + "/api/perp/quote", json=ORDER, auth=payer)
    assert answer.status_code == 200, answer.text
    return payer


def test_a_websocket_tells_of_the_nodes_blocks(server: LocalServer):
    with talking(server.rpc_url) as to, LocalServer(seed=1) as ours, talking(ours.rpc_url) as other:
        kinds = ["newHeads", "newPendingTransactions", "logs"]
        names = {to.ask("eth_subscribe", kind)["result"]: kind for kind in kinds}
        head = other.ask("eth_subscribe", "newHeads")["result"]
        receipt = pay(server, 4).receipts[0]
        sent = [to.next() for _ in range(4)]
        assert sorted(names[name] for name, _ in sent) == sorted([*kinds, "logs"])
        by_kind = {names[name]: it for name, it in sent}
        assert by_kind["newPendingTransactions"] == by_kind["logs"]["transactionHash"]
        assert by_kind["logs"]["transactionHash"] == receipt.tx_hash
        assert by_kind["logs"]["blockHash"] == by_kind["newHeads"]["hash"]
        other.ask("evm_mine")
        name, seen = other.next()
        assert (name, seen.keys()) == (head, by_kind["newHeads"].keys())
        assert to.ask("eth_unsubscribe", next(iter(names)))["result"] is True
        assert to.ask("eth_subscribe", "nothing")["error"]["message"].startswith("expected one of")
        assert to.ask("eth_getProof", server.wallets[0].address, [], "latest")["result"]


def test_who_waits_for_a_receipt_keeps_nobody_else_waiting(server: LocalServer):
    """Anvil would answer nothing else meanwhile, and not mine."""
    fields = {"to": server.wallets[1].address, "value": 1, "gas": 21_000, "nonce": 0}
    prices = {"gasPrice": 10**13, "chainId": server.network.chain_id}
    raw = Account.sign_transaction(fields | prices, server.wallets[5].private_key).raw_transaction
    control(server, "mining", {"automine": False})
    try:
        late = ask(server, "eth_sendRawTransactionSync", to_hex(bytes(raw)), 300)["error"]
        assert late["code"] == 4
        with talking(server.rpc_url) as to:
            number = to.send("eth_sendRawTransactionSync", to_hex(bytes(raw)))
            assert "already imported" in to.read()["error"]["message"], number
    finally:
        control(server, "mining", {"automine": True})
    assert ask(server, "eth_getTransactionReceipt", late["data"])["result"]["status"] == "0x1"


def test_a_payment_is_on_the_nodes_own_chain(server: LocalServer):
    assert server.info.chain == "anvil"
    assert ask(server, "web3_clientVersion")["result"].startswith("anvil/")
    receipt = pay(server, 0).receipts[0]
    found = ask(server, "eth_getTransactionReceipt", receipt.tx_hash)["result"]
    assert (found["status"], found["to"]) == ("0x1", server.info.asset.lower())
    assert ask(server, "debug_traceTransaction", receipt.tx_hash)["result"]["gas"] > 50_000


def test_transactions_sent_to_the_node_are_seen_with_the_worlds_time(server: LocalServer):
    control(server, "clock/advance", {"seconds": 86_400})
    (sender, other) = (server.wallets[n].address for n in (1, 2))
    since = control(server, "who")["journal"]
    call = {"from": sender, "to": other, "value": "0x1"}
    tx_hash = ask(server, "eth_sendTransaction", call)["result"]
    block = ask(server, "eth_getBlockByNumber", "latest", False)["result"]
    assert block["transactions"] == [tx_hash]
    assert abs(int(block["timestamp"], 16) - server.clock.now()) < 10
    answer = httpx.get(f"{server.control_url}/journal", params={"since": since})
    happened = [entry.event for entry in Journal.load(answer.content)]
    assert [e.tx_hash for e in happened if isinstance(e, TransactionMined)] == [tx_hash]


def test_batches_and_malformed_requests_get_the_nodes_own_answers(server: LocalServer):
    several = [{"jsonrpc": "2.0", "id": n, "method": "eth_chainId", "params": []} for n in (1, 2)]
    answers = httpx.post(server.rpc_url, json=several).json()
    assert [(a["id"], a["result"]) for a in answers] == [(1, "0x152"), (2, "0x152")]
    assert ask(server, "eth_mars")["error"]["code"] == -32601
    broken = httpx.post(server.rpc_url, content=b"{")
    assert broken.json()["error"]["code"] == -32700
    assert "POST" in httpx.get(server.rpc_url).text


def signed_coins(key: str) -> str:
    asked = {"to": "0x" + "33" * 20, "value": 7, "gas": 21_000, "gasPrice": 10**13, "nonce": 0}
    return to_hex(Account.sign_transaction({**asked, "chainId": 338}, key).raw_transaction)


def test_read_access_gives_read_methods_only():
    """On a host for everybody the node, which can be told anything, is not told anything."""
    parts = build(World(seed=1, chain=Anvil(), unlocked=False))
    first, second = (wallet for wallet in parts.accounts.funded[:2])

    def post(body: Any) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Http(parts.rpc_app).post("/", content=content).json()

    def call(method: str, *params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    twice = b'{"jsonrpc":"2.0","id":1,"method":"%b","method":"%b"}'
    try:
        assert post(call("eth_chainId"))["result"] == "0x152"
        calls = [
            call("anvil_setBalance", first.address, "0x0"),
            call("eth_sendTransaction", {"from": first.address}),
            call("evm_snapshot"),
        ]
        told_twice = twice % (b"eth_chainId", b"evm_mine")
        for body in (*calls, [call("eth_chainId"), *calls], told_twice):
            error = post(body)["error"]
            assert error["code"] == -32601
            text = "is not offered here, only reading and sending: debug_trace"
            assert text in error["message"]
        back = twice % (b"evm_mine", b"eth_chainId")
        assert post(back) == {"jsonrpc": "2.0", "id": 1, "result": "0x152"}
        assert post(call("eth_blockNumber"))["result"] == "0x0"
        sent = post(call("eth_sendRawTransaction", signed_coins(second.private_key)))
        assert len(sent["result"]) == 66, "what is signed may be sent"
        assert "result" in post(call("eth_newBlockFilter"))
    finally:
        parts.service.store.close()
        parts.chain.close()


# --- what cannot be had --------------------------------------------------------------


def test_without_anvil_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    for command in (["run", "replay"], ["serve", "--port", "0"]):
        said = refusal(*command, "--chain", "anvil")
        assert "anvil was not found: npm install -g @foundry-rs/anvil" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["run", "replay", "--chain", "hardhat"],
            "unknown chain 'hardhat'. Possible: ledger, anvil, http://HOST:PORT",
        ),
        (["serve", "--chain", "anvil", "--db", "x.db"], "--db is not supported with anvil"),
        (["serve", "--chain", "anvil", "--deploy"], "(`--chain URL`): anvil has its own"),
        (["run", "replay", "--token", "0x12"], "(`--chain URL`): ledger has its own"),
        (["run", "replay", "--chain", "http://127.0.0.1:9"], "X402SIM_CHAIN_KEYS must hold"),
    ],
)
def test_conflicting_options_are_refused(
    options: list[str], said: str, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("X402SIM_CHAIN_KEYS", raising=False)
    free = ["--port", "0"] if options[0] == "serve" else []
    assert said in refusal(*options, *free)


def test_the_rules_of_a_real_token_stay():
    with pytest.raises(ChainError, match="rules of a real token cannot be left out: transfer"):
        World(chain="anvil", without=(("transfer", "5/nonce-once"),)).play("replay")


@pytest.mark.parametrize("block_time_s", [None, 12.0])
def test_what_a_facilitator_sends_over_its_link_is_mined_once(block_time_s: float | None) -> None:
    """The node signs these transactions, and mines them at the world's time, as its own."""
    lost = {"victim": "rpc", "caller": "facilitator", "contains": "eth_sendRawTransaction"}

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for count, does in enumerate(("lose answer", "lose request", "truncate"), 1):
            await world.fault(Fault(does=does, **lost))
            assert (await alice.buy()).status == 200
            assert len(await world.transfers(alice)) == 2 * count - 1
            await world.heal()
            assert (await alice.buy()).status == 200, "sent without the link, after the same nonces"

    World(chain="anvil", block_time_s=block_time_s).play(story).raise_for_failure()


def test_the_mempool_of_a_real_chain_is_observed() -> None:
    seen: list[Observed] = []

    async def story(world: LiveWorld) -> None:
        mallory = await world.payer("mallory")

        async def submit(found: Observed) -> None:
            seen.append(found)
            if found.payment_header:
                await mallory.submit(found.payment_header)

        alice = await world.payer("alice", balance="1.00")
        world.observe(submit, at="mempool")
        await alice.fetch()
        await world.advance(6)
        assert len(await world.transfers(alice)) == 1

    World(seed=1, chain="anvil", block_time_s=2).play(story).raise_for_failure()
    calls = [each.transaction.call for each in seen if each.transaction]
    assert calls == ["transferWithAuthorization"], "and not what mallory sends herself"
