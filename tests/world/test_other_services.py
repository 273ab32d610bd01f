"""Several services in one world: one merchant, one chain, a database each."""

import pytest

from x402sim import Fault, LiveWorld, World, events
from x402sim.events import RequestSent


@pytest.mark.parametrize("on", ["in-process", "tcp"])
def test_another_service_sells_to_the_same_merchant(on: str) -> None:
    async def story(world: LiveWorld) -> None:
        other = await world.another_service()
        assert other == "service 2"
        alice = await world.payer("alice", balance="1.00")
        there = alice.at(other)
        required = await there.ask()
        assert (await there.pay(required)).status == 200
        assert (await there.ask(payment_id=required.payment_id)).status == 200
        assert (await alice.ask(payment_id=required.payment_id)).status == 402
        assert (await alice.buy()).status == 200
        assert await world.earned() == 2 * required.price_base
        assert (await alice.pay(required)).error != "Payment already settled"
        assert (await world.run_indexer(other))["matched"] == 1

    run = World(on=on).play(story)
    assert run.outcome == "passed", run.reason
    settled = [
        entry.event.actor for entry in run.journal if isinstance(entry.event, events.PaymentSettled)
    ]
    assert settled == ["service 2", "service"]
    asked = [entry.event for entry in run.journal if isinstance(entry.event, RequestSent)]
    assert {(each.actor, each.to) for each in asked} >= {
        ("alice", "service"),
        ("alice", "service 2"),
        ("service 2", "facilitator"),
        ("service", "facilitator"),
    }


@pytest.mark.parametrize("victim", ["facilitator", "service 2"])
def test_a_crash_kills_the_service_that_asks_or_is_asked(victim: str) -> None:
    seen = []

    async def story(world: LiveWorld) -> None:
        other = await world.another_service()
        alice = await world.payer("alice", balance="1.00")
        required = await alice.at(other).ask()
        path = "/settle" if victim == "facilitator" else "/pay"
        await world.fault(Fault(victim=victim, does="crash after", path=path))  # type: ignore[arg-type]
        assert (await alice.at(other).pay(required)).status is None
        parts = world.stage.parts
        assert parts is not None
        seen.extend(each.process.crashes for each in parts.services.values())

    assert World().play(story).outcome == "passed"
    assert seen == [0, 1]


def test_a_world_has_at_most_twenty_services() -> None:
    async def story(world: LiveWorld) -> None:
        started = [await world.another_service() for _ in range(19)]
        assert started == [f"service {number}" for number in range(2, 21)]
        assert world.services == ("service", *started)
        with pytest.raises(ValueError, match="at most 20"):
            await world.another_service()
        with pytest.raises(ValueError, match="another_service"):
            await world.crash("facilitator")  # type: ignore[arg-type]

    run = World().play(story)
    assert run.outcome == "passed", run.reason
