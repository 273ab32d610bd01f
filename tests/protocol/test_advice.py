"""What to do about a refusal: by the words of every dialect, and the same as `pay --wrong` says."""

import pytest

from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol import cronos, x402_reasons
from x402sim.protocol.advice import ADVICE, advice_for
from x402sim.protocol.rules import InvalidReason


def test_every_mistake_has_its_advice() -> None:
    assert set(MISTAKES) == set(ADVICE)
    assert set(advice_for().values()) == set(ADVICE.values())


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
        (x402_reasons.invalid_reason(1, InvalidReason.ASSET), None),  # or another domain
        (x402_reasons.NONCE_USED[1], None),  # or any other state
    ],
)
def test_the_longest_beginning_that_fits_has_the_advice(told: str, name: str | None) -> None:
    known = advice_for()
    fitting = sorted((each for each in known if told.startswith(each)), key=len)
    assert (known[fitting[-1]] if fitting else None) == (ADVICE[name] if name else None)
