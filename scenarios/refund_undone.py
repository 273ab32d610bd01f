"""Alice's session expires, and her balance is refunded. Then the chain replaces the block of the
refund and drops the transaction. The service looks at refunds again until the blocks are deep
enough: the service finds the nonce unused and sends the refund again, with the same nonce, for
which the token would refuse a second transfer. With twelve blocks on top, the service looks no
more.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title="Refund undone: a reorganisation drops a refund, and it is paid again, once",
    covers="3/expiry-refund, 3/refund-once",
    needs="funds, clock, control chain",
)
async def refund_undone(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    session = await alice.open_session("0.05", 60)
    session_id = session.body["sessionId"]
    world.expect(await alice.ask(session_id=session_id), 200, "3/expiry-refund")
    await world.advance(80)
    paid_back = await alice.session(session_id)
    world.expect(paid_back["status"], "refunded", "3/expiry-refund")
    world.expect(await alice.balance(), 990_000, "3/expiry-refund")

    refund = (await world.transfers())[-1]
    newest = max(each.block_number for each in await world.transfers())
    await world.reorg(newest - refund.block_number + 1, drop=[refund.tx_hash])
    world.expect(await alice.balance(), 950_000, "3/refund-once")
    await world.advance(400)
    again = await alice.session(session_id)
    world.expect(again["status"], "refunded", "3/refund-once")
    world.expect(again["refundTxHash"] != refund.tx_hash, True, "3/refund-once")
    world.expect(await alice.balance(), 990_000, "3/refund-once")
    await world.advance(1800)
    world.expect(await alice.balance(), 990_000, "3/refund-once")
    world.expect(await world.earned(), 10_000, "3/refund-once")
