"""The service's calls to others: what their answers mean."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from x402sim.http.exchange import OverClient
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.header import present
from x402sim.protocol.refusals import Refusal
from x402sim.service.setup import Setup
from x402sim.service.upstream.cronos import CRONOS, refusal_of
from x402sim.service.upstream.facilitator import Verdict


@pytest.mark.clause("7/insufficient-balance", "7/authorization-expired")
@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        ("Authorization already used", Refusal.NONCE_USED),
        ("Authorization expired", Refusal.EXPIRED),
        ("Authorization not yet valid", Refusal.INVALID_SIGNATURE),
        ("ERC20: transfer amount exceeds balance", Refusal.INSUFFICIENT_BALANCE),
        ("Invalid signature", Refusal.INVALID_SIGNATURE),
        ("Transaction failed on-chain", Refusal.FAILED),
        ("", Refusal.FAILED),
        ("authorization expired", Refusal.FAILED),
    ],
)
def test_an_error_of_a_cronos_facilitator_becomes_a_text_of_section_7(error, refusal):
    assert refusal_of(error) is refusal


def test_no_error_of_a_facilitator_claims_what_only_the_service_can_know():
    own = {Refusal.ALREADY_SETTLED, Refusal.MISMATCH, Refusal.PENDING, Refusal.UNREACHABLE}
    assert own.isdisjoint(refusal_of(error.value) for error in SettleError)


def test_the_dialect_of_the_settings_is_spoken():
    dialect = replace(
        CRONOS,
        verify_path="/v9/check",
        request=lambda payment, requirements: payment.text.encode(),
        read_verdict=lambda body: Verdict(is_valid=body == b"good"),
    )
    setup = Setup(
        private_key=b"k" * 32, facilitator_url="http://f", explorer_url="", rpc_url="",
        dialect=dialect,
    )  # fmt: skip
    seen = []

    def answer(request):
        seen.append((request.url.path, request.content))
        return httpx.Response(200, content=b"good")

    async def verdict():
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            return await setup.facilitator(OverClient(http)).verify(present("header"), None)

    assert asyncio.run(verdict()) == Verdict(is_valid=True)
    assert seen == [("/v9/check", b"header")]
