"""Several services and facilitators in one world, each with its own settings."""

from typing import Any

import pytest

from tests.world.playing import play, played
from x402sim import Fault, LiveWorld, Payer, Settings, World, events
from x402sim.backends import ExplorerSettings, FacilitatorSettings

SHOPS = {
    "dear": Settings(quote_price="0.05"),
    "cheap": Settings(quote_price="0.02", facilitator="slow"),
}
DESKS = {"fast": FacilitatorSettings(), "slow": FacilitatorSettings()}


def test_each_service_has_its_price_its_merchant_and_its_database(virtual: str) -> None:
    async def story(world: LiveWorld) -> None:
        assert world.services == ("dear", "cheap")
        alice = await world.payer("alice", balance="1.00")
        dear, cheap = alice, alice.at("cheap")
        first, second = await dear.ask(), await cheap.ask()
        assert (first.price_base, second.price_base) == (50_000, 20_000)
        assert first.requirements["payTo"] != second.requirements["payTo"]
        assert (await dear.pay(first)).status == (await cheap.pay(second)).status == 200
        assert (await cheap.ask(payment_id=second.payment_id)).status == 200
        assert (await dear.ask(payment_id=second.payment_id)).status == 402
        assert await world.earned("dear") == await world.earned("service") == 50_000
        assert (await world.run_indexer("cheap"))["matched"] == 1
        session = await cheap.open_session("0.10", duration=60)
        assert (await cheap.ask(session_id=session.body["sessionId"])).status == 200
        await world.advance(120)
        assert (await cheap.session(session.body["sessionId"]))["refundTxHash"]

    run = play(story, virtual, service=SHOPS, facilitator=DESKS)
    asked = run.journal.events(events.RequestSent)
    settled = {(each.actor, each.to) for each in asked if each.path.endswith("/settle")}
    assert settled == {("dear", "fast"), ("cheap", "slow")}
    senders = {each.sender for each in run.journal.events(events.TransactionMined)}
    assert len(senders) == 3, "the token's owner, and each facilitator"


@played(service=SHOPS, facilitator=DESKS, latency={"dear": 0.05, "cheap": 0.75})
async def test_faults_crashes_clocks_and_latency_take_their_names(
    world: LiveWorld, alice: Payer
) -> None:
    cheap = alice.at("cheap")
    await world.fault(Fault(victim="slow", does="lose answer", path="/settle"))
    before_s = world.clock.now()
    assert (await alice.buy()).status == 200
    assert world.clock.now() - before_s == pytest.approx(2 * 0.1)
    await cheap.ask()
    assert world.clock.now() - before_s == pytest.approx(2 * 0.1 + 1.5)
    await world.crash("cheap")
    await world.skew("cheap", 100)
    for payer, ahead_s in (alice, 0), (cheap, 100):
        opened = (await payer.open_session("0.10", duration=60)).body["expiresAt"] / 1000
        assert opened == pytest.approx(world.clock.now() + 60 + ahead_s, abs=5)
    with pytest.raises(ValueError, match="unknown service 'chaep'; did you mean 'cheap'"):
        await world.earned("chaep")
    with pytest.raises(ValueError, match="there is a part named 'cheap'"):
        await world.payer("cheap")
    assert [each.crashes for each in world.stage.parts.services.values()] == [0, 1]


def test_the_order_of_the_services_does_not_change_what_one_draws() -> None:
    """What one service draws depends on its name and the seed, not on who else is there."""

    async def story(world: LiveWorld) -> None:
        await world.advance(900)

    def indexed_ms(*names: str) -> list[int]:
        run = World(service={name: Settings() for name in names}).play(story)
        ran = run.journal.of(events.IndexerRan)
        return [each.at_ms for each in ran if each.event.actor == "b"]

    assert indexed_ms("a", "b") == indexed_ms("b") == indexed_ms("c", "b", "a") != []


def test_a_facilitator_that_does_not_simulate_pays_for_refusals() -> None:
    async def story(world: LiveWorld) -> None:
        poor = await world.payer("poor")
        assert (await poor.buy()).status != 200

    def gas(simulates: bool) -> int:
        run = play(story, facilitator=FacilitatorSettings(simulates=simulates))
        mined = run.journal.events(events.TransactionMined)
        return sum(each.gas for each in mined if each.revert_reason is not None)

    assert gas(True) == 0
    assert gas(False) > 20_000


@played(explorer=ExplorerSettings(interval_s=600))
async def test_an_explorer_looks_at_the_chain_at_intervals(world: LiveWorld, alice: Payer) -> None:
    await world.advance(10)
    payment_id = (await alice.buy()).payment_id
    for seconds, is_seen in (90, False), (100, False), (500, True):
        await world.advance(seconds)
        await world.run_indexer()
        record = await alice.payment(payment_id)
        assert (record["block_number"] is not None) == is_seen


# --- services of one merchant, started in a story ------------------------------------------


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
    assert [each.crashes for each in world.stage.parts.services.values()] == [0, 1]


@played()
async def test_a_world_has_at_most_twenty_services(world: LiveWorld) -> None:
    started = [await world.another_service() for _ in range(19)]
    assert started == [f"service {number}" for number in range(2, 21)]
    assert world.services == ("service", *started)
    with pytest.raises(ValueError, match="at most 20"):
        await world.another_service()
    with pytest.raises(RuntimeError, match="unknown service 'facilitator'"):
        await world.crash("facilitator")  # type: ignore[arg-type]
