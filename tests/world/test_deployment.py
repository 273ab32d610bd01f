"""A story at a URL takes network and abilities from the world that it is played in."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from tests.world.playing import play
from x402sim import MAINNET, TESTNET, LiveWorld, LocalServer, Network, World
from x402sim.protocol.crypto import Address
from x402sim.world.control.client import ControlClient
from x402sim.world.story.start_state import StartState

OURS = replace(TESTNET, name="ours", chain_id=4711, asset=Address(b"\xab" * 20), token_name="Ours")


@pytest.mark.parametrize("network", [MAINNET, OURS], ids=lambda each: each.name)
def test_a_payer_signs_for_the_network_of_the_world(network: Network) -> None:
    async def story(world: LiveWorld) -> None:
        assert world.network == network
        alice = await world.payer("alice", balance="1.00")
        assert (await alice.buy()).status == 200

    with LocalServer(seed=1, network=network) as server:
        run = play(story, server.url)
    assert run.journal.ndjson().count(network.name.encode()) == 1


def test_another_network_than_the_worlds_is_refused() -> None:
    with (
        LocalServer(seed=1) as server,
        pytest.raises(ValueError, match="is on cronos-testnet, not on cronos-mainnet; leave"),
    ):
        World(on=server.url, network=MAINNET).play("replay")


@pytest.mark.parametrize("answer", [b"oops", b"[" * 9_000 + b"]" * 9_000, b'[{"from": 1}]'])
def test_a_world_whose_answers_cannot_be_read_is_no_world(answer: bytes) -> None:
    """What the stories count from is read before they begin."""

    async def ask() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=answer))
        async with httpx.AsyncClient(transport=transport, base_url="http://world") as http:
            await StartState.seen_by(ControlClient(http))

    with pytest.raises(ConnectionError, match="answer to 'who' cannot be read: "):
        asyncio.run(ask())
