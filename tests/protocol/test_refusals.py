import pytest

from x402sim.protocol.refusals import Finality, Refusal, SettlementRefused, is_final


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
