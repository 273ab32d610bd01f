"""The facilitator verifies Alice's authorization; before it settles she moves all her money to Bob.
The settlement is refused and she is not served. Then she tries it with the mempool: her transfer
waits ahead of the settlement, which passes the facilitator's check and reverts in the block. She is
not served. Her authorization is still valid, so the service accepts no second one; once she has
money again, the same header settles.
"""

import asyncio

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Drained wallet: the payer spends her balance between verification and settlement",
    covers="3/pending-resolved, 4.1/order, 5/stored-records, 7/insufficient-balance",
    needs="funds, faults, control chain",
)
async def drained_wallet(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob")
    required = await alice.ask()
    header = alice.sign(required)

    slow = Fault(victim="facilitator", does="delay request", path="/settle", seconds=0.4)
    await world.fault(slow)
    paying = asyncio.create_task(alice.pay(required, header))
    await world.clock.sleep(0.2)
    await alice.transfer(bob.address, "1.00")
    world.expect(await paying, "Insufficient USDC balance", "7/insufficient-balance")
    world.expect(await alice.ask(payment_id=required.payment_id), 402, "5/stored-records")

    await world.fund(alice.address, "1.00")
    await world.mining(automine=False)
    await alice.transfer(bob.address, "1.00")
    paying = asyncio.create_task(alice.pay(required, header))
    await world.clock.sleep(0.3)
    await world.mine()
    await world.mining(automine=True)
    world.expect(await paying, "Settlement failed", "4.1/order")
    world.expect(await alice.pay(required), "Settlement pending", "3/pending-resolved")
    world.expect(await alice.ask(payment_id=required.payment_id), 402, "5/stored-records")
    world.expect(await world.earned(), 0, "5/stored-records")

    await world.fund(alice.address, "1.00")
    world.expect(await alice.pay(required, header), 200, "4.1/receipt")
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "1/repeat-served")
    world.expect(await world.earned(), required.price_base, "5/nonce-once")
    world.expect(await bob.balance(), 2_000_000, "5/exact-recipient")
