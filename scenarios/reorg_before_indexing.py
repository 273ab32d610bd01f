"""Alice has paid for a quote and Bob for a session, and both are served; the explorer lags, so the
indexer has not seen their blocks. Then the chain replaces those blocks, and the transactions are
mined again after validBefore: they revert, and the money is the payers' again. Once the explorer
shows it, the indexer marks both payments as failed: they grant nothing any more, the session ends
without a refund, and a new payment is served.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title=(
        "Reorganisation before indexing: payments revert when mined again too late, and access ends"
    ),
    covers="2.4/block-null, 3/expiry-refund, 3/indexed-status, 5/stored-records, 8/indexer-query",
    needs="funds, clock, control chain",
)
async def reorg_before_indexing(world: LiveWorld) -> None:
    await world.explorer_lag(3600)
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    quote = await alice.buy()
    session_id = (await bob.open_session("0.05", 3600)).body["sessionId"]
    world.expect(await bob.ask(session_id=session_id), 200, "1/session-no-402")
    await world.advance(400)
    waiting = await alice.payment(quote.payment_id)
    world.expect(waiting["block_number"], None, "2.4/block-null")

    paid, _ = await world.transfers()
    await alice.transfer(world.merchant, "0.10")
    newest = (await world.transfers(alice))[-1].block_number
    await world.reorg(newest - paid.block_number + 1)
    world.expect(await world.earned(), 100_000, "5/window")
    await world.explorer_lag(0)
    await world.run_indexer()

    record = await alice.payment(quote.payment_id)
    world.expect(record["status"], "failed", "3/indexed-status")
    world.expect(record["block_number"] is None, False, "8/indexer-query")
    world.expect(await alice.ask(payment_id=quote.payment_id), 402, "5/stored-records")
    world.expect(await bob.ask(session_id=session_id), 402, "5/session-condition")
    await world.advance(3600)
    world.expect(await bob.balance(), 1_000_000, "3/expiry-refund")
    world.expect(await world.earned(), 100_000, "3/expiry-refund")

    anew = await alice.buy()
    world.expect(await alice.ask(payment_id=anew.payment_id), 200, "1/repeat-served")
