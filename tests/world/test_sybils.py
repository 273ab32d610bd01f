"""Sybils: a seller who buys from itself is chosen by every reputation, and what it costs whom."""

import pytest

from tests.world.playing import play
from x402sim import LiveWorld, Settings
from x402sim.policies import (
    MatchedPayments,
    ServedPayments,
    ServedShare,
    best_reputation,
    cheapest,
)


@pytest.mark.parametrize("counts", [MatchedPayments(), ServedPayments(), ServedShare()])
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
        shops = await buyer.shops()
        assert (best_reputation(shops), cheapest(shops)) == ("sybil", "honest")

    shops = {
        "honest": Settings(reputation=counts, quote_price="0.005"),
        "sybil": Settings(reputation=counts),
    }
    fees = play(story, service=shops).costs.query("gas > 0")["party"].value_counts()
    assert fees["facilitator"] == 8, "who settles for the puppets pays the gas"
