"""Replay: an authorization settles once, and never again.

Covers: 5/nonce-once, 5/stored-records, 7/nonce-already-used, 7/payment-already-settled.
Story: Alice pays for a quote and keeps the signed header. She sends it again for the same
payment, with the payment id of a second 402, and in another spelling; Mallory, who has
intercepted it, sends it for a payment of his own. The service restarts, and Alice tries once
more. No money moves a second time, and no second payment id is granted.
"""

from x402sim import LiveWorld, scenario


@scenario(needs="funds, faults, observe chain")
async def replay(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    mallory = await world.payer("mallory")

    first = await alice.ask()
    header = alice.sign(first)
    paid = await alice.pay(first, header)
    world.expect(paid.status, 200, "4.1/receipt")

    again = await alice.pay(first, header)
    world.expect(again.error, "Payment already settled", "7/payment-already-settled")

    second = await alice.ask()
    replayed = await alice.pay(second, header)
    world.expect(replayed.error, "Nonce already used", "7/nonce-already-used")
    respelled = await alice.pay(second, alice.forge(header, spelling="base64"))
    world.expect(respelled.error, "Nonce already used", "7/nonce-already-used")

    stolen = await mallory.ask()
    presented = await mallory.pay(stolen, header)
    world.expect(presented.error, "Nonce already used", "7/nonce-already-used")

    await world.crash()
    remembered = await alice.pay(first, header)
    world.expect(remembered.error, "Payment already settled", "7/payment-already-settled")
    remembered = await alice.pay(second, header)
    world.expect(remembered.error, "Nonce already used", "7/nonce-already-used")

    for unpaid in (second, stolen):
        refused = await alice.ask(payment_id=unpaid.payment_id)
        world.expect(refused.status, 402, "5/stored-records")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")
    world.expect(await world.earned(), first.price_base, "5/nonce-once")
