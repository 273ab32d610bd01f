"""The facilitator settles at once but answers later than Alice and Bob wait. Alice sends the same
header again while the first request is still running; Bob signs a second authorization for the same
payment. Each gets the answer that the payment has settled, each is served, and Bob's second
authorization stays unused.
"""

from x402sim import Fault, LiveWorld, scenario

HELD_S, TIMEOUT_S = 0.8, 0.3


@scenario(
    title="Retry after a timeout: a payer who times out and retries is charged once",
    covers="1/repeat-served, 5/nonce-once, 7/payment-already-settled",
    needs="funds, faults, observe chain",
)
async def retry_after_timeout(world: LiveWorld) -> None:
    for name, signs_again in (("alice", False), ("bob", True)):
        payer = await world.payer(name, balance="1.00")
        required = await payer.ask()
        first = payer.sign(required)
        slow = Fault(victim="facilitator", does="delay answer", path="/settle", seconds=HELD_S)
        await world.fault(slow)

        patience = payer.http.timeout
        payer.http.timeout = TIMEOUT_S
        world.expect(await payer.pay(required, first), None, "4.1/receipt")
        payer.http.timeout = patience

        second = payer.sign(required) if signs_again else first
        again = await payer.pay(required, second)
        world.expect(again, "Payment already settled", "7/payment-already-settled")
        world.expect(await payer.ask(payment_id=required.payment_id), 200, "1/repeat-served")

        world.expect(len(await world.transfers(payer)), 1, "5/nonce-once")
        world.expect(await payer.balance(), 1_000_000 - required.price_base, "5/nonce-once")
