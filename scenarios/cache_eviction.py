"""Alice pays for a quote and repeats the request after an hour, after a day (the cache lifetime),
and after the sweeps that follow; then the service restarts. Each time she is served, but only the
resource she paid for. An evicted entry does not reopen the payment: the old header is still refused
as used.
"""

from x402sim import LiveWorld, scenario

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@scenario(
    title="Cache eviction: the stored record still grants access when the cache entry has expired",
    covers=(
        "3/record-outlives-cache, 5/resource-binding, 5/stored-records, 7/nonce-already-used, "
        "7/payment-already-settled"
    ),
    needs="funds, clock, faults, observe chain",
)
async def cache_eviction(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    header = alice.sign(required)
    world.expect(await alice.pay(required, header), 200, "4.1/receipt")

    for waited_s in (HOUR_S, DAY_S - HOUR_S, HOUR_S, HOUR_S):
        await world.advance(waited_s)
        served = await alice.ask(payment_id=required.payment_id)
        world.expect(served, 200, "3/record-outlives-cache")
        other = await alice.ask_session("0.01", 60, payment_id=required.payment_id)
        world.expect(other, 402, "5/resource-binding")
    await world.crash()
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "5/stored-records")

    same = await alice.pay(required, header)
    world.expect(same, "Payment already settled", "7/payment-already-settled")
    replayed = await alice.pay(await alice.ask(), header)
    world.expect(replayed, "Nonce already used", "7/nonce-already-used")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")
