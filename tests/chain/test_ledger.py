"""The ledger beside what `tests/evm/test_chain_interface.py` asks of every chain."""

import asyncio

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    SHOP,
    START_BASE,
    LedgerDriver,
    authorization,
    payment,
    signature_of,
    transfer_call,
)
from tests.chain.test_ledger_file import contents
from x402sim.chain.base import GAS_LIMIT, Block, ChainError
from x402sim.chain.ledger.machine import KEPT_BLOCKS
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash
from x402sim.protocol.networks import TESTNET


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


# --- blocks and transactions ---------------------------------------------------------


def test_a_wait_that_times_out_leaves_nothing_behind(driver):
    for _ in range(3):
        with pytest.raises(TimeoutError):
            driver.wait(bytes(32), 0.001)
    assert not driver.chain._waiters


def test_native_currency_spent_while_waiting_reverts(driver):
    driver.set_automine(False)
    most = driver.native_balance(ALICE.address_bytes) - GAS_LIMIT * TESTNET.base_fee_wei
    sent = [driver.put(b"", ALICE, to=SHOP.address_bytes, value=most) for _ in range(20)]
    driver.mine()
    assert [driver.receipt(tx).succeeded for tx in sent] == [True] + [False] * 19
    left = driver.native_balance(ALICE.address_bytes)
    assert left == 0, "the gas took what was left, and never more"


def test_a_nonce_of_the_token_belongs_to_its_payer(driver):
    driver.send(abi.mint(MALLORY.address_bytes, 10_000), OWNER)
    assert driver.refusal(payment()) is None
    auth = authorization(from_=MALLORY.address_bytes)
    assert driver.refusal(transfer_call(auth, signature_of(auth, by=MALLORY))) is None


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
    assert driver.state.supply == sum(driver.state.balances.values()) == START_BASE + 5
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
    before, number = contents(driver), driver.snapshot()
    driver.mine(2 * KEPT_BLOCKS)
    driver.send(payment(2))
    for role in (abi.calldata(abi.BLACKLIST, MALLORY.address_bytes), abi.PAUSE):
        assert driver.refusal(role, OWNER) is None
    driver.revert(number)
    assert contents(driver) == before
    driver.mine(2 * KEPT_BLOCKS)
    assert driver.state._forgotten > 0
    assert driver.balance(SHOP) == 10_000
