"""A payer in one step, by hand: httpx and `Wallet`; and what a shop sends to its facilitator."""

import json
from typing import Any

import httpx
import msgspec

from x402sim import LocalServer, Wallet
from x402sim.payer.signing import choose, sign
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    AnyRequired,
    RequiredV1,
    RequiredV2,
    Version,
    domain_of,
    from_base64,
    network_name,
    read_required,
)

URL = "http://127.0.0.1:8000/weather"
SHOP = "0x" + "77" * 20


def asked_of_facilitator(
    wallet: Wallet, network: Network, now_s: int, version: Version = 2, **wrong: Any
) -> dict[str, Any]:
    """Return the body of verify and settle for a new payment of 10000 to `SHOP`."""
    terms = {
        "scheme": "exact", "network": network_name(version, network), "payTo": SHOP,
        "asset": checksum(network.asset), "maxTimeoutSeconds": 300, "extra": domain_of(network),
    }  # fmt: skip
    if version == 1:
        terms |= {"maxAmountRequired": "10000", "resource": URL, "description": "The weather"}
    else:
        terms |= {"amount": "10000"}
    said = {"x402Version": version, "accepts": [terms], "resource": {"url": URL}}
    required = msgspec.convert(said, RequiredV1 if version == 1 else RequiredV2)
    _, header = sign(choose(required, network), wallet, network, now_s, changes=wrong)
    payment = json.loads(from_base64(header))
    return {"x402Version": version, "paymentPayload": payment, "paymentRequirements": terms}


def approve(server: LocalServer, amount_base: int = 10**6) -> None:
    """Let account 0 approve Permit2, as the guide says."""
    call = {
        "from": server.wallets[0].address,
        "to": checksum(server.network.asset),
        "data": to_hex(abi.approve(PERMIT2, amount_base)),
    }
    sent = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendTransaction", "params": [call]}
    assert "result" in httpx.post(server.rpc_url, json=sent).json()


class in_one_step:  # noqa: N801 - it reads like a function
    """Pays for a path at each call; `again` sends the last payment once more."""

    def __init__(self, http: httpx.Client, server: LocalServer, version: Version) -> None:
        self._http, self._server, self._version = http, server, version
        self._last = ("", dict[str, str]())

    def __call__(self, path: str) -> httpx.Response:
        required, network = self._http.get(path), self._server.network
        assert required.status_code == 402, required.text
        if self._version == 1:
            asked: AnyRequired = msgspec.convert(required.json(), RequiredV1)
        else:
            asked = read_required(required.headers["PAYMENT-REQUIRED"])
        # an offer without payment ids sells a single answer
        offer = msgspec.structs.replace(choose(asked, network), takes_payment_ids=False)
        _, text = sign(offer, self._server.wallets[0], network, self._server.clock.now_s())
        self._last = path, {PAYMENT_HEADERS[self._version]: text}
        return self.again()

    def again(self) -> httpx.Response:
        path, headers = self._last
        return self._http.get(path, headers=headers)
