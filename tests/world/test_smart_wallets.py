"""A payer whose wallet is a contract: the service, the facilitator and the token take its word."""

import pytest

from x402sim import LiveWorld, World
from x402sim.report.run import Run
from x402sim.report.summary import checks_of


async def story(world: LiveWorld) -> None:
    """Alice's smart wallet pays; a header that Mallory signs for it does not."""
    alice = await world.payer("alice", balance="1.00", wallet="smart")
    mallory = await world.payer("mallory", balance="1.00")
    paid = await alice.buy()
    world.expect(paid.status, 200, "4.1/receipt")
    required = await alice.ask()
    forged = await alice.pay(required, alice.sign(required, by=mallory.wallet))
    world.expect(forged.error, "Invalid signature", "7/invalid-signature")
    good = alice.sign(required)
    settled = await alice.pay(required, good)
    world.expect(settled.status, 200, "4.1/receipt")
    again = await alice.pay(await alice.ask(), good)
    world.expect(again.status == 200, False, "5/nonce-once")
    world.expect(len(await world.transfers(alice)), 2, "5/nonce-once")
    world.expect(len(await world.transfers(mallory)), 0, "5/signature-proves")


def held(run: Run) -> None:
    assert run.outcome == "passed", run.reason
    assert len(checks_of(run.journal)) >= 6


@pytest.mark.parametrize("on", ["in-process", "tcp"])
def test_a_smart_wallet_pays_as_any_other(on: str) -> None:
    held(World(on=on).play(story))


def test_the_same_story_gives_the_same_journal() -> None:
    assert World(seed=4).play(story).sha256 == World(seed=4).play(story).sha256
