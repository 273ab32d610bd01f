"""Alice's header holds one authorization, which can be written in many ways: base64, upper-case
hex, another order of keys, white space, addresses in another case, an unknown field. Each way pays.
After a payment both the header and the other spelling are replays: the same payment id has settled
already, and for another payment id the nonce is used.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

from x402sim import LiveWorld, scenario

Fields = dict[str, Any]


def as_hex(fields: Fields, **style: Any) -> str:
    return "0x" + json.dumps(fields, **style).encode().hex()


def in_case(fields: Fields, change: Callable[[str], str]) -> str:
    payload = fields["payload"]
    hexes = {n: "0x" + change(payload[n][2:]) for n in ("from", "to", "asset", "nonce")}
    return as_hex(fields | {"payload": payload | hexes})


SPELLINGS: dict[str, Callable[[Fields], str]] = {
    "base64": lambda fields: base64.b64encode(json.dumps(fields).encode()).decode(),
    "upper-case hex": lambda fields: "0x" + as_hex(fields)[2:].upper(),
    "white space": lambda fields: as_hex(fields, indent=4),
    "sorted keys": lambda fields: as_hex(fields, sort_keys=True),
    "one more field": lambda fields: as_hex({"memo": "again", **fields}),
    "lower-case values": lambda fields: in_case(fields, str.lower),
    "upper-case values": lambda fields: in_case(fields, str.upper),
}


@scenario(
    title="Re-encoded header: an authorization in another encoding is the same payment",
    covers="2.3/contents, 5/nonce-once, 7/nonce-already-used, 7/payment-already-settled",
    needs="funds, observe chain",
)
async def reencoded_header(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    for bought, (name, spelling) in enumerate(SPELLINGS.items(), 1):
        required, other = await alice.ask(), await alice.ask()
        header = alice.sign(required)
        respelled = spelling(json.loads(bytes.fromhex(header[2:])))
        paid = await alice.pay(required, respelled)
        world.expect(f"{name}: {paid.status}", f"{name}: 200", "2.3/contents")
        for again in (header, respelled):
            same = await alice.pay(required, again)
            world.expect(same, "Payment already settled", "7/payment-already-settled")
            replayed = await alice.pay(other, again)
            world.expect(replayed, "Nonce already used", "7/nonce-already-used")
        world.expect(len(await world.transfers(alice)), bought, "5/nonce-once")
