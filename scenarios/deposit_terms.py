"""Alice pays the deposit of a small, short session, then repeats the request with a body that asks
for a thousand times as much for a day, and once more without a readable body. She gets the session
that she paid for, with the paid amount and length: two quotes and not a third, until the session
ends on time.
"""

from typing import Any

from x402sim import LiveWorld, scenario

SESSIONS = "/api/sessions/create"
DEPOSIT, DURATION_S = "0.02", 60


@scenario(
    title="Deposit terms: the paid deposit determines the session, not the later request",
    covers="3/deposit-makes-session, 4.4/deposit-flow, 4.4/max-spend, 5/session-condition",
    needs="funds, clock, observe chain",
)
async def deposit_terms(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask_session(DEPOSIT, DURATION_S)
    world.expect(required.price_base, 20_000, "4.4/max-spend")
    world.expect(await alice.pay(required), 200, "4.4/deposit-flow")
    latest_ms = (world.clock.now() + DURATION_S + 1) * 1000

    seen: set[Any] = set()
    proof = {"X-Payment-Id": required.payment_id}
    for body in ({"maxSpend": "20.00", "duration": 86_400}, None, {"maxSpend": "free"}):
        opened = await alice.send("POST", SESSIONS, json=body, headers=proof)
        world.expect(opened.status in (200, 201), True, "4.4/deposit-flow")
        world.expect(opened.body["deposited"], "20000", "3/deposit-makes-session")
        world.expect(opened.body["expiresAt"] <= latest_ms, True, "3/deposit-makes-session")
        seen.add(opened.body["sessionId"])
    world.expect(len(seen), 1, "3/deposit-makes-session")
    world.expect(len(await world.transfers(alice)), 1, "4.4/deposit-flow")

    (session_id,) = seen
    for served in (200, 200, 402):
        world.expect(await alice.ask(session_id=session_id), served, "5/session-condition")
    view = await alice.session(session_id)
    world.expect((view["released"], view["remaining"]), ("20000", "0"), "2.6/remaining")

    short = await alice.open_session("0.02", DURATION_S)
    await world.advance(DURATION_S + 1)
    world.expect(await alice.ask(session_id=short.body["sessionId"]), 402, "5/session-condition")
