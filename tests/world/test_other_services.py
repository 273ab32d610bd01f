"""Several services in one world: one merchant, one chain, a database each."""

from typing import Any

import pytest

from tests.world.playing import played
from x402sim import Fault, LiveWorld, Payer


@pytest.mark.parametrize("victim", ["facilitator", "service 2"])
@played()
async def test_a_crash_kills_the_service_that_asks_or_is_asked(
    world: LiveWorld, alice: Payer, victim: Any
) -> None:
    there = alice.at(await world.another_service())
    required = await there.ask()
    path = "/settle" if victim == "facilitator" else "/pay"
    await world.fault(Fault(victim=victim, does="crash after", path=path))
    assert (await there.pay(required)).status is None
    assert world.stage.parts is not None
    assert [each.process.crashes for each in world.stage.parts.services.values()] == [0, 1]


@played()
async def test_a_world_has_at_most_twenty_services(world: LiveWorld) -> None:
    started = [await world.another_service() for _ in range(19)]
    assert started == [f"service {number}" for number in range(2, 21)]
    assert world.services == ("service", *started)
    with pytest.raises(ValueError, match="at most 20"):
        await world.another_service()
    with pytest.raises(RuntimeError, match="unknown service 'facilitator'"):
        await world.crash("facilitator")  # type: ignore[arg-type]
