"""Alice has paid, and Bob pays next. The facilitator confuses its answers and gives him the receipt
of her transaction; then one that names another payee, another amount, another network, or no
transaction at all. None of these pays for his request, and he is not served. When the facilitator
answers correctly his header settles. Carol's transfer is mined, but she gets Alice's receipt too:
the service finds her transfer on the chain and serves her. There are three payments.
"""

import json

from x402sim import Fault, LiveWorld, scenario

CHANGES = {
    "another's": ("5/nonce-once", {}),
    "another payee": ("5/exact-recipient", {"to": "0x" + "12" * 20}),
    "another amount": ("5/exact-amount", {"value": "1"}),
    "another network": ("4.1/settle-on-chain", {"network": "cronos-mainnet"}),
    "no transaction": ("4.1/settle-on-chain", {"txHash": ""}),
}


def says(body: str, *, work_done: bool = False) -> Fault:
    return Fault(
        victim="facilitator", path="/settle", does="answer", status=200, body=body,
        work_done=work_done,
    )  # fmt: skip


@scenario(
    title="False receipt: the facilitator answers with the receipt of another payment",
    covers=(
        "3/pending-resolved, 4.1/settle-on-chain, 5/exact-amount, 5/exact-recipient, "
        "5/nonce-once, 5/stored-records"
    ),
    needs="funds, faults, observe chain",
)
async def false_receipt(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    paid = await alice.buy()
    required = await bob.ask()
    header = bob.sign(required)
    receipt = {
        "x402Version": 1,
        "event": "payment.settled",
        "txHash": paid.body["txHash"],
        "from": bob.address,
        "to": required.requirements["payTo"],
        "value": required.requirements["maxAmountRequired"],
        "blockNumber": 1,
        "network": required.requirements["network"],
        "timestamp": "2027-01-15T08:00:00.000Z",
    }
    for name, (clause, change) in CHANGES.items():
        await world.fault(says(json.dumps(receipt | change)))
        refused = await bob.pay(required, header)
        world.expect(f"{name}: {refused.status}", f"{name}: 502", clause)
        world.expect(await bob.ask(payment_id=required.payment_id), 402, "5/stored-records")

    world.expect(await bob.pay(required, header), 200, "4.1/receipt")
    world.expect(await bob.ask(payment_id=required.payment_id), 200, "1/repeat-served")

    carol = await world.payer("carol", balance="1.00")
    body = json.dumps(receipt | {"from": carol.address})
    await world.fault(says(body, work_done=True))
    world.expect(await carol.buy(), 200, "3/pending-resolved")
    world.expect(len(await world.transfers(carol)), 1, "5/nonce-once")
    world.expect(await world.earned(), 3 * required.price_base, "5/nonce-once")
