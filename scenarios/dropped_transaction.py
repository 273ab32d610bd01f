"""Alice's settlement waits in the mempool, and the node drops it. After a minute the service stops
waiting: the payment may still settle, so it accepts no second authorization. Alice sends the same
header again, and it settles. Bob does not come back: once his window has closed the service knows
that he never paid, and he can start again.
"""

import asyncio

from x402sim import LiveWorld, scenario


@scenario(
    title=(
        "Dropped transaction: the node drops the settlement, and a retry with the same header "
        "settles"
    ),
    covers="3/pending-resolved, 4.1/settle-on-chain, 5/nonce-once",
    needs="funds, control chain, virtual time",
)
async def dropped_transaction(world: LiveWorld) -> None:
    for name, comes_back in (("alice", True), ("bob", False)):
        payer = await world.payer(name, balance="1.00")
        required = await payer.ask()
        header = payer.sign(required)
        await world.mining(automine=False)
        paying = asyncio.create_task(payer.pay(required, header))
        await world.clock.sleep(10)
        await world.drop_waiting()
        await world.mining(automine=True)
        world.expect(await paying, "Facilitator unreachable", "3/pending-resolved")
        world.expect(await payer.pay(required), "Settlement pending", "3/pending-resolved")
        world.expect(len(await world.transfers(payer)), 0, "4.1/settle-on-chain")

        if not comes_back:
            await world.advance(400)
            record = await payer.payment(required.payment_id)
            world.expect(record["status"], "failed", "3/pending-resolved")
            required = await payer.ask()
            header = payer.sign(required)
        world.expect(await payer.pay(required, header), 200, "3/pending-resolved")
        world.expect(await payer.ask(payment_id=required.payment_id), 200, "1/repeat-served")
        world.expect(len(await world.transfers(payer)), 1, "5/nonce-once")
