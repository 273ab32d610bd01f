"""Alice has paid and is served. Before the indexer has seen her transaction, a reorganisation drops
it. It may still be mined again, so she is served until validBefore has passed in a block. Then the
explorer does not know the transaction and her authorization is unused: the payment fails and grants
nothing any more. She was not charged, and pays anew.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title=(
        "Dropped before indexing: a payment that a reorganisation drops fails when its time is over"
    ),
    covers="3/indexed-status, 4.1/receipt, 5/stored-records, 8/indexer-query",
    needs="funds, clock, control chain",
)
async def dropped_before_indexing(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    dropped = await alice.buy()
    world.expect(dropped, 200, "4.1/receipt")
    (transfer,) = await world.transfers(alice)
    await world.reorg(1, drop=[transfer.tx_hash])
    await world.run_indexer()
    waiting = await alice.payment(dropped.payment_id)
    world.expect(waiting["status"], "settled", "3/indexed-status")

    await world.advance(700)
    record = await alice.payment(dropped.payment_id)
    world.expect(record["status"], "failed", "3/indexed-status")
    world.expect(record["block_number"], None, "8/indexer-query")
    world.expect(await alice.ask(payment_id=dropped.payment_id), 402, "5/stored-records")
    world.expect(await alice.balance(), 1_000_000, "5/stored-records")

    again = await alice.buy()
    world.expect(await alice.ask(payment_id=again.payment_id), 200, "5/stored-records")
    world.expect(await world.earned(), 10_000, "5/stored-records")
