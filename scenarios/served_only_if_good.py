"""Alice has a session and a payment. With each she sends invalid orders: they are refused, and her
session is not debited. A valid order is served and debited once. Without a proof the same invalid
orders get the 402, not the schema error. An order that costs more than her budget is not served,
and not debited either.
"""

from x402sim import LiveWorld, scenario

GOOD = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
BAD = {
    "no pair": {name: value for name, value in GOOD.items() if name != "pair"},
    "no such pair": GOOD | {"pair": "bitcoin"},
    "no such side": GOOD | {"side": "sideways"},
    "leverage as text": GOOD | {"leverage": "10"},
    "no leverage at all": GOOD | {"leverage": 0},
    "negative size": GOOD | {"sizeUsd": -1000},
    "a list": [GOOD],
}


@scenario(
    title="Served only if valid: a request that is not served costs nothing",
    covers="1/session-no-402, 4.2/quote, 5/session-condition, 5/session-debit",
    needs="funds",
)
async def served_only_if_good(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    session_id = (await alice.open_session("0.02", 3600)).body["sessionId"]
    for name, order in BAD.items():
        for proof in ({"session_id": session_id}, {"payment_id": paid.payment_id}):
            refused = await alice.ask(order=order, **proof)
            world.expect(f"{name}: {refused.status}", f"{name}: 400", "4.2/quote")
        unpaid = await alice.ask(order=order)
        world.expect(f"{name}: {unpaid.status}", f"{name}: 402", "1/unpaid-402")
    view = await alice.session(session_id)
    world.expect(view["released"], "0", "5/session-debit")

    for released, status, clause in (
        ("10000", 200, "1/session-no-402"),
        ("20000", 200, "1/session-no-402"),
        ("20000", 402, "5/session-condition"),
    ):
        world.expect(await alice.ask(session_id=session_id), status, clause)
        view = await alice.session(session_id)
        world.expect(view["released"], released, "5/session-debit")
