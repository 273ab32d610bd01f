"""A metered service reads the stream of a language model, one token a second, and counts; nothing
goes out before the settlement. Alice hangs up after three of ten tokens: the model goes on, the
service settles what was used, and keeps the answer. The same message gets it later, whole, without
new work and new money. For Bob the answer of the settlement is lost as well: the chain says that
the money has moved, and he is served, once.
"""

from typing import Any

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Metered hang-up: who hangs up in a stream pays for the work, and gets the answer later",
    covers="3/pending-resolved, 5/nonce-once, upto/used",
    needs="funds, clock, faults, other services, observe chain, control chain",
)
async def metered_hang_up(world: LiveWorld) -> None:
    works = []

    async def answer(_: Any) -> tuple[str, str]:
        works.append("answer")
        tokens: list[str] = []
        while len(tokens) < 10:
            await world.clock.sleep(1)
            tokens.append("token")
        return " ".join(tokens), f"{0.001 * len(tokens):.3f}"

    shop = await world.another_service(sells={"POST /answer upto 0.05": answer})
    for name in ("alice", "bob"):
        payer = (await world.payer(name, balance="1.00")).at(shop)
        await payer.approve("0.05")
        header = payer.sign(await payer.ask("/answer"), steps=1)
        if name == "bob":
            lost = Fault(victim="facilitator", does="lose answer", path="/settle")
            await world.fault(lost)
        payer.http.timeout = 3.5
        world.expect(await payer.ask("/answer", header=header), None, "upto/used")
        world.expect(len(await world.transfers(payer)), 0, "upto/used")

        await world.advance(20)
        (moved,) = await world.transfers(payer)
        world.expect(moved.amount_base, "10000", "upto/used")
        kept = await payer.ask("/answer", header=header)
        world.expect(kept, 200, "3/pending-resolved")
        world.expect(kept.text.count("token"), 10, "upto/used")
        world.expect(kept.settlement and kept.settlement.transaction, moved.tx_hash, "upto/used")
        world.expect(await payer.ask("/answer", header=header), 402, "5/nonce-once")
        world.expect(len(await world.transfers(payer)), 1, "5/nonce-once")
    world.expect(len(works), 2, "upto/used")
