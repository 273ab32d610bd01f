"""The published Cronos client library pays here, and takes our facilitator for the real one."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from crypto_com_facilitator_client import CronosNetwork, Facilitator
from crypto_com_facilitator_client.integrations import facilitator_api, facilitator_registry

from tests.interop.table import shows
from tests.rig import ORDER
from x402sim import LocalServer


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as running:
        yield running


@pytest.fixture
def library(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Facilitator:
    """The library, asking our chain for the chain id instead of the public one."""
    registry = facilitator_registry.NETWORK_REGISTRY
    config = replace(registry[CronosNetwork.CronosTestnet], rpc_url=server.rpc_url)
    monkeypatch.setitem(registry, CronosNetwork.CronosTestnet, config)
    return Facilitator(network=CronosNetwork.CronosTestnet)


def header_for(library: Facilitator, server: LocalServer, wanted: dict[str, object]) -> str:
    header: str = asyncio.run(
        library.generate_payment_header(
            to=str(wanted["payTo"]),
            value=str(wanted["maxAmountRequired"]),
            signer=server.wallets[0].private_key,
            valid_before=server.clock.now_s() + 300,
        )
    )
    return header


@shows("client", "PyPI crypto-com-facilitator-client", "Cronos", "ledger")
def test_its_header_pays_for_a_quote(library: Facilitator, server: LocalServer) -> None:
    with httpx.Client(base_url=server.url) as http:
        required = http.post("/api/perp/quote", json=ORDER).json()
        wanted = required["paymentRequirements"]
        extra = {"mimeType": "application/json", "extra": {}, "outputSchema": {"kind": "x"}}
        paid = http.post(
            "/api/pay",
            json={
                "paymentId": required["paymentId"],
                "paymentHeader": header_for(library, server, wanted),
                "paymentRequirements": {**wanted, **extra},
            },
        )
        assert paid.status_code == 200, paid.text
        proof = {"X-Payment-Id": required["paymentId"]}
        assert http.post("/api/perp/quote", json=ORDER, headers=proof).status_code == 200


def test_it_accepts_our_facilitators_answers(library: Facilitator, server: LocalServer) -> None:
    base = server.facilitator_url
    assert facilitator_api.get_supported(base_url=base) == {
        "kinds": [{"x402Version": 1, "scheme": "exact", "network": "cronos-testnet"}]
    }
    wanted = library.generate_payment_requirements(
        pay_to=server.info.pay_to, max_amount_required="1234"
    )
    request = library.build_verify_request(header_for(library, server, wanted), wanted)
    verified = facilitator_api.verify_payment(base_url=base, body=request)
    assert verified == {"isValid": True, "invalidReason": None}
    settled = facilitator_api.settle_payment(base_url=base, body=request)
    assert (settled["event"], settled["value"]) == ("payment.settled", "1234")
    assert settled["from"] == server.wallets[0].address
    again = facilitator_api.settle_payment(base_url=base, body=request)
    assert (again["event"], again["error"]) == ("payment.failed", "Authorization already used")
