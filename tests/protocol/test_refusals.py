import pytest

from x402sim.protocol.refusals import (
    Refusal,
    SettlementRefused,
    is_final,
    status_of,
)
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
}


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        pytest.param(refusal, text, marks=pytest.mark.clause(clause), id=clause)
        for refusal, text, clause in [
            (Refusal.INSUFFICIENT_BALANCE, "Insufficient USDC balance", "7/insufficient-balance"),
            (Refusal.INVALID_SIGNATURE, "Invalid signature", "7/invalid-signature"),
            (Refusal.NONCE_USED, "Nonce already used", "7/nonce-already-used"),
            (Refusal.EXPIRED, "Authorization expired", "7/authorization-expired"),
            (Refusal.ALREADY_SETTLED, "Payment already settled", "7/payment-already-settled"),
        ]
    ],
)
def test_the_five_texts_of_section_7(refusal, text):
    assert refusal.value == text
    assert str(SettlementRefused(refusal)) == text


@pytest.mark.parametrize("chosen", [Decisions(), alternatives()], ids=["default", "alternative"])
@pytest.mark.parametrize("refusal", SWITCHES, ids=lambda r: r.name)
def test_each_status_is_the_one_decided(refusal, chosen):
    assert status_of(refusal, chosen) == getattr(chosen, SWITCHES[refusal])


def test_every_status_that_a_decision_chooses_is_in_the_table_above():
    assert set(SWITCHES) == {r for r in Refusal if not isinstance(r.row.status, int)}


# --- whether an attempt is over --------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("text", [*(refusal.text for refusal in Refusal), "Too Many Requests"])
def test_the_final_of_an_answer_counts_before_its_text(text, told):
    assert is_final(text, told) is told


def test_without_the_field_only_known_texts_are_final():
    final = {refusal for refusal in Refusal if is_final(refusal.text)}
    assert set(Refusal) - final == {Refusal.PENDING, Refusal.UNREACHABLE, Refusal.FAILED}
    assert not is_final("Too Many Requests")
    assert not is_final("nonce already used")


@pytest.mark.parametrize("refusal", Refusal, ids=lambda refusal: refusal.name)
def test_a_refusal_is_as_final_as_its_row_unless_the_service_says_otherwise(refusal):
    assert SettlementRefused(refusal).final is (refusal.row.final is True)
    assert SettlementRefused(refusal, final=True).final
    assert not SettlementRefused(refusal, final=False).final
