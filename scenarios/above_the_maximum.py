"""The handler of a metered service is wrong, and says that an answer of at most 0.05 tokens has
used 0.0501. The service answers 500, settles nothing, and hands nothing out. Alice's message has
paid for nothing: the mended handler serves her for the same message. Before that a greedy shop
takes the message to the facilitator, and asks for one base unit above the maximum: refused, too.
"""

from typing import Any

from x402sim import LiveWorld, scenario


@scenario(
    title="Above the maximum: a metered service that wants more than was signed gets nothing",
    covers="4.1/order, 5/nonce-once, upto/maximum",
    needs="funds, other services, observe chain, control chain",
)
async def above_the_maximum(world: LiveWorld) -> None:
    used = ["0.0501", "0.05"]

    def answer(_: Any) -> tuple[str, str]:
        return "the sky is blue", used.pop(0)

    shop = await world.another_service(sells={"POST /answer upto 0.05": answer})
    alice = (await world.payer("alice", balance="1.00")).at(shop)
    await alice.approve("1.00")
    required = await alice.ask("/answer")
    header = alice.sign(required, steps=1)

    wrong = await alice.ask("/answer", header=header)
    world.expect(wrong, 500, "upto/maximum")
    world.expect(wrong, "Amount used is wrong", "upto/maximum")
    world.expect(await world.earned(shop), 0, "4.1/order")

    greedy = await world.ask_facilitator(
        "settle", alice, required, header, version=2, requirements={"amount": "50001"}
    )
    refused = "invalid_upto_evm_payload_settlement_exceeds_amount"
    world.expect(greedy["errorReason"], refused, "upto/maximum")
    world.expect(await world.earned(shop), 0, "upto/maximum")

    world.expect(await alice.ask("/answer", header=header), 200, "upto/maximum")
    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")
    world.expect(await world.earned(shop), 50_000, "upto/maximum")
