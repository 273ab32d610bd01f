"""Alice owes one price. She signs for one base unit more, for one less, for nothing. She signs for
a tenth and writes the full price over the tenth; she signs the full price and writes a tenth. She
lowers, raises and respells the amount in the requirements, with a matching signature. The service
accepts none of these payments; then the service accepts the exact amount, and earns no more.
"""

from x402sim import LiveWorld, scenario


@scenario(
    title="Wrong amount: only the exact amount is accepted, signed as it is sent",
    covers="5/exact-amount, 2.1/amount, 5/signature-proves, 7/invalid-signature",
    needs="funds, observe chain",
)
async def wrong_amount(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    required = await alice.ask()
    price_base = required.price_base

    for value in (price_base + 1, price_base - 1, 2 * price_base, 0):
        signed = await alice.pay(required, alice.sign(required, value=value))
        world.expect(signed, "Invalid signature", "7/invalid-signature")
        why = f"Invalid amount: {value}; value: wanted {price_base}, got {value}"
        world.expect(signed.reason, why, "5/exact-amount")

    cheap = alice.sign(required, value=price_base // 10)
    raised = await alice.pay(required, alice.rewrite_header(cheap, value=price_base))
    world.expect(raised, "Invalid signature", "7/invalid-signature")
    why = "Invalid EIP-3009 signature"
    world.expect(raised.reason.split(";")[0], why, "5/signature-proves")
    lowered = await alice.pay(
        required, alice.rewrite_header(alice.sign(required), value=price_base // 10)
    )
    why = f"Invalid amount: {price_base // 10}"
    world.expect(lowered.reason.split(";")[0], why, "5/exact-amount")

    for value in (price_base - 1, price_base + 1, 1):
        fitting = alice.sign(required, value=value)
        tampered = await alice.pay(
            required, fitting, requirements={"maxAmountRequired": str(value)}
        )
        world.expect(tampered, "Payment requirements do not match", "2.1/amount")
        world.expect(tampered.reason.split(":")[0], "maxAmountRequired", "2.1/amount")
    respelled = await alice.pay(required, requirements={"maxAmountRequired": f"0{price_base}"})
    world.expect(respelled, "Payment requirements do not match", "2.1/amount")

    world.expect(await alice.ask(payment_id=required.payment_id), 402, "5/exact-amount")
    world.expect(len(await world.transfers(alice)), 0, "5/exact-amount")

    exact = await alice.pay(required)
    world.expect(exact, 200, "5/exact-amount")
    world.expect(await world.earned(), price_base, "5/exact-amount")
