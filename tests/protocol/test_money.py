import re
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from tests.strategies import uint256
from x402sim.protocol.money import base_in, parse_base, to_base, to_decimal

NOT_BASE_UNITS = [
    "9" * 5000,
    "1e3",
    "010",
    " 1",
    "-1",
    "",
    "1.0",
    "0x10",
    "١٠٠",
    "1²",
    str(2**256),
    "1\n",
]
NOT_DECIMALS = ["1e3", "01.00", " 1.00", "-1.00", "", ".50", "1.", "1,00", "١.٠٠", "1.00\n"]


@pytest.mark.parametrize("text", NOT_BASE_UNITS)
def test_parse_base_refuses(text):
    with pytest.raises(ValueError, match="expected base units") as refused:
        parse_base(text)
    assert len(str(refused.value)) < 250
    assert base_in(text) is None


@pytest.mark.parametrize("amount", [0, 10_000, 2**256 - 1])
def test_parse_base_reads_whatever_a_token_can_have(amount):
    assert parse_base(str(amount)) == base_in(str(amount)) == amount
    assert base_in(amount) is None, "a number is no text"


@pytest.mark.parametrize("text", [*NOT_DECIMALS, pytest.param("9" * 10_000 + ".00", id="long")])
def test_to_base_refuses(text):
    with pytest.raises(ValueError, match="expected a plain decimal"):
        to_base(text, 6)


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
