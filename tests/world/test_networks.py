"""A network is handed on: one that no table knows works everywhere, with its own decimals."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.evm import find
from tests.serve.driver import ORDER, QUOTE
from tests.world.playing import play, quote
from x402sim import (
    BASE_SEPOLIA,
    LiveWorld,
    LocalServer,
    Network,
    Payer,
    PaymentAuth,
    SessionAuth,
    Settings,
    World,
)
from x402sim.backends import Anvil
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import PaymentRequired, decode
from x402sim.protocol.networks import BASE
from x402sim.serving.control.client import ControlClient
from x402sim.serving.listen import Listen
from x402sim.world.chains import ChainBackend
from x402sim.world.running_world import build
from x402sim.world.world import Deployment, Hooks

OWN = Network("my-net", 4711, b"\xab" * 20, "My Dollar", "MYD", "3", 18)
TWO = Network("two-digits", 31337, b"\xcd" * 20, "Cents", "CENT", "1", 2)
BOTH, SHOPS = [BASE_SEPOLIA, BASE], {"service": Settings(), "market": Settings(network="base")}
CHAINS: dict[str, Callable[[], ChainBackend | str]] = {
    "ledger": lambda: "ledger",
    "anvil": lambda: Anvil(find.anvil()),
}


@pytest.mark.clause("2.8/networks")
@pytest.mark.parametrize(
    ("network", "chain"),
    [(OWN, "ledger"), (OWN, "anvil"), (TWO, "ledger"), (BASE_SEPOLIA, "ledger")],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_network_of_the_users_serves_pays_and_documents(network: Network, chain: str) -> None:
    with (
        LocalServer(network=network, chain=CHAINS[chain](), seed=1) as server,
        httpx.Client(base_url=server.url, trust_env=False) as http,
    ):
        pages = ["/openapi.json", "/docs", "/healthz", "/llms.txt"]
        pages += [f"/docs/{name}.md" for name in ("payment-flow", "sessions", "errors")]
        assert {path: http.get(path).status_code for path in pages} == dict.fromkeys(pages, 200)
        asked = http.post("/api/perp/quote", json=ORDER).json()["paymentRequirements"]
        assert asked["network"] == network.name
        assert asked["asset"] == checksum(network.asset)
        assert asked["maxAmountRequired"] == str(10 ** (network.decimals - 2))
        assert server.info.token.decimals == network.decimals
        assert server.info.accounts[0].balance == str(1000 * 10**network.decimals)
        auth = PaymentAuth(server.wallets[0], network=network, max_amount="0.01")
        assert http.post("/api/perp/quote", json=ORDER, auth=auth).status_code == 200
        budget = SessionAuth(server.wallets[1], network=network, deposit="1.00", duration=600)
        assert http.post("/api/perp/quote", json=ORDER, auth=budget).status_code == 200
        chain_id = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
        answer = http.post(server.rpc_url, json=chain_id).json()
        assert int(answer["result"], 16) == network.chain_id


@pytest.mark.parametrize("name", ["replay", "wrong_amount", "session_exhaustion"])
def test_scenarios_hold_on_a_token_of_18_decimals(name: str) -> None:
    run = World(network=OWN).play(name).raise_for_failure()
    assert b'"decimals":18' in run.journal.ndjson()


def test_faucet_and_database_keep_amounts_of_18_decimals(tmp_path: Path) -> None:
    for held in (1000, 2000):
        with LocalServer(network=OWN, file=tmp_path / "world.db") as server:
            auth = PaymentAuth(server.wallets[0], network=OWN)
            assert httpx.post(f"{server.url}{QUOTE}", json=ORDER, auth=auth).status_code == 200
            assert server.balance(auth.wallet.address) < held * 10**18
            asked, faucet = {"address": auth.wallet.address}, f"{server.control_url}/faucet"
            given = httpx.post(faucet, json={**asked, "amount": "1000.01"})
            assert given.json()["balance"] == str((held + 1000) * 10**18)
            refused = httpx.post(faucet, json={**asked, "amount": "9" * 10})
            assert (refused.status_code, "cannot mint" in refused.text) == (400, True)


def test_a_deployment_without_control_is_paid_on_a_network_of_the_users() -> None:
    bare = LocalServer(network=OWN)
    bare._listen = Listen(host="0.0.0.0", port=0)
    with bare:
        key = bare.parts.accounts.funded[0].private_key
        stage = Deployment(bare.url, payer_key=key, allow_mainnet=True)
        play(quote, stage, network=OWN)  # type: ignore[arg-type]
        assert key not in repr(stage)


def test_a_story_pays_at_each_service_on_the_network_that_it_accepts() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        await world.fund(alice.address, "2.00", "base")
        there = alice.at("market")
        for payer in alice, there:
            required = await payer.ask()
            assert required.body["network"] == payer.network.name
            assert (await payer.pay(required)).status == 200
            assert (await payer.ask(payment_id=required.payment_id)).status == 200
        third = alice.at(await world.another_service(network="base", quote_price="0.05"))
        header = third.sign(await third.ask(), steps=1)
        refused = await alice.ask(header=header)
        assert "'eip155:8453', offered was 'eip155:84532'" in refused.reason
        assert (await third.ask(header=header)).status == 200
        assert (await alice.balance(), await there.balance()) == (990_000, 1_940_000)
        await world.advance(600)
        assert (await there.payment(required.payment_id))["block_number"] == 2, "indexed there"
        with pytest.raises(ValueError, match="unknown network 'polygon'"):
            await world.another_service(network="polygon")

    run = play(story, network=BOTH, service=SHOPS)
    paid = run.transfers.query("kind == 'payment'")
    assert list(paid["network"]) == ["base-sepolia", "base", "base"]
    assert set(run.summary["state"]) == {"held"}
    with pytest.raises(ValueError, match="market: unknown network 'base'"):
        World(service=SHOPS)


def test_a_payer_acts_and_its_shop_earns_on_the_chain_of_the_shop() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        await world.fund(alice.address, "2.00", "base")
        there, bob = alice.at("market"), await world.payer("bob")
        assert (await there.transfer(bob.address, "0.50")).mined
        assert await world.balance(bob.address) == 0
        assert await world.balance(bob.address, "base") == 500_000
        header = there.sign(await there.ask())
        assert (await there.cancel(header)).revert_reason is None
        assert "used or canceled" in str((await there.submit(header)).revert_reason)
        required = await there.ask()
        assert (await there.submit(there.sign(required))).revert_reason is None
        assert await world.earned("market") == await world.earned() == required.price_base
        assert await world.earned("service") == 0

    play(story, network=BOTH, service=SHOPS)


@pytest.mark.parametrize("hook", ["setup", "facilitator"])
def test_a_world_that_cannot_be_built_leaves_no_chain_open(
    hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(_: object) -> Any:
        raise ValueError("a hook of the user's own")

    closed = []
    monkeypatch.setattr(LedgerChain, "close", lambda chain: closed.append(chain.chain_id))
    world = World(network=BOTH, hooks=Hooks(**{hook: wrong}))
    with pytest.raises(ValueError, match="of the user's own"):
        build(world)
    assert closed == [BASE_SEPOLIA.chain_id, BASE.chain_id]


def test_a_wallet_signs_for_the_network_that_it_is_given() -> None:
    with LocalServer(network=OWN) as server:
        asked = httpx.post(f"{server.url}/api/perp/quote", json=ORDER).content
    wanted = decode(asked, PaymentRequired).payment_requirements
    wallet = Wallet(b"\x01" * 32)
    assert wallet.payment_header(wanted, 1_800_000_000, network=OWN).startswith("0x")
    with pytest.raises(ValueError, match="for 'my-net', and the token of 'cronos-testnet' would"):
        wallet.payment_header(wanted, 1_800_000_000)


@pytest.mark.parametrize("answer", [b"oops", b"[" * 9_000 + b"]" * 9_000, b'[{"from": 1}]'])
def test_a_world_whose_answers_cannot_be_read_is_no_world(answer: bytes) -> None:
    """What the stories count from is read before they begin."""

    async def ask() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=answer))
        async with httpx.AsyncClient(transport=transport, base_url="http://world") as http:
            told: Any = {"control": ControlClient(http), "network": TWO}
            told["merchants"] = lambda first: {"service": first}
            await LiveWorld.start(SimpleNamespace(parts=None, first="service", **told))

    with pytest.raises(ConnectionError, match="answer to 'who' cannot be read: "):
        asyncio.run(ask())


@pytest.mark.parametrize("back", ["revert", "reset"])
def test_every_service_goes_back_with_the_chain(back: str) -> None:
    """What the second one was paid is with the payer again, so it opens nothing."""

    async def story(world: LiveWorld) -> None:
        payer = await world.payer("a", balance="3.00")
        at_two = payer.at(world.stage.services[1])
        saved = await world.stage.ask("snapshot", {})
        required = await at_two.ask()
        assert (await at_two.pay(required)).status == 200
        assert (await at_two.ask(payment_id=required.payment_id)).status == 200
        await world.stage.ask(back, saved if back == "revert" else {})
        assert (await at_two.ask(payment_id=required.payment_id)).status == 402

    services = {"one": Settings(), "two": Settings()}
    World(seed=2, service=services).play(story).raise_for_failure()
