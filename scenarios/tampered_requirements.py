"""Mallory changes one field of the requirements at a time, and signs an authorization that agrees
with her version: a smaller amount, her own address. Each is refused before the facilitator is
asked, and the payment id grants nothing. With unchanged requirements the check passes, and the next
one refuses the date of her signature.
"""

from x402sim import LiveWorld, scenario

CHANGES = {
    "scheme": ("2.1/scheme", "upto"),
    "network": ("2.1/network", "cronos-mainnet"),
    "asset": ("2.1/asset", "0x" + "12" * 20),
    "maxAmountRequired": ("2.1/amount", "1"),
    "maxTimeoutSeconds": ("2.1/timeout", 86_400),
    "resource": ("2.1/resource", "/api/sessions/create"),
    "description": ("2.1/description", "A present"),
}
LONG_AGO = 1
"""The validBefore of what Mallory signs: even a service that is taken in cannot charge her."""


@scenario(
    title="Tampered requirements: every changed field of the requirements is refused",
    covers=(
        "2.1/scheme, 2.1/network, 2.1/pay-to, 2.1/asset, 2.1/amount, 2.1/timeout, 2.1/resource, "
        "2.1/description, 4.1/validate"
    ),
)
async def tampered_requirements(world: LiveWorld) -> None:
    mallory = await world.payer("mallory")
    required = await mallory.ask()
    header = mallory.sign(required, valid_before=LONG_AGO)
    cheaper = mallory.sign(required, valid_before=LONG_AGO, value=1)
    for field, (clause, value) in CHANGES.items():
        agreeing = cheaper if field == "maxAmountRequired" else header
        tampered = await mallory.pay(required, agreeing, requirements={field: value})
        world.expect(tampered, "Payment requirements do not match", clause)

    to_herself = mallory.sign(required, valid_before=LONG_AGO, to=mallory.address)
    diverted = await mallory.pay(required, to_herself, requirements={"payTo": mallory.address})
    world.expect(diverted, "Payment requirements do not match", "2.1/pay-to")
    world.expect(await mallory.ask(payment_id=required.payment_id), 402, "4.1/validate")

    untouched = await mallory.pay(required, header)
    world.expect(untouched, "Authorization expired", "7/authorization-expired")
