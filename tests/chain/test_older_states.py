"""Reading the state after an older block: as it was then, and nothing is changed by it."""

import asyncio

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    RELAYER,
    SHOP,
    TOKEN,
    LedgerDriver,
    nonce,
)
from tests.chain.killed import operate
from tests.chain.test_ledger_file import contents
from x402sim.chain.base import Call
from x402sim.chain.ledger.machine import KEPT_STATES
from x402sim.protocol import abi

NONCES = [nonce(n) for n in range(12)]
CALLS = [
    *(abi.balance_of(who.address_bytes) for who in (ALICE, SHOP, MALLORY)),
    *(abi.authorization_state(ALICE.address_bytes, each) for each in NONCES),
    abi.TOTAL_SUPPLY,
]


def seen(driver: LedgerDriver, block: int | None = None) -> list[bytes]:
    """Return what the token and the accounts say, in the state after a block."""

    async def ask() -> list[bytes]:
        chain = driver.ledger
        calls = [Call(RELAYER.address_bytes, TOKEN, data) for data in CALLS]
        balances = [
            await chain.native_balance(who.address_bytes, block) for who in (RELAYER, OWNER)
        ]
        return [await chain.call(each, block) for each in calls] + [
            balance.to_bytes(32) for balance in balances
        ]

    return asyncio.run(ask())


def test_every_recent_state_is_as_it_was_and_reading_it_changes_nothing() -> None:
    """Through payments, cancellations, snapshots and reorganisations."""
    driver, then = LedgerDriver(), {}
    compared = 0
    for n, _ in zip(range(160), operate(driver), strict=False):
        head = driver.height()
        # A reorganisation, a revert to a snapshot or a block replaces what was there.
        then = {number: state for number, state in then.items() if number < head - 1}
        then[head] = seen(driver)
        if n % 20:
            continue
        before, order = contents(driver), [list(d) for d in contents(driver) if isinstance(d, dict)]
        log = list(driver.state._undo)
        for number in [each for each in then if each > head - KEPT_STATES]:
            assert seen(driver, number) == then[number]
            compared += number < head
        assert contents(driver) == before
        assert [list(d) for d in contents(driver) if isinstance(d, dict)] == order
        assert driver.state._undo == log
    assert compared > 50
