"""The payments of Alice and Bob are in blocks, and the indexer has recorded both, when the chain
replaces the blocks. Alice's payment is mined again: she has paid once, and is served. Bob's deposit
is dropped, so nothing was deposited. The service looks at a record again until the block is deep
enough (decision 8/final-depth), and at a deposit before paying a refund: a deposit that is not on
the chain is not refunded, so no other payer's money leaves the merchant.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title="Reorganisation after indexing: the chain replaces blocks that the indexer has recorded",
    covers="3/expiry-refund, 5/nonce-once, 5/stored-records, 8/indexer-query",
    needs="funds, clock, control chain",
)
async def reorg_after_indexing(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    quote = await alice.buy()
    session = await bob.open_session("0.01", 60)
    await world.run_indexer()
    indexed = await alice.payment(quote.payment_id)
    paid, deposited = await world.transfers()
    world.expect(indexed["block_number"], paid.block_number, "8/indexer-query")

    await world.mine()
    await bob.transfer(alice.address, "0.01")
    newest = (await world.transfers(bob))[-1].block_number
    depth = newest - paid.block_number + 1
    await world.reorg(depth, drop=[deposited.tx_hash])

    (again,) = await world.transfers(alice)
    world.expect(again.tx_hash, paid.tx_hash, "5/nonce-once")
    world.expect(again.block_number > paid.block_number, True, "8/indexer-query")
    world.expect(await alice.ask(payment_id=quote.payment_id), 200, "5/stored-records")
    world.expect(await world.earned(), int(paid.amount_base), "5/nonce-once")

    await world.advance(121)
    over = await bob.session(session.body["sessionId"])
    world.expect(over["status"] in ("expired", "refunded"), True, "3/expiry-refund")
    world.expect(await bob.balance(), 990_000, "3/expiry-refund")
    world.expect(await world.earned(), int(paid.amount_base), "3/expiry-refund")
