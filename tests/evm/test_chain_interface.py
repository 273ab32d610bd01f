"""The interface: what every chain under test does, done by the ledger and by anvil alike.

`test_equality` compares the two through snapshots, reorganisations and what waits.
"""

import asyncio
import time

import pytest

from tests.chain.helpers import (
    ALICE,
    NOW_S,
    RELAYER,
    SHOP,
    START_BASE,
    TOKEN,
    payment,
)
from tests.evm.helpers import ChainDriver, Town
from x402sim.chain.base import GAS_LIMIT, Call, ChainError
from x402sim.protocol.crypto import Hash
from x402sim.protocol.networks import TESTNET
from x402sim.world.loop import run_virtual

UNKNOWN = Hash(b"\x99" * 32)


def pay_call(name: object = "first", **changes: object) -> Call:
    return Call(RELAYER.address_bytes, TOKEN, payment(name, **changes))


def hashes(driver: ChainDriver) -> list[bytes]:
    return [driver.block(n).hash for n in range(driver.height() + 1)]


# --- blocks, transactions, receipts --------------------------------------------------


def test_each_transaction_is_mined_at_once_in_a_block_of_its_own(either: ChainDriver):
    sent = [either.put(payment(n)) for n in range(3)]
    assert either.height() == 3
    for number, tx_hash in enumerate(sent, 1):
        block = either.block(number)
        assert block.tx_hashes == (tx_hash,)
        assert either.block(block.hash) == block
        assert block.parent == either.block(number - 1).hash
        mined = either.receipt(tx_hash)
        assert (mined.block_number, mined.block_hash, mined.index) == (number, block.hash, 0)
        assert mined.gas_used == mined.cumulative_gas_used == block.gas_used
        tx = either.transaction(tx_hash)
        assert (tx.nonce, tx.block_number, tx.index) == (number - 1, number, 0)
        assert tx.call == mined.call == pay_call(number - 1)
        assert (tx.gas_limit, tx.gas_price, mined.gas_price) == (
            GAS_LIMIT,
            *[TESTNET.base_fee_wei] * 2,
        )


def test_the_time_of_a_block_is_the_worlds_and_never_goes_back(either: ChainDriver):
    for now_s in (NOW_S, NOW_S, NOW_S + 7.9, NOW_S + 5, NOW_S + 300):
        either.town.now[0] = now_s
        either.mine()
    times = [either.block(n).timestamp_s - NOW_S for n in range(6)]
    assert times == [0, 0, 0, 7, 7, 300]


# --- waiting for a receipt -----------------------------------------------------------


def test_waiting_times_out_and_does_no_harm(either: ChainDriver):
    either.set_automine(False)
    tx_hash = either.put(payment())
    for hopeless in (tx_hash, UNKNOWN):
        with pytest.raises(TimeoutError):
            either.wait(hopeless, 0.05)
    either.mine()
    assert either.receipt(tx_hash).succeeded


# --- going back ----------------------------------------------------------------------


def test_a_revert_uses_up_its_snapshot_and_all_later_ones(either: ChainDriver):
    first, second, third = (either.snapshot() for _ in range(3))
    assert first < second < third
    either.revert(second)
    for used_up in (second, third, third + 100):
        with pytest.raises(ChainError, match=f"no snapshot {used_up}; there are: {first}"):
            either.revert(used_up)
    either.revert(first)
    with pytest.raises(ChainError, match=f"no snapshot {first}; there are: none"):
        either.revert(first)
    assert either.snapshot() > third, "no number is given twice"


def test_reset_begins_again(either: ChainDriver):
    either.set_automine(False)
    either.put(payment())
    either.mine(3)
    old = either.snapshot()
    either.put(payment("waiting"))
    either.reset()
    assert (either.height(), either.balance(ALICE), either.balance(SHOP)) == (0, START_BASE, 0)
    with pytest.raises(ChainError, match=f"no snapshot {old}; there are: none"):
        either.revert(old)
    tx_hash = either.put(payment())
    assert either.receipt(tx_hash) is None
    either.mine()
    assert either.block(1).tx_hashes == (tx_hash,)


def test_a_reorg_replaces_the_last_blocks(either: ChainDriver):
    for number in range(4):
        either.put(payment(number))
    old = hashes(either)
    either.reorg(3)
    new = hashes(either)
    assert (new[:2], len(new)) == (old[:2], len(old))
    assert not set(new[2:]) & set(old)
    assert [either.block(gone) for gone in old[2:]] == [None] * 3


@pytest.mark.parametrize("depth", [0, -1, 3, 10**6])
def test_a_reorg_out_of_reach_is_refused(either: ChainDriver, depth: int):
    either.mine(2)
    before = hashes(either)
    with pytest.raises(ChainError, match=f"last {depth} blocks; the last 2 can be"):
        either.reorg(depth)
    assert hashes(either) == before


def test_a_reorg_ends_the_snapshots_of_what_it_replaced(either: ChainDriver):
    early = either.snapshot()
    either.send(payment(1))
    late = either.snapshot()
    either.reorg(1)
    with pytest.raises(ChainError, match=f"no snapshot {late}; there are: {early}"):
        either.revert(late)
    either.revert(early)
    assert (either.balance(SHOP), either.height()) == (0, 0)


# --- trouble on demand ---------------------------------------------------------------


def test_a_forced_revert_fails_once_and_the_call_can_be_repeated(either: ChainDriver):
    either.force_revert(1)
    assert either.tried(payment()) is None
    reverted = either.send(payment())
    assert not reverted.succeeded
    assert reverted.revert_reason
    assert reverted.logs == ()
    assert either.send(payment()).succeeded


# --- anvil's own ---------------------------------------------------------------------


def test_watchers_are_called_after_every_operation(anvil: ChainDriver):
    seen: list[int] = []

    async def look() -> None:
        seen.append(await anvil.chain.height())

    anvil.chain.watchers.append(look)
    anvil.put(payment())
    anvil.mine(2)
    anvil.reorg(1)
    assert seen == [1, 3, 3]


def test_many_blocks_have_the_worlds_time_however_long_they_take(anvil: ChainDriver):
    """The node's own clock, which goes on meanwhile, must not come into any of them."""
    blocks, begun = 0, time.monotonic()
    while time.monotonic() - begun < 0.2:
        blocks += 500
        anvil.mine(500)
    numbers = range(1, blocks + 1, 25)
    assert {anvil.block(n).timestamp_s for n in numbers} == {NOW_S}


def test_in_virtual_time_node_requests_take_no_time_and_waits_do(town: Town):
    async def story() -> tuple[float, float]:
        loop, chain = asyncio.get_running_loop(), town.anvil
        started = loop.time()
        await chain.controls.set_automine(False)
        tx_hash = await chain.send(pay_call())
        sent = loop.time() - started

        async def mine_later() -> None:
            await asyncio.sleep(100.1)
            await chain.controls.mine()

        mining = asyncio.create_task(mine_later())
        await chain.wait(tx_hash, 3600)
        await mining
        return sent, loop.time() - started

    assert run_virtual(story) == (0, pytest.approx(100.1))
