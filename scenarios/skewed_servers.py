"""The chain's clock falls 90 seconds behind: it accepts no authorization yet, so none settles. The
service's clock is 50 seconds ahead, then 150, then 50 behind: payers with a right clock pay, and a
lost answer to a settlement is resolved. At last the chain is six minutes ahead, and a new
authorization has expired there. No payer is charged without being served, and none is served
without paying.
"""

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title=(
        "Skewed servers: the clocks of the service and of the chain are wrong, and no money is lost"
    ),
    covers="2.1/validity, 3/pending-resolved, 5/window",
    needs="funds, clock, faults, observe chain, virtual time",
)
async def skewed_servers(world: LiveWorld) -> None:
    early_bird = await world.payer("alice", balance="1.00")
    await world.skew("chain", -90)
    await world.advance(90)  # a block is never older than its parent, so chain time stands still
    early = await early_bird.buy()
    world.expect(early, "Invalid signature", "5/window")
    world.expect(early.reason.split(";")[0], "Authorization not yet valid", "5/window")
    world.expect(await world.earned(), 0, "5/window")
    await world.skew("chain", 0)

    for skew_s in (50, 150, -50):
        payer = await world.payer(f"payer at {skew_s:+} s", balance="1.00")
        await world.skew("service", skew_s)
        world.expect(await payer.buy(), 200, "2.1/validity")
        await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
        found = await payer.buy()
        world.expect(found, 200, "3/pending-resolved")
        world.expect(await payer.ask(payment_id=found.payment_id), 200, "1/repeat-served")
        world.expect(len(await world.transfers(payer)), 2, "3/pending-resolved")
    await world.skew("service", 0)

    await world.skew("chain", 360)
    late_comer = await world.payer("bob", balance="1.00")
    world.expect(await late_comer.buy(), "Authorization expired", "5/window")
    world.expect(len(await world.transfers(late_comer)), 0, "5/window")
