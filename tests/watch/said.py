"""Exchanges with shops of the standard, as a proxy would have seen them."""

import base64
import json
from typing import Any

from msgspec import convert

from x402sim import Wallet
from x402sim.clock import Clock
from x402sim.payer.signing import choose, sign
from x402sim.protocol.networks import BASE, BASE_SEPOLIA, Network
from x402sim.protocol.x402 import RequiredV1, RequiredV2
from x402sim.watch.proxy import Exchange, Kept

MAIN = BASE
NOW_S = int(Clock().now())
SHOP = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
ALICE = Wallet("0x" + "11" * 32)
TX = "0x" + "ab" * 32


def packed(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def terms(network: Network = BASE_SEPOLIA) -> dict[str, Any]:
    return {
        "scheme": "exact",
        "network": network.caip2,
        "amount": "10000",
        "asset": "0x" + network.asset.hex(),
        "payTo": SHOP,
        "maxTimeoutSeconds": 300,
        "extra": {"name": network.token_name, "version": network.token_version},
    }


def required(network: Network = BASE_SEPOLIA, url: str = "https://shop/w") -> dict[str, Any]:
    return {"x402Version": 2, "error": "pay", "resource": {"url": url}, "accepts": [terms(network)]}


def signed(now_s: int, network: Network = BASE_SEPOLIA, said: Any = None, **wrong: Any) -> str:
    """Return the header of a payment for a 402, by default of version 2."""
    said = said or required(network)
    asked = convert(said, RequiredV1 if said["x402Version"] == 1 else RequiredV2)
    offer = choose(asked, network, permit2=True)
    _, header = sign(offer, ALICE, network, now_s, changes=wrong)
    return header


def signed_v1(now_s: int) -> tuple[dict[str, Any], str]:
    offer = {
        **terms(),
        "network": "base-sepolia",
        "maxAmountRequired": "10000",
        "resource": "https://shop/w",
        "description": "",
    }
    del offer["amount"]
    said = {"x402Version": 1, "error": "pay", "accepts": [offer]}
    return said, signed(now_s, said=said)


def settled(network: Network = BASE_SEPOLIA, **fields: Any) -> dict[str, Any]:
    return {
        "success": True,
        "transaction": TX,
        "network": network.caip2,
        "payer": ALICE.address,
        **fields,
    }


def exchange(
    number: int,
    *,
    target: str = "/w",
    method: str = "GET",
    sent: dict[str, str] | None = None,
    body: Any = b"",
    status: int | None = 200,
    answered: dict[str, str] | None = None,
    answer: Any = b"",
    broke: str = "",
    began: float = float(NOW_S),
    client: str = "127.0.0.1",
) -> Exchange:
    def kept(content: Any) -> Kept:
        found = Kept()
        found.add(content if isinstance(content, bytes) else json.dumps(content).encode())
        return found

    def raw(headers: dict[str, str] | None) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    return Exchange(
        number=number,
        client=client,
        method=method,
        target=target,
        url=f"https://shop{target}",
        headers=[(b"Host", b"shop"), *raw(sent)],
        began=began,
        sent=kept(body),
        ended=began + 0.01,
        status=status,
        answer_headers=raw(answered),
        answered=kept(answer),
        broke=broke,
    )


def offer(number: int, network: Network = BASE_SEPOLIA, **more: Any) -> Exchange:
    """Return an exchange in which a shop asks for a payment."""
    said = packed(required(network))
    return exchange(number, status=402, answered={"PAYMENT-REQUIRED": said}, answer=b"{}", **more)


def paid(number: int, header: str, network: Network = BASE_SEPOLIA, **more: Any) -> Exchange:
    """Return an exchange in which a payment is settled and served."""
    fields = {"answered": {"PAYMENT-RESPONSE": packed(settled(network))}, "answer": b"sold"} | more
    return exchange(number, sent={"PAYMENT-SIGNATURE": header}, **fields)
