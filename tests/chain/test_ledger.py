"""The ledger beside what `tests/evm/test_chain_interface.py` asks of every chain."""

import asyncio

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    LedgerDriver,
    cancel_call,
    nonce,
    payment,
)
from x402sim.chain.base import Block, ChainError
from x402sim.chain.fees import GAS_LIMIT, GAS_PRICE_WEI
from x402sim.chain.ledger.machine import KEPT_BLOCKS
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash

SHORT = payment("short", value=START_BASE + 1)


@pytest.fixture
def driver() -> LedgerDriver:
    return LedgerDriver()


@pytest.fixture
def on_demand(driver) -> LedgerDriver:
    """A ledger that mines only when told to."""
    driver.set_automine(False)
    return driver


def hashes(driver: LedgerDriver) -> list[Hash]:
    """Return the hash of every block, having checked that each points to the one before."""
    ledger = driver.ledger

    async def read() -> list[Block | None]:
        chain = [await ledger.block(n) for n in range(await ledger.height() + 1)]
        assert [await ledger.block(b.hash) for b in chain] == chain
        return chain

    chain = asyncio.run(read())
    assert [b.number for b in chain] == list(range(len(chain)))
    assert [b.parent for b in chain] == [bytes(32), *(b.hash for b in chain[:-1])]
    return [b.hash for b in chain]


def is_conserved(driver: LedgerDriver, minted: int) -> bool:
    return driver.state.supply == sum(driver.state.balances.values()) == minted


# --- blocks and transactions ---------------------------------------------------------


def test_equal_operations_make_equal_chains():
    chains = []
    for _ in range(2):
        driver = LedgerDriver()
        driver.send(payment())
        driver.now[0] += 3
        driver.mine()
        driver.reorg(1)
        chains.append(hashes(driver))
    assert chains[0] == chains[1]


def test_native_currency_spent_while_waiting_reverts(on_demand):
    most = on_demand.native_balance(ALICE.address_bytes) - GAS_LIMIT * GAS_PRICE_WEI
    sent = [on_demand.put(b"", ALICE, to=SHOP.address_bytes, value=most) for _ in range(20)]
    on_demand.mine()
    assert [on_demand.receipt(tx).succeeded for tx in sent] == [True] + [False] * 19
    assert (
        on_demand.native_balance(ALICE.address_bytes) == 0
    )  # the gas took what was left, and never more


# --- going back ----------------------------------------------------------------------


def everything(driver: LedgerDriver) -> tuple:
    """Return all that a revert brings back, for comparison."""
    state = driver.state
    return tuple(
        dict(part)
        for part in (
            state.balances,
            state.authorizations,
            state.blacklisted,
            state.switches,
            state.native,
            state.account_nonces,
            state.blocks,
            state.block_numbers,
            state.transactions,
            state.receipts,
            state.waiting,
        )
    )


def busy(driver: LedgerDriver, name: str) -> None:
    """Do a little of everything, leaving one transaction waiting."""
    driver.set_automine(True)
    driver.send(payment(f"{name} 1"))
    driver.send(cancel_call(nonce(f"{name} 2")))
    driver.send(abi.mint(MALLORY.address_bytes, 9), OWNER)
    driver.send(SHORT)
    driver.send(abi.calldata(abi.BLACKLIST, MALLORY.address_bytes), OWNER)
    driver.set_automine(False)
    driver.put(payment(f"{name} 3"))
    driver.now[0] += 5


def test_a_revert_brings_everything_back(driver):
    busy(driver, "before")
    before = everything(driver)
    number = driver.snapshot()
    busy(driver, "after")
    driver.mine(3)
    assert everything(driver) != before
    driver.revert(number)
    assert everything(driver) == before
    assert is_conserved(driver, START_BASE + 9)
    driver.mine()
    assert driver.balance(SHOP) == 20_000


def test_snapshot_ids_are_never_given_twice(driver):
    first = driver.snapshot()
    driver.revert(first)
    assert driver.snapshot() > first


@pytest.mark.parametrize(("dropped", "following"), [([1], 1), ([0], 2), ([0, 1], 0)])
def test_the_account_nonce_of_a_dropped_transaction_is_free_again(driver, dropped, following):
    sent = [driver.put(payment(n)) for n in range(2)]
    driver.reorg(2, drop=[sent[n] for n in dropped])
    assert driver.account_nonce(RELAYER.address_bytes) == following


# --- a long chain --------------------------------------------------------------------


def test_a_long_chain_drops_old_undo_data_only(driver):
    driver.fund(SHOP.address_bytes, 5)
    early = driver.put(payment("early"))
    driver.mine(2 * KEPT_BLOCKS)
    late = driver.put(payment("late"))
    driver.mine(KEPT_BLOCKS - 1)
    height = driver.height()
    assert driver.state._forgotten > 0

    with pytest.raises(ChainError, match=r"cannot replace the last \d+ blocks; the last \d+ can"):
        driver.reorg(height)
    driver.reorg(KEPT_BLOCKS)
    assert driver.block(height).tx_hashes == (late,)
    assert driver.receipt(late).succeeded
    assert driver.receipt(early).block_number == 2
    assert len(hashes(driver)) == height + 1
    assert (driver.balance(SHOP), driver.balance(ALICE)) == (20_005, START_BASE - 20_000)
    assert is_conserved(driver, START_BASE + 5)
    assert driver.send(payment("early")).succeeded is False


@pytest.mark.parametrize("extra", [0, 1, KEPT_BLOCKS - 1])
def test_the_promised_reach_is_kept_at_every_height(driver, extra):
    driver.mine(2 * KEPT_BLOCKS + extra)
    old = hashes(driver)
    driver.reorg(KEPT_BLOCKS)
    new = hashes(driver)
    assert [a == b for a, b in zip(old, new, strict=True)].count(True) == len(old) - KEPT_BLOCKS


def test_a_snapshot_is_remembered_however_long_the_chain_grows(driver):
    driver.send(payment(1))
    before, number = everything(driver), driver.snapshot()
    driver.mine(2 * KEPT_BLOCKS)
    driver.send(payment(2))
    driver.revert(number)
    assert everything(driver) == before
    driver.mine(2 * KEPT_BLOCKS)
    assert driver.state._forgotten > 0
    assert driver.balance(SHOP) == 10_000


def test_reset_begins_again(driver):
    busy(driver, "before")
    driver.reset()
    assert everything(driver) == everything(LedgerDriver(now=driver.now))
    assert not driver.ledger.machine.automine
    driver.mine()
    assert driver.put(payment()) in driver.state.waiting
