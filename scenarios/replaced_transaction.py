"""Replaced transaction: a reorganisation makes another transaction than the recorded one pay.

Covers: 3/indexed-status, 3/pending-resolved, 5/nonce-once, 5/stored-records.
Story: Alice's first transaction reverts, and the same header settles in a second one. Then a
reorganisation mines both again: now the first one pays, and the recorded one reverts. Alice has
paid once. The indexer looks her authorization up before it fails the record, finds the transaction
that used it, and she is served as before.
"""

from x402sim import LiveWorld, scenario


@scenario(needs="funds, clock, control chain")
async def replaced_transaction(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    header = alice.sign(required)
    await world.force_revert(1)
    refused = await alice.pay(required, header)
    world.expect(refused.error, "Settlement failed", "3/pending-resolved")
    paid = await alice.pay(required, header)
    world.expect(paid.status, 200, "3/pending-resolved")

    await world.reorg(2)
    (transfer,) = await world.transfers(alice)
    world.expect(transfer.tx_hash != paid.body["txHash"], True, "5/nonce-once")
    await world.run_indexer()
    record = await alice.payment(required.payment_id)
    world.expect(record["status"], "settled", "3/indexed-status")
    world.expect(record["tx_hash"], transfer.tx_hash, "3/indexed-status")
    world.expect(record["block_number"], transfer.block_number, "3/indexed-status")
    served = await alice.ask(payment_id=required.payment_id)
    world.expect(served.status, 200, "5/stored-records")
    world.expect(await world.earned(), required.price_base, "5/nonce-once")
