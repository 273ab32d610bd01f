"""The causes of reverts, whichever contract of a token states them."""

import pytest

from x402sim.chain.reverts import Cause, cause


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Shop: caller is not the manager", Cause.OWNER),
        ("TokenV9: authorization is used or canceled", Cause.NONCE),
        ("Token: transfer amount exceeds balance", Cause.BALANCE),
        ("Voucher: permit is expired", Cause.LATE),
        ("", Cause.CALL),
        ("Shop: closed on Sundays", Cause.OTHER),
    ],
)
def test_a_reason_of_another_contract_has_the_same_cause(reason: str, expected: Cause) -> None:
    assert cause(reason) is expected
