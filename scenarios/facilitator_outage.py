"""The facilitator is down, or answers an error, a redirect, HTML, nothing, half an answer, or a
positive answer of the wrong shape. If that happens to the verification, nothing was charged; if it
happens to the settlement, money may have moved, and the payment stays pending. Alice is not served
meanwhile. Each time the facilitator recovers, and the same header buys the quote, once.
"""

from typing import Any

from x402sim import Fault, LiveWorld, scenario


def says(status: int, body: str, content_type: str = "application/json") -> dict[str, Any]:
    return {"does": "answer", "status": status, "body": body, "content_type": content_type}


TROUBLES: dict[str, dict[str, Any]] = {
    "down": {"does": "refuse"},
    "breaks off": {"does": "lose request"},
    "an error": says(500, '{"error": "oops"}'),
    "an error that says yes": says(500, '{"isValid": true, "invalidReason": null}'),
    "overloaded": says(429, '{"error": "Too Many Requests"}'),
    "a redirect": says(308, ""),
    "a page": says(200, "<h1>Welcome</h1>", "text/html"),
    "nothing": says(200, ""),
    "half an answer": says(200, '{"isValid": true, "event": "payment.sett'),
    "a list": says(200, "[true]"),
    "a failed success": says(200, '{"success": false, "isValid": "false"}'),
    "a bare yes": says(200, '{"success": true, "event": "payment.settled"}'),
}


@scenario(
    title="Facilitator outage: without a valid answer of the facilitator, the service fails closed",
    covers="4.1/settle-on-chain, 4.1/verify-signature, 5/stored-records",
    needs="funds, faults, observe chain",
)
async def facilitator_outage(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bought = 0
    for verb, clause in (("verify", "4.1/verify-signature"), ("settle", "4.1/settle-on-chain")):
        for name, trouble in TROUBLES.items():
            required = await alice.ask()
            header = alice.sign(required)
            await world.fault(Fault(victim="facilitator", path=f"/{verb}", **trouble))
            failed = await alice.pay(required, header)
            said = f"{verb}, {name}: {failed.error}"
            world.expect(said, f"{verb}, {name}: Facilitator unreachable", clause)
            world.expect(await alice.ask(payment_id=required.payment_id), 402, "5/stored-records")

            world.expect(await alice.pay(required, header), 200, clause)
            bought += 1
            world.expect(await world.earned(), bought * required.price_base, "5/nonce-once")
