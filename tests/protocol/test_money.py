import pytest
from hypothesis import given, strategies as st

from tests.strategies import uint256
from x402sim.protocol.money import parse_base, to_base, to_decimal

NOT_BASE_UNITS = {
    "exponent": "1e3",
    "leading-zero": "010",
    "space-before": " 1",
    "minus": "-1",
    "empty": "",
    "decimal": "1.0",
    "hex": "0x10",
    "arabic-digits": "١٠٠",
    "superscript": "1²",
    "too-large": str(2**256),
    "newline-at-end": "10000\n",
}
NOT_DECIMALS = {
    "exponent": "1e3",
    "leading-zero": "01.00",
    "space-before": " 1.00",
    "minus": "-1.00",
    "empty": "",
    "no-whole": ".50",
    "no-fraction": "1.",
    "comma": "1,00",
    "arabic-digits": "١.٠٠",
    "newline-at-end": "1.00\n",
    "far-too-large": "9" * 10_000 + ".00",
}


@pytest.mark.parametrize("text", NOT_BASE_UNITS.values(), ids=NOT_BASE_UNITS)
def test_parse_base_refuses(text):
    with pytest.raises(ValueError, match="expected base units") as refused:
        parse_base(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("text", NOT_DECIMALS.values(), ids=NOT_DECIMALS)
def test_to_base_refuses(text):
    with pytest.raises(ValueError, match="expected a plain decimal"):
        to_base(text, 6)


@pytest.mark.parametrize(
    ("text", "amount_base"),
    [
        ("0.00", 0),
        ("0.01", 10_000),
        ("0.29", 290_000),  # 0.29 * 1e6 is not exact in floats
        ("8.20", 8_200_000),
        ("1.15", 1_150_000),
        ("9007199254740993.00", (2**53 + 1) * 10**6),
        ("1", 1_000_000),
        ("1.000001", 1_000_001),
        ("1.5000000000", 1_500_000),
    ],
)
def test_to_base_is_exact(text, amount_base):
    assert to_base(text, 6) == amount_base


def test_to_base_never_rounds_a_digit_away():
    with pytest.raises(ValueError, match="expected at most 6 fraction digits"):
        to_base("1.0000001", 6)


@pytest.mark.parametrize(
    ("amount_base", "text"),
    [
        (0, "0.00"),
        (1, "0.000001"),
        (10_000, "0.01"),
        (8_200_000, "8.20"),
        (-10_000, "-0.01"),
        (2**53 + 1, "9007199254.740993"),
    ],
)
def test_to_decimal_has_two_digits_and_no_other_trailing_zeros(amount_base, text):
    assert to_decimal(amount_base, 6) == text


@pytest.mark.parametrize("text", ["5", "5.00"])
def test_a_token_may_have_no_decimals(text):
    assert to_base(text, 0) == 5


@given(amount=uint256, decimals=st.integers(1, 30))
def test_amounts_round_trip(amount, decimals):
    assert to_base(to_decimal(amount, decimals), decimals) == amount
