"""The facilitator holds Alice's settlement for 100 seconds; the service waits 60. The answer says
that it may still settle, and she sends the same header again: it settles, and the delayed request
finds the authorization used. Bob's settlement is held until after validBefore. By then the chain's
time shows that it can never settle: his payment has failed, and the delayed request moves no money.
"""

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Late settlement: the facilitator settles long after the service has timed out",
    covers="3/pending-resolved, 5/nonce-once, 5/window",
    needs="funds, faults, observe chain, virtual time",
)
async def late_settlement(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    header = alice.sign(required)
    held = Fault(victim="facilitator", does="delay request", path="/settle", seconds=100)
    await world.fault(held)
    world.expect(await alice.pay(required, header), "Facilitator unreachable", "3/pending-resolved")
    world.expect(await alice.pay(required, header), 200, "3/pending-resolved")
    await world.advance(100)
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")

    bob = await world.payer("bob", balance="1.00")
    required = await bob.ask()
    held = Fault(victim="facilitator", does="delay request", path="/settle", seconds=500)
    await world.fault(held)
    world.expect(await bob.pay(required), "Facilitator unreachable", "3/pending-resolved")
    await world.advance(200)
    pending = await bob.payment(required.payment_id)
    world.expect(pending["status"], "pending", "3/pending-resolved")
    await world.advance(200)
    failed = await bob.payment(required.payment_id)
    world.expect(failed["status"], "failed", "3/pending-resolved")
    await world.advance(200)
    world.expect(await bob.ask(payment_id=required.payment_id), 402, "5/window")
    world.expect(len(await world.transfers(bob)), 0, "5/window")
