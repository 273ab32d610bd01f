"""A middlebox sends requests twice and returns the second answer. Alice's payment arrives twice at
the service: the second answer truly says that the payment has settled already. The verification and
the settlement arrive twice at the facilitator: she gets her receipt. A payment id presented twice
costs nothing. Each thing that she bought cost one transfer.
"""

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Duplicated request: a request that arrives twice is charged once",
    covers="4.1/receipt, 5/nonce-once, 7/payment-already-settled",
    needs="funds, faults, observe chain",
)
async def duplicated_request(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    await world.fault(Fault(victim="service", does="duplicate", path="/api/pay"))
    world.expect(await alice.pay(required), "Payment already settled", "7/payment-already-settled")
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "1/repeat-served")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")

    for bought, verb in ((2, "verify"), (3, "settle")):
        await world.fault(Fault(victim="facilitator", does="duplicate", path=f"/{verb}"))
        paid = await alice.buy()
        world.expect(paid, 200, "4.1/receipt")
        newest = (await world.transfers(alice))[-1]
        world.expect(paid.body["txHash"], newest.tx_hash, "4.1/receipt")
        world.expect(len(await world.transfers(alice)), bought, "5/nonce-once")

    await world.fault(Fault(victim="service", does="duplicate", path="/quote"))
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "1/repeat-served")
    world.expect(await world.earned(), 3 * required.price_base, "5/nonce-once")
