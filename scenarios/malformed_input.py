"""A fuzzer sends bodies that are not JSON, not an object, of a wrong type, or too large to every
POST endpoint; then payment headers that are not hex, not JSON, or lack their payload; then invalid
proofs of payment. It never gets access, and never a 5xx.
"""

import json

from x402sim import LiveWorld, scenario

BODIES = {
    "nothing": b"",
    "half an object": b'{"paymentId": "pay_',
    "null": b"null",
    "a number": b"1e999",
    "no UTF-8": b"\xff\xfe{}",
    "wrong types": b'{"paymentId": 1, "paymentHeader": [], "maxSpend": 1.5, "pair": {}}',
    "deep nesting": b'{"a":' * 50_000,
    "2 MiB": b'{"pair": "' + b"A" * 2**21 + b'"}',
}
HEADERS = {
    "empty": "",
    "no hex": "0xzz",
    "no base64": "a payment!",
    "null": "0x" + b"null".hex(),
    "an array": "0x" + b"[1, 2]".hex(),
    "no payload": "0x" + json.dumps({"x402Version": 1, "scheme": "exact"}).encode().hex(),
    "half a MiB": "0x" + "00" * 2**18,
}
JUNK = ("", "null", "pay_", "pay_" + "A" * 6000, "pay_../../etc", "pay_%00", "' OR 1=1 --")


@scenario(
    title="Malformed input: every malformed request gets a 4xx, never a 5xx and never content",
    covers="4.1/validate, 7/invalid-signature, 7/payment-required",
)
async def malformed_input(world: LiveWorld) -> None:
    fuzzer = await world.payer("fuzzer")
    for path in ("/api/pay", "/api/sessions/create", "/api/perp/quote"):
        for name, body in BODIES.items():
            refused = await fuzzer.send("POST", path, json=body)
            said = f"{path}, {name}: {(refused.status or 0) // 100}xx"
            world.expect(said, f"{path}, {name}: 4xx", "4.1/validate")
            world.expect("quote" in refused.body, False, "7/payment-required")

    required = await fuzzer.ask()
    for name, header in HEADERS.items():
        refused = await fuzzer.pay(required, header)
        said = f"{name}: {refused.error}"
        world.expect(said, f"{name}: Invalid signature", "7/invalid-signature")

    for junk in JUNK:
        for proof in ({"payment_id": junk}, {"session_id": junk}):
            world.expect(await fuzzer.ask(**proof), 402, "7/payment-required")
