"""Alice sends the payment of a deposit five times at once, asks for its session five times at once,
crashes the service and asks again, and presents the payment of a quote as a deposit. The deposit
makes one session: of twenty requests at once exactly three are paid from it.
"""

import asyncio

from x402sim import LiveWorld, scenario

TERMS = ("0.03", 3600)


@scenario(
    title="Double session: one deposit opens one session, however often it is requested",
    covers="3/deposit-makes-session, 4.4/deposit-flow, 5/resource-binding, 5/session-debit",
    needs="funds, faults, observe chain",
)
async def double_session(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask_session(*TERMS)
    header, paid_by = alice.sign(required), required.payment_id
    paid = await asyncio.gather(*(alice.pay(required, header) for _ in range(5)))
    world.expect([answer.status for answer in paid].count(200), 1, "4.4/deposit-flow")
    world.expect(len(await world.transfers(alice)), 1, "4.4/deposit-flow")

    asked = (alice.ask_session(*TERMS, payment_id=paid_by) for _ in range(5))
    opened = await asyncio.gather(*asked)
    await world.crash()
    opened.append(await alice.ask_session(*TERMS, payment_id=paid_by))
    ids = {answer.body["sessionId"] for answer in opened}
    world.expect(len(ids), 1, "3/deposit-makes-session")

    quote = await alice.buy()
    world.expect(quote, 200, "4.1/receipt")
    unopened = await alice.ask_session(*TERMS, payment_id=quote.payment_id)
    world.expect(unopened, 402, "5/resource-binding")

    (session_id,) = ids
    answers = await asyncio.gather(*(alice.ask(session_id=session_id) for _ in range(20)))
    world.expect([answer.status for answer in answers].count(200), 3, "5/session-debit")
    view = await alice.session(session_id)
    world.expect(view["deposited"], "30000", "3/deposit-makes-session")
    world.expect(view["released"], "30000", "5/session-debit")
