"""Alice pays for a quote and keeps the signed header. She sends it again for the same payment, with
the payment id of a second 402, and in another spelling; Mallory, who has intercepted it, sends it
for a payment of his own. The service restarts, and Alice tries once more. No money moves a second
time, and no second payment id is granted.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title="Replay: an authorization settles once, and never again",
    covers="5/nonce-once, 5/stored-records, 7/nonce-already-used, 7/payment-already-settled",
    needs="funds, faults, observe chain",
)
async def replay(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    mallory = await world.payer("mallory")

    first = await alice.ask()
    header = alice.sign(first)
    world.expect(await alice.pay(first, header), 200, "4.1/receipt")

    again = await alice.pay(first, header)
    world.expect(again, "Payment already settled", "7/payment-already-settled")

    second = await alice.ask()
    world.expect(await alice.pay(second, header), "Nonce already used", "7/nonce-already-used")
    respelled = await alice.pay(second, alice.rewrite_header(header, spelling="base64"))
    world.expect(respelled, "Nonce already used", "7/nonce-already-used")

    stolen = await mallory.ask()
    world.expect(await mallory.pay(stolen, header), "Nonce already used", "7/nonce-already-used")

    await world.crash()
    remembered = await alice.pay(first, header)
    world.expect(remembered, "Payment already settled", "7/payment-already-settled")
    world.expect(await alice.pay(second, header), "Nonce already used", "7/nonce-already-used")

    for unpaid in (second, stolen):
        world.expect(await alice.ask(payment_id=unpaid.payment_id), 402, "5/stored-records")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")
    world.expect(await world.earned(), first.price_base, "5/nonce-once")
