"""Reading the state after an older block: the former values, and no change."""

import asyncio

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    TOKEN,
    LedgerDriver,
    nonce,
    payment,
)
from tests.chain.test_ledger_file import contents
from x402sim.chain.base import Call, Reverted
from x402sim.chain.ledger import machine
from x402sim.chain.ledger.state import _ABSENT, Changes
from x402sim.protocol import abi
from x402sim.protocol.crypto import keccak256

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


def test_the_state_after_every_block_is_kept(driver: LedgerDriver, monkeypatch) -> None:
    """ponder reads with `readContract` at blocks that are long past."""
    monkeypatch.setattr(machine, "KEPT_BLOCKS", 16)
    then = [seen(driver)]
    for number in range(200):
        if number % 7 == 0:
            driver.run(driver.ledger.fund(ALICE.address_bytes, 1 + number))
        else:
            driver.send(payment(number, value=1))
        if number % 50 == 49:
            driver.reorg(3)  # the last of three blocks has all then
            then[-2:] = [then[-3]] * 2
        then.append(seen(driver))
    assert driver.height() == len(then) - 1 == 200
    before = contents(driver)
    assert [seen(driver, number) for number in range(201)] == then
    assert contents(driver) == before


def test_a_call_in_an_old_state_does_what_it_did_then_and_leaves_no_trace(
    driver: LedgerDriver,
) -> None:
    first = Call(RELAYER.address_bytes, TOKEN, payment("first"))
    driver.send(first.data)
    driver.run(driver.ledger.mine(500))
    before = contents(driver)
    assert driver.run(driver.ledger.call(first, 0)) == b""
    with pytest.raises(Reverted, match="used or canceled"):
        driver.run(driver.ledger.call(first, 1))
    balance = bytes(keccak256(abi.word(SHOP.address_bytes) + abi.word(9)))
    for slot, were in ((balance, (0, 10_000)), (abi.word(11), (START_BASE, START_BASE))):
        words = [driver.run(driver.ledger.storage(TOKEN, slot, block)) for block in (0, 1)]
        assert words == [*map(abi.word, were)]
    assert contents(driver) == before


@pytest.mark.parametrize(
    "olds",
    [
        [5, 7, 0],
        [_ABSENT, 1, 10**30, 2**256 - 1, 0, _ABSENT, 3],
        [2**64 - 2, 2**64 - 1, 2**64],
        [b"a", 1, _ABSENT],
        [1, 2**200, "a", True, 2],
        [True, False, _ABSENT],
    ],
)
def test_what_a_value_was_is_kept_whatever_it_was(olds: list) -> None:
    for kept in range(len(olds) + 1):
        changes, seen = Changes(), []
        for number, old in enumerate(olds):
            changes.note(10 * number, old)
            changes.note(10 * number, "not the first of this block")
        assert changes.forget(10 * kept - 1) == kept
        for number, old in enumerate(olds[kept:], kept):
            changes.note(10 * number, old)
        seen = [changes.before(10 * number - 1, "now") for number in range(len(olds) + 1)]
        assert seen == [*olds, "now"]
        assert [type(each) for each in seen] == [*map(type, olds), str]
