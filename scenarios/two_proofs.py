"""Alice has paid for a quote and also has a session. She sends both proofs: the payment grants, and
her session is not debited (decision 5/precedence). Then she presents a payment for another
resource, then one that was never paid: her session pays. When the session is spent, the valid
payment still grants access, and the invalid ones do not.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title=(
        "Two proofs: with a payment and a session, the session is debited only if the payment is "
        "invalid"
    ),
    covers="5/cache-first, 5/resource-binding, 5/session-debit",
    needs="funds",
)
async def two_proofs(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    quote = await alice.buy()
    deposit = await alice.ask_session("0.02", 3600)
    await alice.pay(deposit)
    opened = await alice.ask_session("0.02", 3600, payment_id=deposit.payment_id)
    session_id = opened.body["sessionId"]
    unpaid = await alice.ask()

    steps = (
        (quote, 200, "0", "5/cache-first"),
        (deposit, 200, "10000", "5/resource-binding"),
        (unpaid, 200, "20000", "5/session-debit"),
        (quote, 200, "20000", "5/cache-first"),
        (deposit, 402, "20000", "5/resource-binding"),
        (unpaid, 402, "20000", "5/session-debit"),
    )
    for shown, status, released, clause in steps:
        answer = await alice.ask(payment_id=shown.payment_id, session_id=session_id)
        world.expect(answer, status, clause)
        view = await alice.session(session_id)
        world.expect(view["released"], released, clause)
