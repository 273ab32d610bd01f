"""A merchant runs two services with one address and two databases. Alice pays at the first. Mallory
presents her header at the second, for a payment id of his own, and is refused: the authorization
was used before. Bob pays at the second, and his payment id means nothing to the first.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title="Several services: one payment buys at one service of a merchant, not at each of them",
    covers="4.1/receipt, 5/nonce-once, 5/stored-records, 7/nonce-already-used",
    needs="funds, other services, observe chain",
)
async def several_services(world: LiveWorld) -> None:
    second = await world.another_service()
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    mallory = await world.payer("mallory")

    required = await alice.ask()
    header = alice.sign(required)
    world.expect(await alice.pay(required, header), 200, "4.1/receipt")

    his_own = await mallory.at(second).ask()
    stolen = await mallory.at(second).pay(his_own, header)
    world.expect(stolen, "Nonce already used", "7/nonce-already-used")
    world.expect(await mallory.at(second).ask(payment_id=his_own.payment_id), 402, "5/nonce-once")

    bought = await bob.at(second).buy()
    world.expect(await bob.at(second).ask(payment_id=bought.payment_id), 200, "5/stored-records")
    world.expect(await bob.ask(payment_id=bought.payment_id), 402, "5/stored-records")
    world.expect(await world.earned(), 2 * required.price_base, "5/nonce-once")
