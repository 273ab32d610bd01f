"""Permit2 on the ledger beyond single calls: history, reorganisations, forced reverts."""

from tests.chain.helpers import ALICE, NOW_S, RELAYER, SHOP, LedgerDriver
from x402sim.chain.base import Call
from x402sim.protocol import abi
from x402sim.protocol.crypto import PrivateKey, sign
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    Permit2Authorization,
    permit2_digest,
)

AUTH = Permit2Authorization(
    from_=ALICE.address_bytes,
    token=TESTNET.asset,
    amount=10_000,
    spender=EXACT_PROXY,
    nonce=0x105,
    deadline=NOW_S + 300,
    to=SHOP.address_bytes,
    valid_after=0,
)
DIGEST = permit2_digest(AUTH, TESTNET.chain_id)
SETTLE = abi.settle(AUTH, AUTH.amount, sign(DIGEST, PrivateKey(ALICE.private_key)))


def bitmap(driver: LedgerDriver, block: int | None = None) -> int:
    data = abi.nonce_bitmap(ALICE.address_bytes, AUTH.nonce)
    return int.from_bytes(driver.call(Call(RELAYER.address_bytes, PERMIT2, data), block))


def paid(driver: LedgerDriver) -> str | None:
    """Approve and settle; return the revert reason."""
    driver.send(abi.approve(PERMIT2, 10_000), ALICE)
    return driver.receipt(driver.put(SETTLE, to=EXACT_PROXY)).revert_reason


def test_a_used_nonce_is_part_of_history_and_reorganisations_give_it_back():
    driver = LedgerDriver()
    assert paid(driver) is None
    height = driver.height()
    assert [bitmap(driver, block) for block in (height - 1, height, None)] == [0, 1 << 5, 1 << 5]
    driver.reorg(1, driver.block(height).tx_hashes)
    assert (bitmap(driver), driver.balance(SHOP)) == (0, 0)


def test_a_forced_revert_strikes_a_settlement_that_names_the_account():
    driver = LedgerDriver()
    driver.force_revert(1, SHOP.address_bytes)
    assert paid(driver) == "TRANSFER_FROM_FAILED"
    assert (bitmap(driver), driver.balance(SHOP)) == (0, 0)
