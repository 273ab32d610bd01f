"""The settlement requests of Alice and Bob are lost on the way to the facilitator, so both payments
are pending. Alice cancels her authorization on the chain; Bob submits his own. authorizationState
is true for both. Bob has paid and is served; Alice has not, is not served, and keeps her money.
"""

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Used or cancelled: the token's state is the same for both, and only one is a payment",
    covers="3/pending-resolved, 5/nonce-once, 7/nonce-already-used",
    needs="funds, clock, faults, control chain",
)
async def used_versus_cancelled(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    lost = Fault(victim="facilitator", does="lose request", path="/settle", times=2)
    await world.fault(lost)
    required = {payer.name: await payer.ask() for payer in (alice, bob)}
    headers = {payer.name: payer.sign(required[payer.name]) for payer in (alice, bob)}
    for payer in (alice, bob):
        unknown = await payer.pay(required[payer.name], headers[payer.name])
        world.expect(unknown, "Facilitator unreachable", "3/pending-resolved")

    cancelled = await alice.cancel(headers["alice"])
    world.expect(cancelled.revert_reason, None, "5/nonce-once")
    used = await bob.submit(headers["bob"])
    world.expect(used.revert_reason, None, "5/nonce-once")
    await world.advance(20)

    for payer, status, served in ((alice, "failed", 402), (bob, "settled", 200)):
        payment_id = required[payer.name].payment_id
        record = await payer.payment(payment_id)
        world.expect(record["status"], status, "3/pending-resolved")
        world.expect(await payer.ask(payment_id=payment_id), served, "5/stored-records")
    refused = await alice.pay(required["alice"], headers["alice"])
    world.expect(refused, "Nonce already used", "7/nonce-already-used")

    world.expect(await alice.balance(), 1_000_000, "5/nonce-once")
    world.expect(await world.earned(), required["bob"].price_base, "5/nonce-once")
