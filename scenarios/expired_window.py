"""Alice signs and waits. One second before validBefore her payment is accepted; in the second of
validBefore it has expired. A new authorization is enough, because the requirements hold to the end
of their own maxTimeoutSeconds. A second later, and an hour later, the requirements have expired
too, whatever the signature. What has expired moves no money and grants nothing.
"""

from x402sim import LiveWorld, scenario

EXPIRED = "Authorization expired"


@scenario(
    title="Expired window: authorizations and payment requirements are refused one second too late",
    covers="5/window, 7/authorization-expired, 2.1/validity, 8/timeout",
    needs="funds, observe chain, virtual time",
)
async def expired_window(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    held_base = await alice.balance()

    in_time = await alice.ask()
    header = alice.sign(in_time)
    _, closes = alice.window(header)
    await world.advance(until_s=closes - 1)
    world.expect(await alice.pay(in_time, header), 200, "5/window")

    offer, issued = await alice.ask(), alice.now_s()
    lasts_s = int(offer.requirements["maxTimeoutSeconds"])
    world.expect(lasts_s, 300, "8/timeout")
    ends = issued + lasts_s
    header = alice.sign(offer, valid_before=ends)
    await world.advance(until_s=ends)
    at_the_edge = await alice.pay(offer, header)
    world.expect(at_the_edge, EXPIRED, "7/authorization-expired")
    why = f"validBefore is {ends}, the server's clock says {ends}"
    world.expect(at_the_edge.reason.split(";")[0], why, "5/window")
    world.expect(await alice.pay(offer), 200, "2.1/validity")

    for late_s in (1, 3600):
        offer, issued = await alice.ask(), alice.now_s()
        header = alice.sign(offer)
        await world.advance(until_s=issued + lasts_s + late_s)
        world.expect(await alice.pay(offer, header), EXPIRED, "7/authorization-expired")
        fresh = await alice.pay(offer)
        world.expect(fresh, EXPIRED, "7/authorization-expired")
        why = f"the payment requirements expired {late_s} s ago (maxTimeoutSeconds)"
        world.expect(fresh.reason.split(";")[0], why, "2.1/validity")
        world.expect(await alice.ask(payment_id=offer.payment_id), 402, "5/window")

    world.expect(len(await world.transfers(alice)), 2, "5/window")
    world.expect(held_base - await alice.balance(), 2 * offer.price_base, "5/window")
