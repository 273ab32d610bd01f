"""A payer whose wallet is a contract: the service, the facilitator and the token take its word."""

from tests.world.playing import played
from x402sim import LiveWorld


@played("virtual")
async def test_a_smart_wallet_pays_as_any_other(world: LiveWorld) -> None:
    """Alice's smart wallet pays; a header that Mallory signs for it does not."""
    alice = await world.payer("alice", balance="1.00", wallet="smart")
    mallory = await world.payer("mallory", balance="1.00")
    assert (await alice.buy()).status == 200
    required = await alice.ask()
    forged = await alice.pay(required, alice.sign(required, by=mallory.wallet))
    assert forged.error == "Invalid signature"
    good = alice.sign(required)
    assert (await alice.pay(required, good)).status == 200
    assert (await alice.pay(await alice.ask(), good)).status != 200
    assert len(await world.transfers(alice)) == 2
    assert await world.transfers(mallory) == []
