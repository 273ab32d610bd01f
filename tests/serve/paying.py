"""A payer in one step, by hand: httpx and `Wallet`."""

import httpx
import msgspec

from x402sim import LocalServer
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    RequirementsV1,
    Resource,
    Version,
    encode_payment,
    read_required,
)


class in_one_step:  # noqa: N801 - it reads like a function
    """Pays for a path at each call; `again` sends the last payment once more."""

    def __init__(self, http: httpx.Client, server: LocalServer, version: Version) -> None:
        self._http, self._server, self._version = http, server, version
        self._last = ("", dict[str, str]())

    def __call__(self, path: str) -> httpx.Response:
        required = self._http.get(path)
        assert required.status_code == 402, required.text
        first, wallet = required.json()["accepts"][0], self._server.wallets[0]
        now_s = self._server.clock.now_s()
        auth = Authorization(
            from_=wallet.address_bytes,
            to=parse_address(first["payTo"]),
            value=int(first["maxAmountRequired"]),
            valid_after=now_s - 60,
            valid_before=now_s + first["maxTimeoutSeconds"],
            nonce=wallet._nonces(),
        )
        signature = wallet.sign(auth, self._server.network.domain)
        if self._version == 1:
            text = encode_payment(auth, signature, msgspec.convert(first, RequirementsV1))
        else:
            offered = read_required(required.headers["PAYMENT-REQUIRED"])
            url = offered.resource.url if offered.resource else ""
            text = encode_payment(auth, signature, offered.accepts[0], Resource(url=url))
        self._last = path, {PAYMENT_HEADERS[self._version]: text}
        return self.again()

    def again(self) -> httpx.Response:
        path, headers = self._last
        return self._http.get(path, headers=headers)
