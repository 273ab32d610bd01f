"""A second service settles a payment in one step only after the endpoint has worked, and says so:
`extra.paymentFlow` is authorization. A payment that Alice has not signed is refused before the
endpoint looks at the order. An order that cannot be filled costs her nothing, and the same payment
buys the next quote. Then she moves her money away after the verification: the quote is made, the
settlement is refused, and the quote is not handed out. Nobody is charged; the work was in vain.
"""

import asyncio

from x402sim import Fault, LiveWorld, scenario

BAD = {"pair": "BTC-USD", "side": "sideways", "leverage": 10, "sizeUsd": 1000}


@scenario(
    title="Authorization flow: verify, work, settle; what can be lost is the work",
    covers="4.1/order, 5/signature-proves, 7/insufficient-balance, 7/invalid-signature",
    needs="funds, faults, other services, control chain",
)
async def authorization_flow(world: LiveWorld) -> None:
    second = await world.another_service(payment_flow="authorization")
    alice = (await world.payer("alice", balance="1.00")).at(second)
    bob = await world.payer("bob")
    required = await alice.ask()
    (way,) = required.body["accepts"]
    world.expect(way["extra"]["paymentFlow"], "authorization", "4.1/order")

    forged = alice.sign(required, steps=1, by=bob.wallet)
    refused = await alice.ask(header=forged, order=BAD)
    world.expect(refused, 402, "7/invalid-signature")
    world.expect("payload_signature" in refused.reason, True, "5/signature-proves")

    header = alice.sign(required, steps=1)
    world.expect(await alice.ask(header=header, order=BAD), 400, "4.1/order")
    world.expect(await world.earned(second), 0, "4.1/order")
    world.expect(await alice.ask(header=header), 200, "4.1/order")
    world.expect(await world.earned(second), required.price_base, "5/exact-amount")

    slow = Fault(victim="facilitator", does="delay request", path="/settle", seconds=0.4)
    await world.fault(slow)
    asking = asyncio.create_task(alice.ask(header=alice.sign(await alice.ask(), steps=1)))
    await world.clock.sleep(0.2)
    await alice.transfer(bob.address, "0.99")
    unserved = await asking
    world.expect(unserved, 402, "4.1/order")
    world.expect("insufficient_funds" in unserved.reason, True, "7/insufficient-balance")
    world.expect(await world.earned(second), required.price_base, "4.1/order")
