"""The token that the product deploys on anvil behaves as the ledger's: it accepts and refuses the same
payments, moves the same money and leaves the same events. Words, gas and the order of checks differ.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.campaign import at_length
from tests.chain.helpers import ALICE, NOW_S, RELAYER, SHOP, nonce
from tests.evm.helpers import PLAYERS, Town
from tests.evm.test_equality import (
    ACCOUNTS,
    CANCELLING,
    SPENDING,
    cancelling,
    event,
    some,
    spending,
)
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.networks import TESTNET

Attempt = tuple[bytes, Wallet]


@st.composite
def attempts(draw: Callable) -> Attempt:
    """Return a payment, receipt, cancellation or transfer, right or wrong in any way."""
    payer, used = draw(st.sampled_from([ALICE, ALICE, SHOP])), nonce(draw(st.integers(0, 5)))
    faults = draw(some(SPENDING)) - {"as bytes"}
    to, amount = draw(st.sampled_from(ACCOUNTS[:-1])), draw(st.sampled_from([0, 1, 5000, 10**9]))
    kind = draw(st.sampled_from(["pay", "receive", "cancel", "transfer"]))
    if kind == "transfer":
        return abi.transfer(to, amount), payer
    if kind == "cancel":
        return cancelling(payer, used, faults & set(CANCELLING), TESTNET.domain), RELAYER
    place = {"now_s": NOW_S, "used": used, "domain": TESTNET.domain}
    return spending(payer, to, amount, faults, receive=kind == "receive", **place)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [5, pytest.param(at_length(50, 200), marks=pytest.mark.thorough)])
def test_the_token_on_anvil_accepts_and_refuses_the_same_payments(town: Town, times: int) -> None:
    @settings(max_examples=times, suppress_health_check=list(HealthCheck))
    @given(st.lists(attempts(), min_size=5, max_size=20))
    def compare(some_attempts: list[Attempt]) -> None:
        town.begin()
        both = [town.driver(town.anvil), town.driver(town.ledger())]
        for data, sender in some_attempts:
            real, ours = (driver.send(data, sender) for driver in both)
            assert ours.succeeded == real.succeeded
            assert [*map(event, ours.logs)] == [*map(event, real.logs)]
        for wallet in PLAYERS:
            assert both[0].balance(wallet) == both[1].balance(wallet)

    compare()
