"""Alice's money leaves her wallet ahead of the settlement, whose transaction reverts. Once she has
money again, the same header settles in a second transaction. Then a reorganisation drops the first
transfer: now the first settlement pays, and the recorded settlement reverts. Alice has paid once.
The indexer looks her authorization up before failing the record, finds the paying transaction, and
she is served as before.
"""

import asyncio

from x402sim import LiveWorld, scenario


@scenario(
    title=(
        "Replaced transaction: a reorganisation makes another transaction than the recorded one pay"
    ),
    covers="3/indexed-status, 3/pending-resolved, 5/nonce-once, 5/stored-records",
    needs="funds, clock, control chain",
)
async def replaced_transaction(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob")
    required = await alice.ask()
    header = alice.sign(required)
    await world.mining(automine=False)
    drained = await alice.transfer(bob.address, "1.00")
    paying = asyncio.create_task(alice.pay(required, header))
    await world.clock.sleep(0.3)
    await world.mine()
    await world.mining(automine=True)
    world.expect(await paying, "Settlement failed", "3/pending-resolved")
    await world.fund(alice.address, "1.00")
    paid = await alice.pay(required, header)
    world.expect(paid, 200, "3/pending-resolved")

    await world.reorg(3, drop=[drained.tx_hash])
    (transfer,) = await world.transfers(alice)
    world.expect(transfer.tx_hash != paid.body["txHash"], True, "5/nonce-once")
    await world.run_indexer()
    record = await alice.payment(required.payment_id)
    world.expect(record["status"], "settled", "3/indexed-status")
    world.expect(record["tx_hash"], transfer.tx_hash, "3/indexed-status")
    world.expect(record["block_number"], transfer.block_number, "3/indexed-status")
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "5/stored-records")
    world.expect(await world.earned(), required.price_base, "5/nonce-once")
