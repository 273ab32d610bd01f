"""The service's calls to others: what their answers mean."""

import pytest

from x402sim.protocol.cronos import SettleError
from x402sim.protocol.refusals import Refusal
from x402sim.service.upstream.cronos import refusal_of


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
