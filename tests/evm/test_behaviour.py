"""The token that the product deploys on anvil behaves as the ledger's: it accepts and refuses the same
payments, moves the same money and leaves the same events. Words, gas and the order of checks differ.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.campaign import at_length
from tests.chain.helpers import (
    ALICE,
    NOW_S,
    RELAYER,
    SHOP,
    authorization,
    nonce,
    transfer_call,
)
from tests.evm.helpers import PLAYERS, Town
from tests.evm.test_equality import ACCOUNTS, CANCELLING, SPENDING, WINDOWS_S, event, signed, some
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    cancel_digest,
    transfer_digest,
)

Attempt = tuple[bytes, Wallet]


@st.composite
def attempts(draw: Callable) -> Attempt:
    """Return a payment, receipt, cancellation or transfer, right or wrong in any way."""
    payer, faults = draw(st.sampled_from([ALICE, ALICE, SHOP])), draw(some(SPENDING))
    account, used = payer.address_bytes, nonce(draw(st.integers(0, 5)))
    to, amount = draw(st.sampled_from(ACCOUNTS[:-1])), draw(st.sampled_from([0, 1, 5000, 10**9]))
    match draw(st.sampled_from(["pay", "receive", "cancel", "transfer"])):
        case "transfer":
            return abi.transfer(to, amount), payer
        case "cancel":
            wrong = faults & set(CANCELLING)
            signature = signed(lambda domain: cancel_digest(account, used, domain), payer, wrong)
            return abi.cancel_authorization(account, used, signature), RELAYER
        case kind:
            opens, closes = next((WINDOWS_S[f] for f in WINDOWS_S if f in faults), (-60, 300))
            auth = authorization(
                from_=account,
                to=to,
                value=amount,
                valid_after=NOW_S + opens,
                valid_before=NOW_S + closes,
                nonce=used,
            )
            is_receive = (kind == "receive") != ("the other type" in faults)
            typehash = RECEIVE_TYPEHASH if is_receive else TRANSFER_TYPEHASH
            signature = signed(
                lambda domain: transfer_digest(auth, domain, typehash), payer, faults
            )
            payee = next((w for w in PLAYERS if w.address_bytes == to), RELAYER)
            caller = RELAYER if "a stranger calls" in faults else payee
            return transfer_call(auth, signature, receive=kind == "receive"), caller


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
