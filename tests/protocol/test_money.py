import re
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from tests.strategies import uint256
from x402sim.protocol.money import to_base, to_decimal


@given(whole=st.integers(0, 10**30), fraction=st.text("0123456789", max_size=12))
def test_a_decimal_is_read_exactly_or_not_at_all(whole, fraction):
    text = f"{whole}.{fraction}" if fraction else str(whole)
    exact = Fraction(text) * 10**6
    if exact.denominator == 1:
        assert to_base(text, 6) == exact
    else:
        with pytest.raises(ValueError, match="expected at most 6 fraction digits"):
            to_base(text, 6)


@given(amount=uint256, decimals=st.integers(0, 30))
def test_an_amount_has_two_digits_and_no_other_trailing_zeros(amount, decimals):
    text = to_decimal(amount, decimals)
    assert re.fullmatch(r"\d+\.\d\d(\d*[1-9])?", text)
    assert Fraction(text) * 10**decimals == amount == to_base(text, decimals)
    assert to_decimal(-amount, decimals) == ("-" if amount else "") + text
