"""The facilitator's answer to Alice's settlement is lost: the service asks the chain and answers
with the receipt. For Bob the chain stops answering too: the service answers that he may have paid,
accepts no second authorization from him, and soon grants access. Carol never gets the service's
answer: she sends the same header again, and the answer says that it has settled.
"""

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Lost answer: the settlement succeeds, its answer is lost, and the payer is charged once",
    covers="3/pending-resolved, 4.1/receipt, 5/nonce-once",
    needs="funds, clock, faults, observe chain",
)
async def lost_answer(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
    world.expect(await alice.buy(), 200, "4.1/receipt")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")

    bob = await world.payer("bob", balance="1.00")
    required = await bob.ask()
    await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
    await world.fault(Fault(victim="rpc", does="refuse", skip=2, times=None))
    world.expect(await bob.pay(required), "Facilitator unreachable", "3/pending-resolved")
    world.expect(await bob.pay(required), "Settlement pending", "3/pending-resolved")
    world.expect(await bob.ask(payment_id=required.payment_id), 402, "5/stored-records")
    await world.heal()
    await world.advance(20)
    world.expect(await bob.ask(payment_id=required.payment_id), 200, "3/pending-resolved")
    world.expect(len(await world.transfers(bob)), 1, "5/nonce-once")

    carol = await world.payer("carol", balance="1.00")
    required = await carol.ask()
    header = carol.sign(required)
    await world.fault(Fault(victim="service", does="lose answer", path="/api/pay"))
    world.expect(await carol.pay(required, header), None, "4.1/receipt")
    again = await carol.pay(required, header)
    world.expect(again, "Payment already settled", "7/payment-already-settled")
    world.expect(await carol.ask(payment_id=required.payment_id), 200, "1/repeat-served")

    world.expect(await world.earned(), 3 * required.price_base, "5/nonce-once")
