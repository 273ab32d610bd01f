"""A client of the official SDK, unmodified, asks for resources and pays for them.

Told: `url`, `asks` ([method, path, body], ...), `library` ("httpx" or "requests"), `version`, `key`,
`network` (as the version names it), `limits` (whether the SDK's own spend controls hold), `names`
(whether it names its payments by the extension payment-identifier; then the first answer to each is
lost, and it is sent again as it is). Prints
for each answer its status, its body, and the settlement that the SDK reads from its headers.

The SDK takes version 2 where a server offers both, so for version 1 the header of version 2 is
taken off the 402, as a server of that version would answer.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import requests
from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.extensions.payment_identifier import append_payment_identifier_to_extensions
from x402.http import (
    PAYMENT_REQUIRED_HEADER,
    PAYMENT_RESPONSE_HEADER,
    PAYMENT_SIGNATURE_HEADER,
    X_PAYMENT_RESPONSE_HEADER,
    decode_payment_response_header,
)
from x402.http.clients.httpx import x402AsyncTransport
from x402.http.clients.requests import x402HTTPAdapter
from x402.mechanisms.evm.exact import ExactEvmScheme
from x402.mechanisms.evm.exact.v1 import ExactEvmSchemeV1


class FirstVersionTransport(httpx.AsyncHTTPTransport):
    """What a server of version 1 answers."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        response.headers.pop(PAYMENT_REQUIRED_HEADER, None)
        return response


class FirstVersionAdapter(x402HTTPAdapter):
    """What a server of version 1 answers."""

    def build_response(self, request: Any, raw: Any) -> requests.Response:
        response = super().build_response(request, raw)
        response.headers.pop(PAYMENT_REQUIRED_HEADER, None)
        return response


class LosingTransport(httpx.AsyncHTTPTransport):
    """A network that loses the first answer to a payment; the same request is sent again."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if PAYMENT_SIGNATURE_HEADER in request.headers:
            lost = await super().handle_async_request(request)
            await lost.aread()
        return await super().handle_async_request(request)


def client_of(kind: Any, told: dict[str, Any]) -> Any:
    """Return a client that pays in one version."""
    client, signer = kind(), Account.from_key(told["key"])
    if told.get("names"):
        client.on_before_payment_creation(
            lambda seen: append_payment_identifier_to_extensions(seen.payment_required.extensions)
        )
    if not told["limits"]:
        client.set_spend_controls(False)
    if told["version"] == 1:
        return client.register_v1(told["network"], ExactEvmSchemeV1(signer))
    return client.register(told["network"], ExactEvmScheme(signer))


async def with_httpx(told: dict[str, Any]) -> list[Any]:
    kind = LosingTransport if told.get("names") else httpx.AsyncHTTPTransport
    inner = FirstVersionTransport() if told["version"] == 1 else kind()
    transport = x402AsyncTransport(client_of(x402Client, told), inner)
    async with httpx.AsyncClient(transport=transport, base_url=told["url"], timeout=30) as http:
        return [
            seen(await http.request(method, path, json=body)) for method, path, body in told["asks"]
        ]


def with_requests(told: dict[str, Any]) -> list[Any]:
    client = client_of(x402ClientSync, told)
    adapter = FirstVersionAdapter(client) if told["version"] == 1 else x402HTTPAdapter(client)
    with requests.Session() as session:
        session.mount("http://", adapter)
        return [
            seen(session.request(method, told["url"] + path, json=body, timeout=30))
            for method, path, body in told["asks"]
        ]


def seen(response: Any) -> dict[str, Any]:
    headers = (PAYMENT_RESPONSE_HEADER, X_PAYMENT_RESPONSE_HEADER)
    settlements = {
        name: decode_payment_response_header(response.headers[name]).model_dump(by_alias=True)
        for name in headers
        if name in response.headers
    }
    return {"status": response.status_code, "body": response.json(), "settlements": settlements}


told = json.load(sys.stdin)
answers = asyncio.run(with_httpx(told)) if told["library"] == "httpx" else with_requests(told)
print(json.dumps(answers))
