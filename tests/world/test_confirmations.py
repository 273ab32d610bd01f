"""Confirmations: who waits for them, what a story sees of blocks, a chain that reorganises."""

import asyncio
from itertools import islice
from typing import Any

import pytest

from tests.own_parts import ServeConfirmed
from tests.serve.driver import ORDER, QUOTE
from tests.world.playing import play, played, standard_payment
from x402sim import LiveWorld, Payer, Settings, World, events
from x402sim.backends import Reorgs
from x402sim.policies import PayerPolicy, ServicePolicy
from x402sim.rng import Rng
from x402sim.story.stages import START_S


def serving(policy: Any) -> Settings:
    return Settings(policy=ServicePolicy(serve=policy))


async def waits(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    opened = await alice.ask_session("0.05", 3600)
    await alice.pay(opened)
    statuses = []
    for _ in range(4):
        quoted = await alice.ask(payment_id=paid.payment_id)
        session = await alice.ask_session("0.05", 3600, payment_id=opened.payment_id)
        statuses.append((quoted.status, session.status))
        await world.mine()
    assert statuses == [(402, 402), (402, 402), (200, 402), (200, 201)], statuses


def test_a_service_serves_what_is_confirmed(virtual: str) -> None:
    play(waits, virtual, service=serving(ServeConfirmed(3)))


async def dropped(world: LiveWorld, alice: Payer) -> None:
    paid = await alice.buy()
    await world.mine(2)
    assert (await alice.ask(payment_id=paid.payment_id)).status == 200
    (transfer,) = await world.transfers(alice)
    await world.reorg(3, drop=[transfer.tx_hash])
    assert (await alice.ask(payment_id=paid.payment_id)).status == 402


def test_a_service_that_counts_serves_nothing_whose_transfer_was_dropped() -> None:
    play(dropped, service=serving(ServeConfirmed(2)))


@played("virtual", service=serving(ServeConfirmed(2)))
async def test_in_one_step_too(world: LiveWorld, alice: Payer) -> None:
    required = await alice.ask()
    headers = {"X-PAYMENT": standard_payment(required, alice.sign(required))}
    sent = []
    for _ in range(3):
        sent.append(await alice.send("POST", QUOTE, json=ORDER, headers=headers))
        await world.mine()
    assert [each.status for each in sent] == [409, 409, 200], sent
    assert len(await world.transfers(alice)) == 1


def test_a_payers_policy_sees_the_newest_block() -> None:
    class OncePerBlock:
        """Sends the same authorization again in each new block."""

        async def pay(self, order: Any) -> None:
            await order.pay()
            while not order.is_paid:
                seen = await order.newest_block()
                while (await order.newest_block()).number == seen.number:
                    await order.wait(1)
                await order.pay()

    seen_s: list[float] = []

    async def story(world: LiveWorld) -> None:
        async def on_block() -> None:
            seen_s.append(world.clock.now())

        world.stage.parts.chain.watchers.append(on_block)
        alice = await world.payer("alice", policy=PayerPolicy(retry=OncePerBlock()))
        buying = asyncio.create_task(alice.buy())
        await world.advance(7)
        await world.fund(alice.address, "1.00")
        assert (await buying).status == 200

    steps = World(block_time_s=5).play(story).raise_for_failure().steps
    paid_s = [START_S + each for each in steps.query("path == '/api/pay'")["t_s"]]
    assert len(paid_s) > 2
    for at_s in paid_s[1:]:
        assert any(at_s - 1.1 <= block_s <= at_s for block_s in seen_s), "right after a block"


def test_a_chain_reorganises_by_itself_as_often_and_as_deep_as_drawn() -> None:
    async def idle(world: LiveWorld) -> None:
        await world.advance(5000)

    reorgs = Reorgs(0.2, deeper=0.5)
    run = World(seed=1, block_time_s=5, reorgs=reorgs).play(idle).raise_for_failure()
    depths = [each.depth for each in run.journal.events(events.ChainReorganised)]
    assert 150 < len(depths) < 250, "of 1,000 blocks"
    assert sum(depths) / len(depths) == pytest.approx(2, rel=0.25)
    again = World(seed=1, block_time_s=5, reorgs=reorgs).play(idle)
    assert again.sha256 == run.sha256
    assert "reorgs=Reorgs(probability=0.2, deeper=0.5, drop=1.0)" in run.command
    with pytest.raises(ValueError, match="reorgs: a chain that reorganises has blocks"):
        World(reorgs=reorgs)


def test_reorganisations_are_as_frequent_and_as_deep_as_they_say() -> None:
    depths = list(islice(Reorgs(0.2, deeper=0.5).depths(Rng(1).stream("reorgs")), 20_000))
    for depth in range(1, 5):
        share = sum(each >= depth for each in depths) / len(depths)
        assert share == pytest.approx(0.2 * 0.5 ** (depth - 1), rel=0.1)
