"""A story at a URL takes network and abilities from the world that it is played in."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from tests.world.test_networks import OWN
from x402sim import MAINNET, TESTNET, LiveWorld, LocalServer, Network, Payer, World
from x402sim.backends import Deployment
from x402sim.protocol.crypto import parse_address
from x402sim.world.control.client import ControlClient
from x402sim.world.server.listen import Listen
from x402sim.world.story.start_state import StartState


async def buys(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    world.expect(paid.status, 200, "4.1/receipt")


@pytest.mark.parametrize("network", [TESTNET, MAINNET], ids=lambda each: each.name)
def test_a_payer_signs_for_the_network_of_the_world(network) -> None:
    with LocalServer(seed=1, network=network) as server:
        run = World(on=server.url).play(buys)
    assert (run.outcome, run.reason) == ("passed", "")
    assert run.journal.ndjson().count(network.name.encode()) == 1


def test_scenarios_hold_against_mainnet_too() -> None:
    with LocalServer(seed=1, network="cronos-mainnet") as server:
        for name in ("replay", "wrong_amount", "lost_answer", "foreign_header"):
            run = World(on=server.url).play(name)
            assert (run.outcome, run.reason) == ("passed", ""), name


def test_a_custom_network_is_adopted_too() -> None:
    ours = replace(
        TESTNET, name="ours", chain_id=4711, token_version="7",
        asset=parse_address("0x" + "ab" * 20), token_name="Ours", decimals=6,
    )  # fmt: skip
    with LocalServer(seed=1, network=ours) as server:
        seen = []

        async def story(world: LiveWorld) -> None:
            seen.append(world.network)
            await buys(world)

        assert World(on=server.url).play(story).outcome == "passed"
    assert seen == [ours]


def test_another_network_than_the_worlds_is_refused() -> None:
    with (
        LocalServer(seed=1) as server,
        pytest.raises(ValueError, match="is on cronos-testnet, not on cronos-mainnet; leave"),
    ):
        World(on=server.url, network=MAINNET).play(buys)


@pytest.mark.parametrize("network", [MAINNET, OWN], ids=lambda each: each.name)
def test_without_a_control_api_the_network_is_the_one_given(network: Network) -> None:
    bare = LocalServer(network=network)
    bare._listen = Listen(host="0.0.0.0", port=0)
    with bare:
        payer = bare.parts.accounts[0].private_key
        stage = Deployment(bare.url, payer_key=payer)
        run = World(on=stage, network=network).play(buys)
        assert (run.outcome, run.reason) == ("passed", "")
        assert payer not in repr(stage)


def test_a_story_gets_payers_and_answers() -> None:
    async def story(world: LiveWorld) -> None:
        assert isinstance(await world.payer("alice"), Payer)

    assert World().play(story).outcome == "passed"


@pytest.mark.parametrize("answer", [b"oops", b"[" * 9_000 + b"]" * 9_000, b'[{"from": 1}]'])
def test_a_world_whose_answers_cannot_be_read_is_no_world(answer: bytes) -> None:
    """What the stories count from is read before they begin."""

    async def ask() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=answer))
        async with httpx.AsyncClient(transport=transport, base_url="http://world") as http:
            await StartState.seen_by(ControlClient(http))

    with pytest.raises(ConnectionError, match="answer to 'who' cannot be read: "):
        asyncio.run(ask())
