"""A second service settles a payment in one step before the endpoint works, and says so:
`extra.paymentFlow` is upfront. Alice sends an order that cannot be filled. She is charged and not
served: the answer says so, with the receipt beside the error. The service owes her a quote, also
after a crash. The same payment with a better order gets the quote; sent once more, the payment gets
the same answer, and nothing is charged twice.
"""

import base64
import json

from x402sim import LiveWorld, scenario

BAD = {"pair": "BTC-USD", "side": "sideways", "leverage": 10, "sizeUsd": 1000}


@scenario(
    title="Upfront flow: settle, then work; what is paid and not served stays owed",
    covers="1/repeat-served, 5/exact-amount, 5/nonce-once, 5/stored-records",
    needs="funds, faults, other services, observe chain",
)
async def upfront_flow(world: LiveWorld) -> None:
    second = await world.another_service(payment_flow="upfront")
    alice = (await world.payer("alice", balance="1.00")).at(second)
    required = await alice.ask()
    (way,) = required.body["accepts"]
    world.expect(way["extra"]["paymentFlow"], "upfront", "5/stored-records")

    header = alice.sign(required, steps=1)
    failed = await alice.ask(header=header, order=BAD)
    world.expect(failed, 400, "5/stored-records")
    world.expect(await world.earned(second), required.price_base, "5/exact-amount")
    settlement = json.loads(base64.b64decode(failed.header("PAYMENT-RESPONSE") or ""))
    (paid,) = await world.transfers(alice)
    world.expect(settlement["transaction"], paid.tx_hash, "5/stored-records")

    await world.crash(second)
    served = await alice.ask(header=header)
    world.expect(served, 200, "1/repeat-served")
    again = await alice.ask(header=header)
    world.expect(again.body, served.body, "5/nonce-once")
    world.expect(await world.earned(second), required.price_base, "5/nonce-once")
