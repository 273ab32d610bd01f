"""Two metered services verify the same approval at once: each sees that 0.05 tokens are approved,
and works. The quick one settles 0.04. The slow one has used 0.03, and 0.01 is left: nothing can be
settled, so it keeps the answer back and says why. Alice approves more, the service settles in the
background, and her message gets the kept answer without new work. Bob does the same, and approves
nothing: his message expires, and the slow service's work stays unpaid, as does its answer.
"""

import asyncio
from typing import Any

from x402sim import LiveWorld, scenario


@scenario(
    title="Shared allowance: two services accept one approval, and the slower service works unpaid",
    covers="3/pending-resolved, 5/nonce-once, upto/unpaid, upto/used",
    needs="funds, clock, other services, observe chain, control chain",
)
async def shared_allowance(world: LiveWorld) -> None:
    works = []

    async def slow(_: Any) -> tuple[str, str]:
        works.append("slow")
        await world.clock.sleep(3)
        return "a long answer", "0.03"

    first = await world.another_service(sells={"POST /answer upto 0.05": slow})
    second = await world.another_service(sells={"POST /answer upto 0.05": ("short", "0.04")})
    for name in ("alice", "bob"):
        payer = await world.payer(name, balance="1.00")
        await payer.approve("0.05")
        at_first, at_second = payer.at(first), payer.at(second)
        header = at_first.sign(await at_first.ask("/answer"), steps=1)
        other = at_second.sign(await at_second.ask("/answer"), steps=1)
        before = await world.earned()

        asking = asyncio.create_task(at_first.ask("/answer", header=header))
        await world.clock.sleep(1)
        world.expect(await at_second.ask("/answer", header=other), 200, "upto/used")
        unpaid = await asking
        world.expect(unpaid, "Settlement pending", "upto/unpaid")
        reason = "permit2_allowance_required" in unpaid.reason
        world.expect(reason, True, "upto/unpaid")
        world.expect(unpaid.text.find("a long answer"), -1, "upto/unpaid")
        world.expect(await world.earned() - before, 40_000, "upto/unpaid")

        if name == "alice":
            await payer.approve("0.03")
        await world.advance(400)
        again = await at_first.ask("/answer", header=header)
        paid = 30_000 if name == "alice" else 0
        world.expect(again, 200 if paid else 402, "3/pending-resolved")
        world.expect(await world.earned() - before, 40_000 + paid, "upto/unpaid")
        world.expect(len(await world.transfers(payer)), 2 if paid else 1, "5/nonce-once")
    world.expect(len(works), 2, "upto/used")
