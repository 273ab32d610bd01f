"""Alice asks for a quote without paying and reads the 402. Mallory tries invalid proofs: an unpaid
id, an id with a letter changed, an invented id, a session that does not exist. Each gets a 402 with
a new id. An invented id cannot be paid for either.
"""

from x402sim import LiveWorld, scenario

FIELDS = "asset description maxAmountRequired maxTimeoutSeconds network payTo resource scheme"


@scenario(
    title="Unpaid request: the 402 is complete, and no invalid proof gets access",
    covers=(
        "1/unpaid-402, 2.1/requirements, 2.2/body, 2.2/payment-id, 4.2/price, 7/payment-required, "
        "8/timeout"
    ),
)
async def unpaid_request(world: LiveWorld) -> None:
    alice = await world.payer("alice")
    required = await alice.ask()
    wanted = required.body["paymentRequirements"]
    world.expect(required, 402, "1/unpaid-402")
    world.expect(required, "Payment Required", "2.2/body")
    world.expect(" ".join(sorted(wanted)), FIELDS, "2.1/requirements")
    world.expect(wanted["scheme"], "exact", "2.1/scheme")
    world.expect(wanted["resource"], "/api/perp/quote", "2.1/resource")
    world.expect(wanted["maxAmountRequired"], "10000", "4.2/price")
    world.expect(wanted["maxTimeoutSeconds"], 300, "8/timeout")
    world.expect(required.body["network"], wanted["network"], "2.2/body")
    world.expect("10000" in required.body["message"], True, "2.2/body")

    mallory = await world.payer("mallory")
    last = required.payment_id[-1]
    changed = required.payment_id[:-1] + ("A" if last != "A" else "B")
    ids = {required.payment_id}
    for proof in (required.payment_id, changed, "pay_" + "x" * 60, "pay_", "0"):
        refused = await mallory.ask(payment_id=proof)
        world.expect(refused, 402, "7/payment-required")
        ids.add(refused.payment_id)
    world.expect(await mallory.ask(session_id="session_" + "0" * 40), 402, "7/payment-required")
    world.expect(len(ids), 6, "2.2/payment-id")

    for invented in (changed, "pay_" + "x" * 60):
        unpayable = await mallory.pay(required, "0x", payment_id=invented)
        world.expect(unpayable.body.get("success"), None, "2.2/payment-id")
        world.expect(unpayable, "Payment requirements do not match", "2.2/payment-id")
