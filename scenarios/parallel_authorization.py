"""The facilitator verifies slowly, so that everything Alice sends at once is verified before
anything is settled. The same payment five times: one receipt. One authorization for five payment
ids: one id is granted. Five authorizations for one payment id: one is used, four stay unused.
"""

import asyncio

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Parallel use: an authorization presented many times concurrently pays once",
    covers="5/nonce-once, 7/nonce-already-used, 7/payment-already-settled",
    needs="funds, faults, observe chain",
)
async def parallel_authorization(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    slow = Fault(victim="facilitator", does="delay answer", path="/verify", seconds=0.1, times=None)
    await world.fault(slow)

    required = await alice.ask()
    header = alice.sign(required)
    answers = await asyncio.gather(*(alice.pay(required, header) for _ in range(5)))
    errors = [answer.error for answer in answers]
    world.expect(errors.count(None), 1, "4.1/receipt")
    world.expect(errors.count("Payment already settled"), 4, "7/payment-already-settled")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")

    asked = [await alice.ask() for _ in range(5)]
    header = alice.sign(asked[0])
    answers = await asyncio.gather(*(alice.pay(one, header) for one in asked))
    errors = [answer.error for answer in answers]
    world.expect(errors.count(None), 1, "5/nonce-once")
    world.expect(errors.count("Nonce already used"), 4, "7/nonce-already-used")
    served = [await alice.ask(payment_id=one.payment_id) for one in asked]
    world.expect([each.status for each in served].count(200), 1, "5/stored-records")
    world.expect(len(await world.transfers(alice)), 2, "5/nonce-once")

    required = await alice.ask()
    headers = [alice.sign(required) for _ in range(5)]
    answers = await asyncio.gather(*(alice.pay(required, each) for each in headers))
    errors = [answer.error for answer in answers]
    world.expect(errors.count(None), 1, "4.1/receipt")
    world.expect(errors.count("Payment already settled"), 4, "7/payment-already-settled")
    world.expect(len(await world.transfers(alice)), 3, "5/nonce-once")
    world.expect(await world.earned(), 3 * required.price_base, "5/nonce-once")
