"""The ledger: blocks, mempool, receipts, and going back."""

import asyncio
from dataclasses import replace

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NATIVE_WEI,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    TOKEN,
    LedgerDriver,
    cancel_call,
    nonce,
    payment,
)
from x402sim.chain.base import Block, Call, ChainError, LogFilter, TxReceipt
from x402sim.chain.fees import GAS_LIMIT, GAS_PRICE_WEI
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.machine import KEPT_BLOCKS
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash

UNKNOWN = Hash(b"\xee" * 32)
SHORT = payment("short", value=START_BASE + 1)


@pytest.fixture
def driver() -> LedgerDriver:
    return LedgerDriver()


@pytest.fixture
def on_demand(driver) -> LedgerDriver:
    """A ledger that mines only when told to."""
    asyncio.run(driver.ledger.set_automine(False))
    return driver


def mine(driver: LedgerDriver, blocks: int = 1) -> int:
    return asyncio.run(driver.ledger.mine(blocks))


def block(driver: LedgerDriver, which: int | Hash):
    return asyncio.run(driver.ledger.block(which))


def transaction(driver: LedgerDriver, tx_hash: Hash):
    return asyncio.run(driver.ledger.transaction(tx_hash))


def receipt(driver: LedgerDriver, tx_hash: Hash) -> TxReceipt | None:
    return asyncio.run(driver.ledger.receipt(tx_hash))


def reorg(driver: LedgerDriver, depth: int, drop=()) -> None:
    asyncio.run(driver.ledger.reorg(depth, drop))


def snapshot(driver: LedgerDriver) -> int:
    return asyncio.run(driver.ledger.snapshot())


def revert(driver: LedgerDriver, number: int) -> None:
    asyncio.run(driver.ledger.revert(number))


def native(driver: LedgerDriver, wallet: Wallet) -> int:
    return asyncio.run(driver.ledger.native_balance(wallet.address_bytes))


def account_nonce(driver: LedgerDriver, wallet: Wallet) -> int:
    return asyncio.run(driver.ledger.account_nonce(wallet.address_bytes))


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


def is_conserved(driver: LedgerDriver, minted: int = START_BASE) -> bool:
    return driver.state.supply == sum(driver.state.balances.values()) == minted


# --- blocks and transactions ---------------------------------------------------------


def test_the_chain_begins_with_an_empty_block_0(driver):
    genesis = block(driver, 0)
    assert (genesis.number, genesis.timestamp_s, genesis.tx_hashes) == (0, NOW_S, ())
    assert asyncio.run(driver.ledger.height()) == 0


def test_automining_puts_each_transaction_in_its_own_block(driver):
    sent = [driver.put(payment(n)) for n in range(3)]
    assert [block(driver, n).tx_hashes for n in (1, 2, 3)] == [(tx,) for tx in sent]
    assert len(hashes(driver)) == 4


def test_on_demand_all_that_waits_is_mined_in_order_of_arrival(on_demand):
    sent = [on_demand.put(payment(n), s) for n, s in enumerate((SHOP, RELAYER, SHOP, ALICE))]
    assert [receipt(on_demand, tx) for tx in sent] == [None] * 4
    assert on_demand.balance(SHOP) == 0
    assert mine(on_demand, 2) == 2
    assert block(on_demand, 1).tx_hashes == tuple(sent)
    assert block(on_demand, 2).tx_hashes == ()
    assert [transaction(on_demand, tx).index for tx in sent] == [0, 1, 2, 3]
    assert on_demand.balance(SHOP) == 40_000


def test_turning_automining_on_mines_the_mempool(on_demand):
    waiting = on_demand.put(payment())
    asyncio.run(on_demand.ledger.set_automine(True))
    assert block(on_demand, 1).tx_hashes == (waiting,)
    asyncio.run(on_demand.ledger.set_automine(True))
    assert asyncio.run(on_demand.ledger.height()) == 1


def test_a_waiting_transaction_has_no_block(on_demand):
    tx_hash = on_demand.put(payment())
    waiting = transaction(on_demand, tx_hash)
    assert (waiting.block_number, waiting.block_hash, waiting.index) == (None, None, None)
    mine(on_demand)
    mined = transaction(on_demand, tx_hash)
    assert (mined.block_number, mined.block_hash, mined.index) == (1, hashes(on_demand)[1], 0)
    assert replace(mined, block_number=None, block_hash=None, index=None) == waiting


def test_a_block_has_the_time_of_the_clock(driver):
    mine(driver)
    driver.now[0] += 7.9
    mine(driver)
    assert [block(driver, n).timestamp_s for n in range(3)] == [NOW_S, NOW_S, NOW_S + 7]


def test_block_times_never_decrease_even_if_the_clock_does(driver):
    driver.now[0] += 100
    mine(driver)
    driver.now[0] -= 50
    mine(driver)
    assert block(driver, 2).timestamp_s == NOW_S + 100


def test_unknown_objects_are_none(driver):
    assert transaction(driver, UNKNOWN) is None
    assert receipt(driver, UNKNOWN) is None
    assert [block(driver, which) for which in (UNKNOWN, 1, -1)] == [None] * 3


@pytest.mark.parametrize("blocks", [0, -1, 10_001])
def test_a_senseless_number_of_blocks_is_refused(driver, blocks):
    with pytest.raises(ChainError, match="mine 1 to 10000 blocks at a time"):
        mine(driver, blocks)
    assert asyncio.run(driver.ledger.height()) == 0


def test_equal_operations_make_equal_chains():
    chains = []
    for _ in range(2):
        driver = LedgerDriver()
        driver.send(payment())
        driver.now[0] += 3
        mine(driver)
        reorg(driver, 1)
        chains.append(hashes(driver))
    assert chains[0] == chains[1]


# --- receipts ------------------------------------------------------------------------


def test_receipts_count_gas_and_logs_through_the_block(on_demand):
    sent = [on_demand.put(data) for data in (payment(1), SHORT, payment(2))]
    mine(on_demand)
    first, failed, last = (receipt(on_demand, tx) for tx in sent)
    assert [r.succeeded for r in (first, failed, last)] == [True, False, True]
    assert [r.index for r in (first, failed, last)] == [0, 1, 2]
    assert first.cumulative_gas_used == first.gas_used
    assert failed.cumulative_gas_used == first.gas_used + failed.gas_used
    assert last.cumulative_gas_used == first.gas_used + failed.gas_used + last.gas_used
    assert block(on_demand, 1).gas_used == last.cumulative_gas_used
    assert [[log.index for log in r.logs] for r in (first, failed, last)] == [[0, 1], [], [2, 3]]
    assert [log.tx_index for log in last.logs] == [2, 2]
    for each in (first, failed, last):
        assert (each.block_number, each.block_hash) == (1, hashes(on_demand)[1])
        assert {(log.tx_hash, log.block_hash) for log in each.logs} <= {
            (each.tx_hash, each.block_hash)
        }


def test_indexes_begin_again_in_the_next_block(driver):
    second = [driver.send(payment(n)) for n in range(2)][1]
    assert (second.index, second.cumulative_gas_used) == (0, second.gas_used)
    assert [log.index for log in second.logs] == [0, 1]


def test_a_reverted_transaction_is_mined_with_its_reason_and_nothing_else(driver):
    before = driver.state.balances.copy()
    failed = driver.send(SHORT)
    assert failed.revert_reason == "ERC20: transfer amount exceeds balance"
    assert (failed.logs, driver.state.balances) == ((), before)
    assert asyncio.run(driver.ledger.logs(LogFilter(0, 9))) == []


@pytest.mark.parametrize("data", [payment(), SHORT], ids=["success", "revert"])
def test_only_the_sender_pays_the_gas(driver, data):
    before = {wallet: native(driver, wallet) for wallet in (ALICE, RELAYER, SHOP)}
    used = driver.send(data).gas_used
    spent = {wallet: before[wallet] - native(driver, wallet) for wallet in before}
    assert used > 21_000
    assert spent == {ALICE: 0, RELAYER: used * GAS_PRICE_WEI, SHOP: 0}


def test_native_currency_is_moved_beside_the_gas(driver):
    before = native(driver, ALICE), native(driver, SHOP)
    driver.put(b"", ALICE, to=SHOP.address_bytes, value=3 * NATIVE_WEI)
    assert before[0] - native(driver, ALICE) == 3 * NATIVE_WEI + 21_000 * GAS_PRICE_WEI
    assert native(driver, SHOP) - before[1] == 3 * NATIVE_WEI


def test_native_currency_spent_while_waiting_reverts(on_demand):
    most = native(on_demand, ALICE) - GAS_LIMIT * GAS_PRICE_WEI
    sent = [on_demand.put(b"", ALICE, to=SHOP.address_bytes, value=most) for _ in range(20)]
    mine(on_demand)
    assert [receipt(on_demand, tx).succeeded for tx in sent] == [True] + [False] * 19
    assert native(on_demand, ALICE) == 0  # the gas took what was left, and never more


@pytest.mark.parametrize("value", [0, 1])
def test_a_sender_that_cannot_pay_for_gas_is_refused(driver, value):
    poor = Wallet(b"\x77" * 32)
    cost = GAS_LIMIT * GAS_PRICE_WEI + value
    asyncio.run(driver.ledger.set_native_balance(poor.address_bytes, cost - 1))
    height = asyncio.run(driver.ledger.height())
    with pytest.raises(ChainError, match=f"have {cost - 1} wei, want {cost}"):
        driver.put(b"", poor, to=SHOP.address_bytes, value=value)
    assert (account_nonce(driver, poor), asyncio.run(driver.ledger.height())) == (0, height)
    asyncio.run(driver.ledger.set_native_balance(poor.address_bytes, cost))
    driver.put(b"", poor, to=SHOP.address_bytes, value=value)
    assert account_nonce(driver, poor) == 1


def test_an_account_nonce_counts_what_was_sent_waiting_or_mined(on_demand):
    on_demand.put(payment(1))
    on_demand.put(SHORT)
    assert (account_nonce(on_demand, RELAYER), account_nonce(on_demand, ALICE)) == (2, 0)
    mine(on_demand)
    on_demand.put(payment(1))
    assert account_nonce(on_demand, RELAYER) == 3
    assert [transaction(on_demand, tx).nonce for tx in block(on_demand, 1).tx_hashes] == [0, 1]


def test_the_same_call_sent_twice_is_two_transactions(driver):
    assert driver.put(payment()) != driver.put(payment())


@pytest.mark.parametrize(("earlier", "measured"), [(0, 102_868), (1, 85_768), (2, 85_768)])
def test_a_settlement_costs_the_gas_measured_on_a_real_chain(driver, earlier, measured):
    for n in range(earlier):
        driver.send(payment(f"earlier {n}"))
    assert driver.send(payment()).gas_used == measured


def test_the_estimate_is_what_the_transaction_uses(driver):
    call = Call(RELAYER.address_bytes, TOKEN, payment())
    estimate = asyncio.run(driver.ledger.estimate_gas(call))
    assert driver.send(payment()).gas_used == estimate
    elsewhere = asyncio.run(driver.ledger.estimate_gas(replace(call, to=SHOP.address_bytes)))
    assert elsewhere == gas.total(call.data)


def test_calldata_zeros_are_cheaper():
    assert gas.intrinsic(b"") == 21_000
    assert gas.intrinsic(b"\x00\x00\x01") == 21_000 + 2 * 4 + 16


def test_the_token_alone_has_code(driver):
    assert asyncio.run(driver.ledger.code(TOKEN))
    assert asyncio.run(driver.ledger.code(ALICE.address_bytes)) == b""
    assert asyncio.run(driver.ledger.gas_price()) == GAS_PRICE_WEI


# --- funding -------------------------------------------------------------------------


def test_funding_mints(driver):
    asyncio.run(driver.ledger.fund(SHOP.address_bytes, 25))
    assert driver.balance(SHOP) == 25
    assert is_conserved(driver, START_BASE + 25)


def test_funding_that_the_token_refuses_is_an_error(driver):
    with pytest.raises(ChainError, match="mint amount not greater than 0"):
        asyncio.run(driver.ledger.fund(SHOP.address_bytes, 0))
    assert is_conserved(driver)


def test_funding_waits_like_everything_else(on_demand):
    asyncio.run(on_demand.ledger.fund(SHOP.address_bytes, 25))
    assert on_demand.balance(SHOP) == 0
    mine(on_demand)
    assert on_demand.balance(SHOP) == 25


# --- logs ----------------------------------------------------------------------------

TRANSFERS = (abi.TRANSFER_EVENT,)
ALICE_WORD, SHOP_WORD = (abi.word(w.address_bytes) for w in (ALICE, SHOP))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LogFilter(0, 99), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]),
        (LogFilter(2, 2), [(2, 0), (2, 1)]),
        (LogFilter(3, 2), []),
        (LogFilter(-5, 0), []),
        (LogFilter(0, 99, (SHOP.address_bytes,)), []),
        (LogFilter(0, 99, (TOKEN, SHOP.address_bytes), (TRANSFERS,)), [(1, 1), (2, 1)]),
        (LogFilter(0, 99, (), (TRANSFERS, (), (SHOP_WORD,))), [(1, 1), (2, 1)]),
        (LogFilter(0, 99, (), (TRANSFERS, (ALICE_WORD,), (SHOP_WORD,))), [(1, 1)]),
        (LogFilter(0, 99, (), ((), (ALICE_WORD, SHOP_WORD))), [(1, 0), (1, 1), (3, 0)]),
        (LogFilter(0, 99, (), ((), (), ())), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]),
        (LogFilter(0, 99, (), ((), (), (), ())), []),
    ],
)
def test_a_filter_selects_matching_logs(driver, wanted, found):
    driver.send(payment())
    driver.send(abi.mint(SHOP.address_bytes, 1), OWNER)
    driver.send(cancel_call(nonce("second")))
    logs = asyncio.run(driver.ledger.logs(wanted))
    assert [(log.block_number, log.index) for log in logs] == found


# --- waiting for a receipt -----------------------------------------------------------


def test_waiting_ends_when_the_transaction_is_mined(on_demand):
    tx_hash = on_demand.put(payment())

    async def wait_and_mine() -> tuple[TxReceipt, ...]:
        waits = [asyncio.create_task(on_demand.ledger.wait(tx_hash, 5)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waits)
        await on_demand.ledger.mine()
        return tuple(await asyncio.gather(*waits))

    mined = receipt_of(asyncio.run(wait_and_mine()))
    assert mined == receipt(on_demand, tx_hash)


def receipt_of(receipts: tuple[TxReceipt, ...]) -> TxReceipt:
    assert len(set(map(id, receipts))) == 1
    return receipts[0]


def test_waiting_for_a_mined_transaction_returns_immediately(driver):
    mined = driver.send(payment())
    assert asyncio.run(driver.ledger.wait(mined.tx_hash, 0)) == mined


def test_waiting_ends_when_a_reorg_mines_the_transaction(on_demand):
    mine(on_demand)
    tx_hash = on_demand.put(payment())

    async def wait_and_reorg() -> TxReceipt:
        wait = asyncio.create_task(on_demand.ledger.wait(tx_hash, 5))
        await asyncio.sleep(0)
        await on_demand.ledger.reorg(1)
        return await wait

    assert asyncio.run(wait_and_reorg()).succeeded


def test_waiting_times_out_and_does_no_harm(on_demand):
    tx_hash = on_demand.put(payment())
    for hopeless in (tx_hash, UNKNOWN):
        with pytest.raises(TimeoutError):
            asyncio.run(on_demand.ledger.wait(hopeless, 0.01))
    assert on_demand.ledger._waiters == {}
    mine(on_demand)
    assert receipt(on_demand, tx_hash).succeeded


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
    asyncio.run(driver.ledger.set_automine(True))
    driver.send(payment(f"{name} 1"))
    driver.send(cancel_call(nonce(f"{name} 2")))
    driver.send(abi.mint(MALLORY.address_bytes, 9), OWNER)
    driver.send(SHORT)
    driver.send(abi.calldata(abi.BLACKLIST, MALLORY.address_bytes), OWNER)
    asyncio.run(driver.ledger.set_automine(False))
    driver.put(payment(f"{name} 3"))
    driver.now[0] += 5


def test_a_revert_brings_everything_back(driver):
    busy(driver, "before")
    before = everything(driver)
    number = snapshot(driver)
    busy(driver, "after")
    mine(driver, 3)
    assert everything(driver) != before
    revert(driver, number)
    assert everything(driver) == before
    assert is_conserved(driver, START_BASE + 9)
    mine(driver)
    assert driver.balance(SHOP) == 20_000


def test_snapshots_nest(driver):
    marks = []
    for n in range(3):
        marks.append((snapshot(driver), everything(driver)))
        driver.send(payment(n))
    for number, before in reversed(marks):
        revert(driver, number)
        assert everything(driver) == before


def test_a_revert_uses_up_its_snapshot_and_all_later_ones(driver):
    first, second, third = (snapshot(driver) for _ in range(3))
    driver.send(payment())
    revert(driver, second)
    for used_up in (second, third):
        with pytest.raises(ChainError, match=f"no snapshot {used_up}; there are: {first}"):
            revert(driver, used_up)
    revert(driver, first)
    with pytest.raises(ChainError, match=f"no snapshot {first}; there are: none"):
        revert(driver, first)


def test_snapshot_ids_are_never_given_twice(driver):
    first = snapshot(driver)
    revert(driver, first)
    assert snapshot(driver) > first


@pytest.mark.parametrize("unknown", [0, -1, 99])
def test_an_unknown_snapshot_is_refused(driver, unknown):
    before = everything(driver)
    with pytest.raises(ChainError, match=f"no snapshot {unknown}; there are: none"):
        revert(driver, unknown)
    assert everything(driver) == before


def test_a_reorg_replaces_the_last_blocks_and_mines_their_transactions_in_the_last(driver):
    sent = [driver.put(payment(n)) for n in range(4)]
    old = hashes(driver)
    driver.now[0] += 60
    reorg(driver, 3)
    new = hashes(driver)
    assert new[:2] == old[:2]
    assert len(new) == len(old)
    assert not set(new[2:]) & set(old)
    assert [block(driver, n).tx_hashes for n in (2, 3, 4)] == [(), (), tuple(sent[1:])]
    assert [block(driver, n).timestamp_s for n in range(1, 5)] == [NOW_S] + [NOW_S + 60] * 3
    assert all(receipt(driver, tx).block_hash == new[4] for tx in sent[1:])
    assert [block(driver, gone) for gone in old[2:]] == [None] * 3
    assert driver.balance(SHOP) == 40_000
    assert is_conserved(driver)


def test_even_an_empty_replacement_block_gets_a_new_hash(driver):
    mine(driver)
    seen = set()
    for _ in range(4):
        seen.add(hashes(driver)[1])
        reorg(driver, 1)
    assert len(seen) == 4


def test_a_dropped_transaction_is_unknown_and_undone(driver):
    kept, dropped = driver.put(payment(1)), driver.put(payment(2))
    reorg(driver, 2, drop=[dropped])
    assert (transaction(driver, dropped), receipt(driver, dropped)) == (None, None)
    assert receipt(driver, kept).succeeded
    assert driver.balance(SHOP) == 10_000
    assert not driver.is_used(ALICE, nonce(2))
    logs = asyncio.run(driver.ledger.logs(LogFilter(0, 9)))
    assert {log.tx_hash for log in logs} == {kept}
    assert driver.send(payment(2)).succeeded
    assert is_conserved(driver)


@pytest.mark.parametrize(("dropped", "following"), [([1], 1), ([0], 2), ([0, 1], 0)])
def test_the_account_nonce_of_a_dropped_transaction_is_free_again(driver, dropped, following):
    sent = [driver.put(payment(n)) for n in range(2)]
    reorg(driver, 2, drop=[sent[n] for n in dropped])
    assert account_nonce(driver, RELAYER) == following


@pytest.mark.parametrize("drop", [False, True])
def test_a_reorg_mines_the_mempool_except_dropped_transactions(on_demand, drop):
    mine(on_demand)
    waiting = on_demand.put(payment())
    reorg(on_demand, 1, drop=[waiting] if drop else [])
    assert block(on_demand, 1).tx_hashes == (() if drop else (waiting,))
    assert (transaction(on_demand, waiting) is None) == drop
    assert on_demand.state.waiting == {}


def test_a_reorg_judges_by_the_new_time(driver):
    paid = driver.put(payment(valid_before=NOW_S + 10))
    assert driver.balance(SHOP) == 10_000
    driver.now[0] += 10
    reorg(driver, 1)
    assert receipt(driver, paid).revert_reason == "FiatTokenV2: authorization is expired"
    assert (driver.balance(SHOP), driver.is_used(ALICE, nonce("first"))) == (0, False)


@pytest.mark.parametrize("depth", [0, -1, 3, 10**6])
def test_a_reorg_out_of_reach_is_refused(driver, depth):
    mine(driver, 2)
    before = everything(driver)
    with pytest.raises(ChainError, match=f"last {depth} blocks; the last 2 can be"):
        reorg(driver, depth)
    assert everything(driver) == before


def test_a_reorg_ends_the_snapshots_of_what_it_replaced(driver):
    early = snapshot(driver)
    driver.send(payment(1))
    late = snapshot(driver)
    reorg(driver, 1)
    with pytest.raises(ChainError, match=f"no snapshot {late}; there are: {early}"):
        revert(driver, late)
    revert(driver, early)
    assert (driver.balance(SHOP), len(hashes(driver))) == (0, 1)


# --- a long chain --------------------------------------------------------------------


def test_a_long_chain_drops_old_undo_data_only(driver):
    asyncio.run(driver.ledger.fund(SHOP.address_bytes, 5))
    early = driver.put(payment("early"))
    mine(driver, 2 * KEPT_BLOCKS)
    late = driver.put(payment("late"))
    mine(driver, KEPT_BLOCKS - 1)
    height = asyncio.run(driver.ledger.height())
    assert driver.state._forgotten > 0

    with pytest.raises(ChainError, match=r"cannot replace the last \d+ blocks; the last \d+ can"):
        reorg(driver, height)
    reorg(driver, KEPT_BLOCKS)
    assert block(driver, height).tx_hashes == (late,)
    assert receipt(driver, late).succeeded
    assert receipt(driver, early).block_number == 2
    assert len(hashes(driver)) == height + 1
    assert (driver.balance(SHOP), driver.balance(ALICE)) == (20_005, START_BASE - 20_000)
    assert is_conserved(driver, START_BASE + 5)
    assert driver.send(payment("early")).succeeded is False


@pytest.mark.parametrize("extra", [0, 1, KEPT_BLOCKS - 1])
def test_the_promised_reach_is_kept_at_every_height(driver, extra):
    mine(driver, 2 * KEPT_BLOCKS + extra)
    old = hashes(driver)
    reorg(driver, KEPT_BLOCKS)
    new = hashes(driver)
    assert [a == b for a, b in zip(old, new, strict=True)].count(True) == len(old) - KEPT_BLOCKS


def test_a_snapshot_is_remembered_however_long_the_chain_grows(driver):
    driver.send(payment(1))
    before, number = everything(driver), snapshot(driver)
    mine(driver, 2 * KEPT_BLOCKS)
    driver.send(payment(2))
    revert(driver, number)
    assert everything(driver) == before
    mine(driver, 2 * KEPT_BLOCKS)
    assert driver.state._forgotten > 0
    assert driver.balance(SHOP) == 10_000


def test_after_a_revert_the_reach_is_that_of_the_shorter_chain(driver):
    mine(driver, 2 * KEPT_BLOCKS)
    number = snapshot(driver)
    mine(driver, 100)
    revert(driver, number)
    with pytest.raises(ChainError, match=f"the last {KEPT_BLOCKS} can be"):
        reorg(driver, KEPT_BLOCKS + 1)
    reorg(driver, KEPT_BLOCKS)


def test_reset_begins_again(driver):
    busy(driver, "before")
    asyncio.run(driver.ledger.reset())
    assert everything(driver) == everything(LedgerDriver(now=driver.now))
    assert not driver.ledger.machine.automine
    mine(driver)
    assert driver.put(payment()) in driver.state.waiting
