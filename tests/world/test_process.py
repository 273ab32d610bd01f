"""A crashed service takes time to restart: nothing makes it crash twice in one instant."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.world.playing import play, played
from x402sim import Fault, LiveWorld
from x402sim.story.payer import Payer
from x402sim.world.process import RESTART_S

SETTLE = {"victim": "facilitator", "path": "/settle"}
LOST = {"ConnectError", "RemoteProtocolError", "ReadError"}
"""How a refused connection looks: over TCP like a lost request."""


async def pending_payment(world: LiveWorld) -> Payer:
    """Leave one payment pending, which each start of the service asks the chain about."""
    alice = await world.payer("alice", balance="1.00")
    await world.fault(Fault(**SETTLE, does="crash after"))
    assert (await alice.buy()).status is None
    return alice


async def owed_refund(world: LiveWorld) -> Payer:
    """Leave a session's refund due, which each start of the service tries to pay."""
    alice = await world.payer("alice", balance="1.00")
    await alice.open_session("0.05", 60)
    await world.fault(Fault(**SETTLE, does="refuse", times=2))
    await world.advance(65)
    return alice


@pytest.mark.parametrize("owed", [pending_payment, owed_refund])
def test_a_crash_at_each_start_does_not_stop_time(
    virtual: str, owed: Callable[[LiveWorld], Awaitable[Payer]]
) -> None:
    """The defect made 27,000 events in one virtual second, without end."""

    async def story(world: LiveWorld) -> None:
        alice = await owed(world)
        process, began_s = world.stage.parts.process, world.clock.now()
        before = process.crashes
        await world.fault(Fault(victim="rpc", does="crash before", times=None))
        await world.advance(60)
        assert world.clock.now() == pytest.approx(began_s + 60)
        assert 30 / RESTART_S <= process.crashes - before <= 60 / RESTART_S
        await world.heal()
        await world.advance(60)
        assert (await alice.buy()).status == 200

    assert len(play(story, virtual).journal) < 1000


@played("virtual")
async def test_connections_are_refused_until_it_runs_again(world: LiveWorld, alice: Payer) -> None:
    paid = await alice.buy()
    await world.fault(Fault(victim="service", does="crash before"))
    assert (await alice.ask()).status is None
    assert len(world.stage.parts.service.entitlements) == 0
    began_s = world.clock.now()
    down = await alice.ask()
    assert (down.status, down.error in LOST) == (None, True)
    await world.clock.sleep(RESTART_S - 0.01)
    assert (await alice.ask()).status is None
    await world.clock.sleep(0.01)
    assert world.clock.now() == pytest.approx(began_s + RESTART_S)
    assert (await alice.ask(payment_id=paid.payment_id)).status == 200


@played("virtual")
async def test_a_crash_during_the_restart_begins_it_anew(world: LiveWorld) -> None:
    alice = await world.payer("alice")
    await world.fault(Fault(victim="service", does="crash before", times=2))
    assert (await alice.ask()).status is None
    await world.clock.sleep(RESTART_S * 0.75)
    assert (await alice.ask()).status is None
    await world.clock.sleep(RESTART_S * 0.75)
    assert (await alice.ask()).status is None, "1.5 s after the first, 0.75 after the second"
    await world.clock.sleep(RESTART_S * 0.25)
    assert (await alice.ask()).status == 402


@played("virtual")
async def test_background_work_waits_for_the_restart(world: LiveWorld) -> None:
    await pending_payment(world)
    crashing = asyncio.create_task(world.crash())
    await world.clock.sleep(RESTART_S / 2)
    assert world.stage.parts.service.store.payments.unresolved() == 1
    indexing = asyncio.create_task(world.run_indexer())
    await world.clock.sleep(RESTART_S / 4)
    assert not indexing.done(), "the indexer runs in the service"
    await crashing
    assert (await indexing)["asked"] in (0, 1)
    await world.clock.sleep(0.001)
    assert world.stage.parts.service.store.payments.unresolved() == 0


@played("virtual")
async def test_a_crash_ends_an_indexer_run_that_was_asked_for(
    world: LiveWorld, alice: Payer
) -> None:
    """The defect: the run of the dead process went on beside that of the next one."""

    assert (await alice.buy()).status == 200
    await world.fault(Fault(victim="explorer", does="delay answer", seconds=10))
    indexing = asyncio.create_task(world.run_indexer())
    await world.clock.sleep(5)
    await world.crash()
    began_s = world.clock.now()
    assert (await indexing)["asked"] == 0
    assert world.clock.now() == pytest.approx(began_s, abs=0.1)
    assert (await world.run_indexer())["matched"] == 1


@pytest.mark.parametrize(
    "does", ["lose answer", "truncate", "shorten", "duplicate", "delay answer"]
)
@played("virtual")
async def test_a_fault_in_front_of_a_service_that_is_down(
    world: LiveWorld, alice: Payer, does: Any
) -> None:
    """The fault strikes a refused connection, of which there is no answer to delay or halve."""
    await world.fault(Fault(victim="service", does="crash before"))
    wanted = {"seconds": 0.1} if does.startswith("delay") else {}
    await world.fault(Fault(victim="service", does=does, path="/quote", **wanted))
    assert (await alice.ask()).status is None
    down = await alice.ask()
    assert (down.status, down.error in LOST) == (None, True)


@played()
async def test_a_request_that_is_cancelled_as_the_service_crashes_ends(world: LiveWorld) -> None:
    """The crash took the other cancellation for its own, and the task went on."""
    process, clock = world.stage.parts.process, world.clock
    task = asyncio.create_task(process.do(lambda _: clock.sleep(10)))
    await clock.sleep(1)
    process.crash()
    process.crash()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await process.do(lambda _: clock.sleep(1)) is None
