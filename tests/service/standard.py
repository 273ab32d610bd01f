"""A client of the x402 standard, and answers of a Cronos facilitator, written by hand."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
import msgspec

from tests.rig import ServiceRig
from x402sim.chain.base import Call
from x402sim.http.web import Connection
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash, parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import authorization_of, encode_header
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    RESPONSE_HEADERS,
    RequirementsV1,
    Resource,
    Settlement,
    Version,
    encode_payment,
    json_in,
    read_required,
)

QUOTE, MARKET, AGENTS = "/api/perp/quote", "/api/perp/market", "/api/agents"


def sign(
    rig: ServiceRig,
    version: Version,
    required: httpx.Response,
    wallet: Wallet | None = None,
    *,
    signer: Wallet | None = None,
    network: Any = TESTNET,
    claims: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, str]:
    """Return the header of a payment for a 402; `changes` are signed, `claims` are only said."""
    body = required.json()
    first = body["accepts"][0]
    payer = wallet or rig.alice
    now_s = rig.clock.now_s()
    fields: dict[str, Any] = {
        "from_": payer.address_bytes,
        "to": parse_address(first["payTo"]),
        "value": int(first["maxAmountRequired"]),
        "valid_after": now_s - 600,
        "valid_before": now_s + first["maxTimeoutSeconds"],
        "nonce": payer._nonces(),
    }
    auth = Authorization(**(fields | changes))
    signature = (signer or payer).sign(auth, network.domain)
    if version == 1:
        text = encode_payment(auth, signature, msgspec.convert(first, RequirementsV1))
    else:
        offered = read_required(required.headers["PAYMENT-REQUIRED"])
        resource = Resource(url=offered.resource.url if offered.resource else "")
        text = encode_payment(auth, signature, offered.accepts[0], resource)
    return {PAYMENT_HEADERS[version]: changed(text, claims or {})}


def changed(text: str, claims: dict[str, Any]) -> str:
    """Return a payment with some of its fields changed; a dot leads into an object."""
    said = json.loads(base64.b64decode(text))
    for path, value in claims.items():
        *outer, name = path.split(".")
        inside = said
        for each in outer:
            inside = inside[each]
        inside[name] = value
    return base64.b64encode(json.dumps(said).encode()).decode()


def settlement_of(version: Version, answer: httpx.Response) -> Settlement:
    """Return what an answer says became of the payment."""
    return json_in(answer.headers[RESPONSE_HEADERS[version]], Settlement)


async def record(rig: ServiceRig, required: httpx.Response) -> dict[str, Any]:
    """Return the record of the payment for a 402."""
    return await rig.record(required.json()["paymentId"])


async def is_served(rig: ServiceRig, required: httpx.Response) -> bool:
    """Tell whether the payment id of a 402 is served."""
    return (await rig.ask(x_payment_id=required.json()["paymentId"])).status_code == 200


def in_form(header: str, form: Callable[[bytes], bytes]) -> str:
    """Return a payment header with another form of its signature."""
    auth, signature = authorization_of(header)
    return encode_header(auth, form(signature), TESTNET)


def low_v(signature: bytes) -> bytes:
    return signature[:64] + bytes([signature[64] - 27])


async def submit(rig: ServiceRig, header: str) -> Hash:
    """Submit a signed authorization as a third party; return the transaction hash."""
    data = abi.transfer_with_authorization(*authorization_of(header))
    return await rig.parts.chain.send(Call(rig.bob.address_bytes, TESTNET.asset, data))


@dataclass
class On(Connection):
    """An open connection: whether its client gets its answer."""

    answered: bool = True

    def is_answered(self) -> bool:
        return self.answered


def set_up(rig: ServiceRig, *, decide: dict[str, Any] | None = None, **settings: Any) -> None:
    old = rig.service.env.settings
    decisions = replace(old.decisions, **(decide or {}))
    new = replace(old, decisions=decisions, **settings)
    object.__setattr__(rig.service.env, "settings", new)


def failed(error: str) -> dict[str, Any]:
    """Return a Cronos facilitator's answer that a settlement has failed."""
    return {
        "x402Version": 1, "event": "payment.failed", "network": TESTNET.name, "timestamp": "",
        "error": error,
    }  # fmt: skip


def settled(
    rig: ServiceRig, required: httpx.Response, tx_hash: str, **changes: str
) -> dict[str, Any]:
    """Return a Cronos facilitator's answer that a payment of Alice has settled."""
    asked = required.json()["paymentRequirements"]
    return {
        "x402Version": 1, "event": "payment.settled", "txHash": tx_hash,
        "from": rig.alice.address, "to": asked["payTo"], "value": asked["maxAmountRequired"],
        "blockNumber": 1, "network": asked["network"], "timestamp": "", **changes,
    }  # fmt: skip
