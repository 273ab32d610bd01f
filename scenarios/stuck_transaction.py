"""Blocks are full: Alice's settlement was sent but is not mined. She asks for the quote before it
is, and pays once more; she is not served, and no second transaction is sent. When a block includes
it, her payment is settled under that transaction's hash.
"""

import asyncio

from x402sim import LiveWorld, scenario


@scenario(
    title="Stuck transaction: access is granted only when the waiting settlement is mined",
    covers="3/pending-resolved, 4.1/settle-on-chain, 5/nonce-once, 5/stored-records",
    needs="funds, control chain",
)
async def stuck_transaction(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    header = alice.sign(required)
    await world.mining(automine=False)
    patience = alice.http.timeout
    alice.http.timeout = 0.4
    world.expect(await alice.pay(required, header), None, "4.1/settle-on-chain")
    alice.http.timeout = patience

    world.expect(await alice.ask(payment_id=required.payment_id), 402, "5/stored-records")
    pending = await alice.payment(required.payment_id)
    world.expect(pending["status"], "pending", "3/pending-resolved")
    again = asyncio.create_task(alice.pay(required, header))
    await world.clock.sleep(0.2)
    world.expect(len(await world.transfers(alice)), 0, "4.1/settle-on-chain")

    await world.mine()
    world.expect(await again, "Payment already settled", "7/payment-already-settled")
    await world.mining(automine=True)
    (paid,) = await world.transfers(alice)
    record = await alice.payment(required.payment_id)
    world.expect(record["tx_hash"], paid.tx_hash, "4.1/settle-on-chain")
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "1/repeat-served")
    world.expect(await world.earned(), required.price_base, "5/nonce-once")
