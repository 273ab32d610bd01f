"""The token's owner pauses it, blacklists the merchant, blacklists Alice. Each time her signature
is valid and the chain refuses the transfer: the settlement fails, no money moves and nothing is
granted. The authorization is still valid, so the payment stays pending, and the same header settles
once the token is unfrozen. If it is frozen past validBefore, the payment has failed finally.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title=(
        "Frozen token: a valid payment that cannot settle stays pending until it settles or expires"
    ),
    covers="3/pending-resolved, 5/stored-records, 4.1/settle-on-chain, 4.1/receipt",
    needs="funds, clock, control chain, fiat token",
)
async def frozen_token(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")

    async def expect_frozen(payment_id: str, status: str) -> None:
        record = await alice.payment(payment_id)
        world.expect(record["status"], status, "3/pending-resolved")
        world.expect(await alice.ask(payment_id=payment_id), 402, "5/stored-records")

    freezes = (world.paused(), world.blacklisted(world.merchant), world.blacklisted(alice.address))
    for freeze in freezes:
        required = await alice.ask()
        header, held_base = alice.sign(required), await alice.balance()
        async with freeze:
            failed = await alice.pay(required, header)
            world.expect(failed, "Settlement failed", "4.1/settle-on-chain")
            world.expect(await alice.balance(), held_base, "4.1/settle-on-chain")
            await expect_frozen(required.payment_id, "pending")
        world.expect(await alice.pay(required, header), 200, "4.1/receipt")
        held_base -= required.price_base
        world.expect(await alice.balance(), held_base, "4.1/settle-on-chain")
        world.expect(await alice.ask(payment_id=required.payment_id), 200, "5/stored-records")

    required = await alice.ask()
    header = alice.sign(required)
    _, closes = alice.window(header)
    async with world.blacklisted(alice.address):
        await alice.pay(required, header)
        await expect_frozen(required.payment_id, "pending")
        await world.advance(until_s=closes + 120)
        await expect_frozen(required.payment_id, "failed")
    too_late = await alice.pay(required, header)
    world.expect(too_late, "Authorization expired", "7/authorization-expired")
    world.expect(len(await world.transfers(alice)), len(freezes), "3/pending-resolved")
    world.expect(await alice.balance(), held_base, "3/pending-resolved")
