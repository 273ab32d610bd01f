"""A second service sells answers of a language model `upto` 0.05 tokens. Alice has approved 0.0625
for Permit2, and signs the maximum. Her first answer uses 0.0123: so much is settled, and the rest
stays hers. Her second order uses nothing: the answer comes without a transaction, and the same
message buys the next answer. Only the money that moved has left her approval: the third maximum of
0.05 is not approved any more, and the service says so before it works.
"""

from typing import Any

from x402sim import LiveWorld, scenario


@scenario(
    title="Metered answer: the payer signs a maximum, and pays what was used",
    covers="1/unpaid-402, 5/exact-recipient, 5/nonce-once, upto/nothing, upto/used",
    needs="funds, other services, observe chain, control chain",
)
async def metered_answer(world: LiveWorld) -> None:
    used = ["0.0123", "0", "0.0003"]

    async def answer(_: Any) -> tuple[str, str]:
        await world.clock.sleep(2)
        return "the sky is blue", used.pop(0)

    shop = await world.another_service(sells={"POST /answer upto 0.05": answer})
    alice = (await world.payer("alice", balance="1.00")).at(shop)
    await alice.approve("0.0625")

    required = await alice.ask("/answer")
    world.expect(required, 402, "1/unpaid-402")
    world.expect(required.price_base, 50_000, "upto/used")
    header = alice.sign(required, steps=1)
    first = await alice.ask("/answer", header=header)
    world.expect(first, 200, "upto/used")
    world.expect(first.settlement and first.settlement.amount, "12300", "upto/used")
    world.expect(await alice.balance(), 1_000_000 - 12_300, "upto/used")
    (moved,) = await world.transfers(alice)
    offered = required.body["accepts"][0]
    world.expect(moved.to, offered["payTo"], "5/exact-recipient")
    world.expect(await alice.ask("/answer", header=header), 402, "5/nonce-once")

    header = alice.sign(required, steps=1)
    second = await alice.ask("/answer", header=header)
    world.expect(second, 200, "upto/nothing")
    world.expect(second.settlement and second.settlement.transaction, "", "upto/nothing")
    world.expect(len(await world.transfers(alice)), 1, "upto/nothing")
    third = await alice.ask("/answer", header=header)
    world.expect(third.settlement and third.settlement.amount, "300", "upto/nothing")

    fourth = await alice.ask("/answer", header=alice.sign(required, steps=1))
    world.expect(fourth, 412, "upto/used")
    world.expect("wanted 50000, got 49900" in str(fourth.error), True, "upto/used")
    world.expect(len(used), 0, "upto/used")
    world.expect(await world.earned(shop), 12_600, "5/nonce-once")
