import pytest

from x402sim.protocol.refusals import Finality, Refusal, SettlementRefused, is_final, status_of
from x402sim.spec.decisions import Decisions, alternatives

SWITCHES = {
    Refusal.INSUFFICIENT_BALANCE: "insufficient_balance_status",
    Refusal.INVALID_SIGNATURE: "invalid_signature_status",
    Refusal.NONCE_USED: "nonce_used_status",
    Refusal.EXPIRED: "authorization_expired_status",
    Refusal.ALREADY_SETTLED: "already_settled_status",
    Refusal.MISMATCH: "requirements_mismatch_status",
    Refusal.PENDING: "settlement_pending_status",
    Refusal.UNREACHABLE: "facilitator_unreachable_status",
    Refusal.CHAIN_UNREACHABLE: "facilitator_unreachable_status",
}


@pytest.mark.clause(
    "7/insufficient-balance", "7/invalid-signature", "7/nonce-already-used",
    "7/authorization-expired", "7/payment-already-settled",
)  # fmt: skip
def test_the_five_texts_of_section_7():
    assert [str(SettlementRefused(refusal)) for refusal in list(Refusal)[:5]] == [
        "Insufficient USDC balance",
        "Invalid signature",
        "Nonce already used",
        "Authorization expired",
        "Payment already settled",
    ]


@pytest.mark.parametrize("chosen", [Decisions(), alternatives()], ids=["default", "alternative"])
def test_each_status_that_may_differ_is_the_one_decided(chosen):
    decided = {r: status_of(r, chosen) for r in Refusal if not isinstance(r.row.status, int)}
    assert decided == {refusal: getattr(chosen, name) for refusal, name in SWITCHES.items()}


# --- whether an attempt is over --------------------------------------------------------------


@pytest.mark.parametrize("refusal", Refusal, ids=lambda refusal: refusal.name)
def test_a_refusal_is_as_final_as_its_row_unless_the_answer_says_otherwise(refusal):
    by_row = refusal.row.final is Finality.FINAL
    assert SettlementRefused(refusal).final is is_final(refusal.text) is by_row
    for told in (True, False):
        assert SettlementRefused(refusal, final=told).final is is_final(refusal.text, told) is told


def test_only_known_texts_are_final():
    final = {refusal for refusal in Refusal if is_final(refusal.text)}
    assert set(Refusal) - final == {
        Refusal.PENDING, Refusal.UNREACHABLE, Refusal.CHAIN_UNREACHABLE, Refusal.FAILED
    }  # fmt: skip
    assert not is_final("Too Many Requests")
    assert not is_final("nonce already used")
    assert is_final("Too Many Requests", True)
