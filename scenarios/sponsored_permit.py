"""Alice has never approved Permit2, and has no coins to pay for that. A metered service answers 412
before it works. She signs again, with a permit for exactly the maximum (EIP-2612), and the
facilitator sends both in one transaction: she is served, pays what was used, and no gas. A permit
for a nonce that the token has used already approves nothing, and is refused before the work.
"""

from typing import Any

from x402sim import LiveWorld, scenario


@scenario(
    title="Sponsored permit: the facilitator pays for the approval that the payer has signed",
    covers="1/payer-pays-no-gas, 5/nonce-once, upto/sponsored, upto/used",
    needs="funds, other services, observe chain, fiat token",
)
async def sponsored_permit(world: LiveWorld) -> None:
    works = []

    def answer(_: Any) -> tuple[str, str]:
        works.append("answer")
        return "the sky is blue", "0.0123"

    shop = await world.another_service(sells={"POST /answer upto 0.05": answer})
    alice = (await world.payer("alice", balance="1.00")).at(shop)
    required = await alice.ask("/answer")

    unapproved = await alice.ask("/answer", header=alice.sign(required, steps=1))
    world.expect(unapproved, 412, "upto/sponsored")
    world.expect(len(works), 0, "upto/sponsored")

    header = alice.sign(required, steps=1, permit_nonce=0)
    paid = await alice.ask("/answer", header=header)
    world.expect(paid, 200, "upto/sponsored")
    world.expect(paid.settlement and paid.settlement.amount, "12300", "upto/used")
    (moved,) = await world.transfers(alice)
    world.expect(moved.tx_hash, paid.settlement and paid.settlement.transaction, "upto/used")
    world.expect(await alice.balance(), 1_000_000 - 12_300, "1/payer-pays-no-gas")

    again = await alice.ask("/answer", header=alice.sign(required, steps=1, permit_nonce=0))
    world.expect(again, 412, "5/nonce-once")
    world.expect(len(works), 1, "upto/sponsored")
    next_one = await alice.ask("/answer", header=alice.sign(required, steps=1, permit_nonce=1))
    world.expect(next_one, 200, "upto/sponsored")
    world.expect(await world.earned(shop), 2 * 12_300, "5/nonce-once")
