"""Alice spends a session request by request until one price is left, and then asks five times at
once: one request is served. Bob leaves most of his budget unspent; in the second in which his
session expires he is refused, before any sweep has run. Then he is paid back exactly the rest,
once, and Alice nothing. All of it is counted on the chain.
"""

import asyncio

from x402sim import LiveWorld, scenario


@scenario(
    title="Session exhaustion: a budget can be spent to the last unit, and the rest is refunded",
    covers=(
        "1/session-no-402, 2.6/remaining, 5/session-condition, 5/session-debit, 3/expiry-refund, "
        "3/refund-once"
    ),
    needs="funds, clock, observe chain",
)
async def session_exhaustion(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bob = await world.payer("bob", balance="1.00")
    price_base = (await alice.ask()).price_base
    held_base = await alice.balance()

    budget = (await alice.open_session("0.05", 3600)).body
    session_id, deposited = budget["sessionId"], int(budget["deposited"])
    for served in range(1, deposited // price_base):
        world.expect(await alice.ask(session_id=session_id), 200, "1/session-no-402")
        left = (await alice.session(session_id))["remaining"]
        world.expect(int(left), deposited - served * price_base, "2.6/remaining")

    rush = await asyncio.gather(*(alice.ask(session_id=session_id) for _ in range(5)))
    world.expect([each.status for each in rush].count(200), 1, "5/session-debit")
    world.expect(await alice.ask(session_id=session_id), 402, "5/session-condition")
    spent = await alice.session(session_id)
    world.expect((spent["released"], spent["remaining"]), (str(deposited), "0"), "5/session-debit")

    budget = (await bob.open_session("0.07", 3605)).body
    for _ in range(2):
        await bob.ask(session_id=budget["sessionId"])
    rest_base = int(budget["deposited"]) - 2 * price_base
    await world.advance(until_s=budget["expiresAt"] / 1000)
    world.expect(await bob.ask(session_id=budget["sessionId"]), 402, "5/session-condition")

    await world.advance(3600)
    refunded = await bob.session(budget["sessionId"])
    world.expect(refunded["status"], "refunded", "3/expiry-refund")
    refunds = [each.amount_base for each in await world.transfers(to=bob)]
    world.expect(refunds, [str(rest_base)], "3/refund-once")
    world.expect(await bob.balance(), held_base - 2 * price_base, "3/expiry-refund")
    world.expect(await world.transfers(to=alice), [], "3/refund-once")
    world.expect(await alice.balance(), held_base - deposited, "3/refund-once")
