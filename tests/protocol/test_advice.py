"""What to do about a refusal: by the words of every dialect, and the same as `pay --wrong` says."""

import pytest

from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol import cronos, x402, x402_reasons
from x402sim.protocol.advice import ADVICE, advice_for
from x402sim.protocol.rules import InvalidReason
from x402sim.protocol.x402_reasons import WORDS, Meaning, PaymentFate, meaning_of


def test_every_mistake_has_its_advice() -> None:
    assert set(MISTAKES) == set(ADVICE)
    assert set(advice_for().values()) >= set(ADVICE.values())


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (cronos.invalid_reason(InvalidReason.AMOUNT, "5000"), "amount"),
        (x402_reasons.invalid_reason(1, InvalidReason.AMOUNT), "amount"),
        (x402_reasons.invalid_reason(2, InvalidReason.AMOUNT), "amount"),
        (x402_reasons.invalid_reason(2, InvalidReason.EARLY), "not-yet-valid"),
        (x402_reasons.NONCE_USED[2], "replay"),
        ("Invalid EIP-3009 signature; signer: wanted 0x1, got 0x2", "signature"),
        ("Invalid EIP-3009 signature; signed in another domain: version", "domain"),
    ],
)
def test_the_longest_beginning_that_fits_has_the_advice(told: str, name: str) -> None:
    assert advised(told) == ADVICE[name]


def advised(told: str) -> str:
    known = advice_for()
    return known[max((each for each in known if told.startswith(each)), key=len)]


UNKNOWN = [
    *("settle_exact_node_failure", "invalid_exact_evm_transaction_failed", "rate_limited"),
    *("settle_exact_evm_transaction_confirmation_timed_out", "facilitator_unavailable"),
    *("settlement_failed", "transaction_failed", "unknown_error", "failed_to_execute_transfer"),
    *("a_word_of_tomorrow", "unexpected_settle_error", "invalid_transaction_state", "", "No."),
]
"""Words of a failed settlement, after which the money may have moved."""


@pytest.mark.parametrize("word", UNKNOWN)
def test_the_outcome_of_an_unknown_word_is_unknown(word: str) -> None:
    assert meaning_of(word) is Meaning.UNCLEAR
    assert "Sign no other" in advised(word)


def test_beside_a_transaction_nothing_is_refused_for_good() -> None:
    assert meaning_of(x402_reasons.FUNDS).fate is PaymentFate.REFUSED
    assert meaning_of(x402_reasons.FUNDS, "0x12").fate is PaymentFate.UNKNOWN


def test_every_word_of_ours_has_its_meaning() -> None:
    named = vars(x402_reasons).items()
    ours = {each for name, each in named if name[0].isupper() and isinstance(each, str)}
    ours |= {
        x402_reasons.invalid_reason(version, why) for version in (1, 2) for why in InvalidReason
    }
    ours |= {*x402_reasons.NONCE_USED.values(), *(each.value for each in cronos.SettleError)}
    ours |= {reason for reason, _ in x402._RESERVED.values()}
    assert ours <= set(WORDS)
    for why in cronos.INVALID_REASONS:
        assert meaning_of(cronos.invalid_reason(why, "5000")) is Meaning.WRONG


def test_a_word_has_one_meaning() -> None:
    assert len(WORDS) == sum(map(len, x402_reasons._MEANINGS.values()))
