"""Alice signs a valid payment and then breaks the payment in every possible way, in the header and
in the requirements. The facilitator gives the reason, whether asked to verify or to settle, and
moves no money. The valid payment is verified, which moves no money either, and settled, once.
"""

from typing import Any

from x402sim import LiveWorld, scenario


@scenario(
    title="The facilitator refuses: direct requests with every kind of invalid payment",
    covers=(
        "2.1/scheme, 2.1/network, 2.1/asset, 5/exact-recipient, 5/exact-amount, "
        "5/signature-proves, 4.1/verify-signature, 4.1/settle-on-chain, 5/nonce-once"
    ),
    needs="funds, observe chain",
)
async def facilitator_refuses(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    mallory = await world.payer("mallory")
    required = await alice.ask()
    good, token = alice.sign(required), mallory.address.lower()
    rewrite = alice.rewrite_header
    price, too_much = required.price_base, required.price_base + 1

    async def ask(verb: str, header: str, changed: dict[str, str] | None = None) -> Any:
        return await world.ask_facilitator(verb, alice, required, header, requirements=changed)

    recipient, signature = "Recipient does not match payTo address", "Invalid EIP-3009 signature"
    spoiled: list[tuple[str, str, str, dict[str, str]]] = [
        ("2.1/scheme", "Unsupported scheme: upto", rewrite(good, scheme="upto"), {}),
        ("2.1/scheme", "Unsupported scheme: upto", good, {"scheme": "upto"}),
        ("2.1/network", "Unsupported network: mars", rewrite(good, network="mars"), {}),
        ("2.1/network", "Unsupported network: mars", good, {"network": "mars"}),
        ("2.1/asset", f"Unsupported asset: {token}", rewrite(good, asset=token), {}),
        ("2.1/asset", f"Unsupported asset: {token}", good, {"asset": token}),
        ("5/exact-recipient", recipient, alice.sign(required, to=mallory.address), {}),
        ("5/exact-recipient", recipient, good, {"payTo": mallory.address}),
        ("5/exact-amount", f"Invalid amount: {too_much}", alice.sign(required, value=too_much), {}),
        ("5/exact-amount", f"Invalid amount: {price}", good, {"maxAmountRequired": f"{too_much}"}),
        ("5/signature-proves", signature, alice.sign(required, by=mallory.wallet), {}),
        ("5/signature-proves", signature, rewrite(good, nonce=bytes(32)), {}),
    ]  # fmt: skip
    for clause, because, header, changed in spoiled:
        verdict = await ask("verify", header, changed)
        world.expect(verdict["invalidReason"], because, clause)
        outcome = await ask("settle", header, changed)
        world.expect(outcome["event"], "payment.failed", clause)

    verdict = await ask("verify", good)
    world.expect(verdict["isValid"], True, "4.1/verify-signature")
    world.expect(len(await world.transfers(alice)), 0, "4.1/verify-signature")
    outcome = await ask("settle", good)
    world.expect(outcome["event"], "payment.settled", "4.1/settle-on-chain")
    outcome = await ask("settle", good)
    world.expect(outcome.get("error"), "Authorization already used", "5/nonce-once")
    world.expect(await world.earned(), price, "4.1/settle-on-chain")
