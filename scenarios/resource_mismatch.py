"""Alice pays for a quote and for a session's deposit, and presents each payment for the other
resource: both are refused, also after the cache is empty. She changes the resource in her
requirements: a prefix, another case, a trailing slash, a query. She pays the price of a quote under
the payment id of a larger deposit. For their own resources both payments are accepted, and a query
does not change the resource.
"""

from x402sim import LiveWorld, scenario

QUOTE, SESSIONS = "/api/perp/quote", "/api/sessions/create"


@scenario(
    title="Resource mismatch: a payment grants only the resource that it was made for",
    covers="5/resource-binding, 5/cache-first, 5/stored-records, 2.1/resource, 4.4/deposit-flow",
    needs="funds, faults, observe chain",
)
async def resource_mismatch(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    quote, deposit = await alice.ask(), await alice.ask_session("0.50", 3600)

    lookalikes = ("/api/perp", QUOTE.upper(), QUOTE + "/", QUOTE + "?pair=BTC-USD", SESSIONS)
    for resource in lookalikes:
        tampered = await alice.pay(quote, requirements={"resource": resource})
        world.expect(tampered, "Payment requirements do not match", "2.1/resource")
        world.expect(tampered.reason.split(":")[0], "resource", "2.1/resource")
    cheap = await alice.pay(quote, payment_id=deposit.payment_id)
    world.expect(cheap, "Payment requirements do not match", "2.1/resource")
    world.expect(len(await world.transfers(alice)), 0, "2.1/resource")

    for required in (quote, deposit):
        world.expect((await alice.pay(required)).status, 200, "4.1/receipt")
    paid = quote.price_base + deposit.price_base
    world.expect(await world.earned(), paid, "5/resource-binding")

    for lookup in ("5/cache-first", "5/stored-records"):
        crossed = await alice.ask(QUOTE, payment_id=deposit.payment_id)
        world.expect(crossed, 402, "5/resource-binding")
        crossed = await alice.ask_session("0.50", 3600, payment_id=quote.payment_id)
        world.expect(crossed, 402, "5/resource-binding")
        for resource in ("/api/perp", QUOTE.upper(), QUOTE + "/"):
            elsewhere = await alice.ask(resource, payment_id=quote.payment_id)
            world.expect("quote" in elsewhere.body, False, "5/resource-binding")
        for resource in (QUOTE, QUOTE + "?venue=any"):
            world.expect(await alice.ask(resource, payment_id=quote.payment_id), 200, lookup)
        opened = await alice.ask_session("0.50", 3600, payment_id=deposit.payment_id)
        world.expect(opened.body.get("deposited"), str(deposit.price_base), "4.4/deposit-flow")
        await world.crash()
    world.expect(await world.earned(), paid, "5/resource-binding")
