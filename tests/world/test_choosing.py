"""Payers choose among services by price and reputation, and reputation finds out who fails."""

import asyncio

import pytest

from tests.own_parts import ServedShare
from tests.world.playing import play
from x402sim import Fault, LiveWorld, Payer, Settings, events
from x402sim.payer.policies import Choose
from x402sim.policies import (
    ListedService,
    MatchedPayments,
    best_reputation,
    cheapest,
)
from x402sim.population import Buy, Every


def listed(name: str, price_base: int, reputation: int) -> ListedService:
    return ListedService(name=name, price_base=price_base, reputation=reputation, pay_to="0x")


LISTED = [listed("a", 10, 5), listed("b", 20, 9), listed("c", 12, 8), listed("d", 10, 5)]


@pytest.mark.parametrize(
    ("rule", "name"),
    [(cheapest, "a"), (best_reputation, "b")],
)
def test_a_rule_chooses_a_service(rule: Choose, name: str) -> None:
    assert rule(LISTED) == name
    assert rule(list(reversed(LISTED))) == ("d" if name == "a" else name)


def test_a_payer_buys_where_a_rule_sends_it() -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        seen = {each.name: each for each in await alice.services()}
        assert {name: each.price_base for name, each in seen.items()} == {"a": 20_000, "b": 10_000}
        assert (await (await alice.choose(cheapest)).buy()).status == 200
        assert (await alice.at("a").buy()).status == 200
        there = await alice.choose(
            lambda services: max(services, key=lambda it: it.price_base).name
        )
        assert (await there.ask()).price_base == 20_000
        assert (await alice.at("b").fetch()).status == 200
        assert alice.at("b") is alice.at("b")
        with pytest.raises(ValueError, match="chose no listed service: unknown service 'z'"):
            await alice.choose(lambda services: "z")
        await world.fault(Fault(victim="b", does="refuse", path="/agents", times=None))
        assert [each.name for each in await alice.services()] == ["a"]
        assert await world.balance(seen["a"].pay_to) == 20_000

    run = play(story, service={"a": Settings(quote_price="0.02"), "b": Settings()})
    assert [each.actor for each in run.journal.events(events.PaymentSettled)] == ["b", "a", "b"]


def test_a_population_buys_by_a_rule() -> None:
    async def story(world: LiveWorld) -> None:
        buying = Buy(at=cheapest)
        await asyncio.gather(
            world.population(3, arrivals=Every(10), behaviour=buying, name="thrifty"),
            world.population(3, arrivals=Every(10), behaviour=Buy(at="dear"), name="loyal"),
        )

    run = play(story, service={"dear": Settings(quote_price="0.09"), "cheap": Settings()})
    sold = run.journal.events(events.PaymentSettled)
    assert sorted(each.actor for each in sold) == ["cheap"] * 3 + ["dear"] * 3


@pytest.mark.parametrize("counts", [MatchedPayments(), ServedShare()])
def test_a_seller_who_buys_from_itself_is_chosen_by_reputation(counts) -> None:
    async def story(world: LiveWorld) -> None:
        buyer = await world.payer("buyer", balance="1.00")
        for _ in range(2):
            assert (await buyer.at("honest").fetch()).status == 200
        for number in range(3):
            puppet = await world.payer(f"puppet {number}", balance="0.10")
            for _ in range(2):
                assert (await puppet.at("sybil").fetch()).status == 200
        assert await world.earned("sybil") == 6 * 10_000, "its own money, moved in a circle"
        for name in world.services:
            await world.run_indexer(name)
        services = await buyer.services()
        assert (best_reputation(services), cheapest(services)) == ("sybil", "honest")

    services = {
        "honest": Settings(reputation=counts, quote_price="0.005"),
        "sybil": Settings(reputation=counts),
    }
    fees = play(story, service=services).costs.query("gas > 0")["party"].value_counts()
    assert fees["facilitator"] == 8, "who settles for the puppets pays the gas"
