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
    Bench,
    cancel_call,
    nonce,
    payment,
)
from x402sim.chain.base import Block, Call, ChainError, LogFilter, TxReceipt
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.machine import GAS_LIMIT, GAS_PRICE_WEI, KEPT_BLOCKS
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash

UNKNOWN = Hash(b"\xee" * 32)
SHORT = payment("short", value=START_BASE + 1)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def on_demand(bench) -> Bench:
    """A ledger that mines only when told to."""
    asyncio.run(bench.ledger.set_automine(False))
    return bench


def mine(bench: Bench, blocks: int = 1) -> int:
    return asyncio.run(bench.ledger.mine(blocks))


def block(bench: Bench, which: int | Hash):
    return asyncio.run(bench.ledger.block(which))


def transaction(bench: Bench, tx_hash: Hash):
    return asyncio.run(bench.ledger.transaction(tx_hash))


def receipt(bench: Bench, tx_hash: Hash) -> TxReceipt | None:
    return asyncio.run(bench.ledger.receipt(tx_hash))


def reorg(bench: Bench, depth: int, drop=()) -> None:
    asyncio.run(bench.ledger.reorg(depth, drop))


def snapshot(bench: Bench) -> int:
    return asyncio.run(bench.ledger.snapshot())


def revert(bench: Bench, number: int) -> None:
    asyncio.run(bench.ledger.revert(number))


def native(bench: Bench, wallet: Wallet) -> int:
    return asyncio.run(bench.ledger.native_balance(wallet.address_bytes))


def account_nonce(bench: Bench, wallet: Wallet) -> int:
    return asyncio.run(bench.ledger.account_nonce(wallet.address_bytes))


def hashes(bench: Bench) -> list[Hash]:
    """Return the hash of every block, having checked that each points to the one before."""
    ledger = bench.ledger

    async def read() -> list[Block | None]:
        chain = [await ledger.block(n) for n in range(await ledger.height() + 1)]
        assert [await ledger.block(b.hash) for b in chain] == chain
        return chain

    chain = asyncio.run(read())
    assert [b.number for b in chain] == list(range(len(chain)))
    assert [b.parent for b in chain] == [bytes(32), *(b.hash for b in chain[:-1])]
    return [b.hash for b in chain]


def is_conserved(bench: Bench, minted: int = START_BASE) -> bool:
    return bench.state.supply == sum(bench.state.balances.values()) == minted


# --- blocks and transactions ---------------------------------------------------------


def test_the_chain_begins_with_an_empty_block_0(bench):
    genesis = block(bench, 0)
    assert (genesis.number, genesis.timestamp_s, genesis.tx_hashes) == (0, NOW_S, ())
    assert asyncio.run(bench.ledger.height()) == 0


def test_automining_puts_each_transaction_in_its_own_block(bench):
    sent = [bench.put(payment(n)) for n in range(3)]
    assert [block(bench, n).tx_hashes for n in (1, 2, 3)] == [(tx,) for tx in sent]
    assert len(hashes(bench)) == 4


def test_on_demand_all_that_waits_is_mined_in_order_of_arrival(on_demand):
    sent = [on_demand.put(payment(n), s) for n, s in enumerate((SHOP, RELAYER, SHOP, ALICE))]
    assert [receipt(on_demand, tx) for tx in sent] == [None] * 4
    assert on_demand.balance(SHOP) == 0
    assert mine(on_demand, 2) == 2
    assert block(on_demand, 1).tx_hashes == tuple(sent)
    assert block(on_demand, 2).tx_hashes == ()
    assert [transaction(on_demand, tx).index for tx in sent] == [0, 1, 2, 3]
    assert on_demand.balance(SHOP) == 40_000


def test_turning_automining_on_mines_what_waits(on_demand):
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


def test_a_block_has_the_time_of_the_clock(bench):
    mine(bench)
    bench.now[0] += 7.9
    mine(bench)
    assert [block(bench, n).timestamp_s for n in range(3)] == [NOW_S, NOW_S, NOW_S + 7]


def test_block_times_never_decrease_even_if_the_clock_does(bench):
    bench.now[0] += 100
    mine(bench)
    bench.now[0] -= 50
    mine(bench)
    assert block(bench, 2).timestamp_s == NOW_S + 100


def test_what_is_not_there_is_none(bench):
    assert transaction(bench, UNKNOWN) is None
    assert receipt(bench, UNKNOWN) is None
    assert [block(bench, which) for which in (UNKNOWN, 1, -1)] == [None] * 3


@pytest.mark.parametrize("blocks", [0, -1, 10_001])
def test_a_senseless_number_of_blocks_is_refused(bench, blocks):
    with pytest.raises(ChainError, match="mine 1 to 10000 blocks at a time"):
        mine(bench, blocks)
    assert asyncio.run(bench.ledger.height()) == 0


def test_equal_operations_make_equal_chains():
    chains = []
    for _ in range(2):
        bench = Bench()
        bench.send(payment())
        bench.now[0] += 3
        mine(bench)
        reorg(bench, 1)
        chains.append(hashes(bench))
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


def test_indexes_begin_again_in_the_next_block(bench):
    second = [bench.send(payment(n)) for n in range(2)][1]
    assert (second.index, second.cumulative_gas_used) == (0, second.gas_used)
    assert [log.index for log in second.logs] == [0, 1]


def test_a_reverted_transaction_is_mined_with_its_reason_and_nothing_else(bench):
    before = bench.state.balances.copy()
    failed = bench.send(SHORT)
    assert failed.revert_reason == "ERC20: transfer amount exceeds balance"
    assert (failed.logs, bench.state.balances) == ((), before)
    assert asyncio.run(bench.ledger.logs(LogFilter(0, 9))) == []


@pytest.mark.parametrize("data", [payment(), SHORT], ids=["success", "revert"])
def test_the_sender_pays_the_gas_and_nobody_else(bench, data):
    before = {wallet: native(bench, wallet) for wallet in (ALICE, RELAYER, SHOP)}
    used = bench.send(data).gas_used
    spent = {wallet: before[wallet] - native(bench, wallet) for wallet in before}
    assert used > 21_000
    assert spent == {ALICE: 0, RELAYER: used * GAS_PRICE_WEI, SHOP: 0}


def test_native_currency_is_moved_beside_the_gas(bench):
    before = native(bench, ALICE), native(bench, SHOP)
    bench.put(b"", ALICE, to=SHOP.address_bytes, value=3 * NATIVE_WEI)
    assert before[0] - native(bench, ALICE) == 3 * NATIVE_WEI + 21_000 * GAS_PRICE_WEI
    assert native(bench, SHOP) - before[1] == 3 * NATIVE_WEI


def test_native_currency_spent_while_waiting_reverts(on_demand):
    most = native(on_demand, ALICE) - GAS_LIMIT * GAS_PRICE_WEI
    sent = [on_demand.put(b"", ALICE, to=SHOP.address_bytes, value=most) for _ in range(20)]
    mine(on_demand)
    assert [receipt(on_demand, tx).succeeded for tx in sent] == [True] + [False] * 19
    assert native(on_demand, ALICE) == 0  # the gas took what was left, and never more


@pytest.mark.parametrize("value", [0, 1])
def test_who_cannot_pay_for_the_gas_is_refused(bench, value):
    poor = Wallet(b"\x77" * 32)
    cost = GAS_LIMIT * GAS_PRICE_WEI + value
    asyncio.run(bench.ledger.set_native_balance(poor.address_bytes, cost - 1))
    height = asyncio.run(bench.ledger.height())
    with pytest.raises(ChainError, match=f"have {cost - 1} wei, want {cost}"):
        bench.put(b"", poor, to=SHOP.address_bytes, value=value)
    assert (account_nonce(bench, poor), asyncio.run(bench.ledger.height())) == (0, height)
    asyncio.run(bench.ledger.set_native_balance(poor.address_bytes, cost))
    bench.put(b"", poor, to=SHOP.address_bytes, value=value)
    assert account_nonce(bench, poor) == 1


def test_an_account_nonce_counts_what_was_sent_waiting_or_mined(on_demand):
    on_demand.put(payment(1))
    on_demand.put(SHORT)
    assert (account_nonce(on_demand, RELAYER), account_nonce(on_demand, ALICE)) == (2, 0)
    mine(on_demand)
    on_demand.put(payment(1))
    assert account_nonce(on_demand, RELAYER) == 3
    assert [transaction(on_demand, tx).nonce for tx in block(on_demand, 1).tx_hashes] == [0, 1]


def test_the_same_call_sent_twice_is_two_transactions(bench):
    assert bench.put(payment()) != bench.put(payment())


@pytest.mark.parametrize(("earlier", "measured"), [(0, 82_991), (1, 65_891), (2, 65_891)])
def test_a_settlement_costs_the_gas_measured_on_a_real_chain(bench, earlier, measured):
    for n in range(earlier):
        bench.send(payment(f"earlier {n}"))
    assert bench.send(payment()).gas_used == measured


def test_the_estimate_is_what_the_transaction_uses(bench):
    call = Call(RELAYER.address_bytes, TOKEN, payment())
    estimate = asyncio.run(bench.ledger.estimate_gas(call))
    assert bench.send(payment()).gas_used == estimate
    elsewhere = asyncio.run(bench.ledger.estimate_gas(replace(call, to=SHOP.address_bytes)))
    assert elsewhere == gas.intrinsic(call.data)


def test_calldata_zeros_are_cheaper():
    assert gas.intrinsic(b"") == 21_000
    assert gas.intrinsic(b"\x00\x00\x01") == 21_000 + 2 * 4 + 16


def test_the_token_alone_has_code(bench):
    assert asyncio.run(bench.ledger.code(TOKEN))
    assert asyncio.run(bench.ledger.code(ALICE.address_bytes)) == b""
    assert asyncio.run(bench.ledger.gas_price()) == GAS_PRICE_WEI


# --- funding -------------------------------------------------------------------------


def test_funding_mints(bench):
    asyncio.run(bench.ledger.fund(SHOP.address_bytes, 25))
    assert bench.balance(SHOP) == 25
    assert is_conserved(bench, START_BASE + 25)


def test_funding_that_the_token_refuses_is_an_error(bench):
    with pytest.raises(ChainError, match="mint amount not greater than 0"):
        asyncio.run(bench.ledger.fund(SHOP.address_bytes, 0))
    assert is_conserved(bench)


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
        (LogFilter(0, 99), [(1, 0), (1, 1), (2, 0), (3, 0)]),
        (LogFilter(2, 2), [(2, 0)]),
        (LogFilter(3, 2), []),
        (LogFilter(-5, 0), []),
        (LogFilter(0, 99, (SHOP.address_bytes,)), []),
        (LogFilter(0, 99, (TOKEN, SHOP.address_bytes), (TRANSFERS,)), [(1, 1), (2, 0)]),
        (LogFilter(0, 99, (), (TRANSFERS, (), (SHOP_WORD,))), [(1, 1), (2, 0)]),
        (LogFilter(0, 99, (), (TRANSFERS, (ALICE_WORD,), (SHOP_WORD,))), [(1, 1)]),
        (LogFilter(0, 99, (), ((), (ALICE_WORD, SHOP_WORD))), [(1, 0), (1, 1), (3, 0)]),
        (LogFilter(0, 99, (), ((), (), ())), [(1, 0), (1, 1), (2, 0), (3, 0)]),
        (LogFilter(0, 99, (), ((), (), (), ())), []),
    ],
)
def test_a_filter_passes_what_it_names(bench, wanted, found):
    bench.send(payment())
    bench.send(abi.mint(SHOP.address_bytes, 1), OWNER)
    bench.send(cancel_call(nonce("second")))
    logs = asyncio.run(bench.ledger.logs(wanted))
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


def test_waiting_for_what_is_mined_returns_at_once(bench):
    mined = bench.send(payment())
    assert asyncio.run(bench.ledger.wait(mined.tx_hash, 0)) == mined


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


def everything(bench: Bench) -> tuple:
    """Return all that a revert brings back, for comparison."""
    state = bench.state
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


def busy(bench: Bench, name: str) -> None:
    """Do a little of everything, leaving one transaction waiting."""
    asyncio.run(bench.ledger.set_automine(True))
    bench.send(payment(f"{name} 1"))
    bench.send(cancel_call(nonce(f"{name} 2")))
    bench.send(abi.mint(MALLORY.address_bytes, 9), OWNER)
    bench.send(SHORT)
    bench.send(abi.calldata(abi.BLACKLIST, MALLORY.address_bytes), OWNER)
    asyncio.run(bench.ledger.set_automine(False))
    bench.put(payment(f"{name} 3"))
    bench.now[0] += 5


def test_a_revert_brings_everything_back(bench):
    busy(bench, "before")
    before = everything(bench)
    number = snapshot(bench)
    busy(bench, "after")
    mine(bench, 3)
    assert everything(bench) != before
    revert(bench, number)
    assert everything(bench) == before
    assert is_conserved(bench, START_BASE + 9)
    mine(bench)
    assert bench.balance(SHOP) == 20_000


def test_snapshots_nest(bench):
    marks = []
    for n in range(3):
        marks.append((snapshot(bench), everything(bench)))
        bench.send(payment(n))
    for number, before in reversed(marks):
        revert(bench, number)
        assert everything(bench) == before


def test_a_revert_uses_up_its_snapshot_and_all_later_ones(bench):
    first, second, third = (snapshot(bench) for _ in range(3))
    bench.send(payment())
    revert(bench, second)
    for used_up in (second, third):
        with pytest.raises(ChainError, match=f"no snapshot {used_up}; there are: {first}"):
            revert(bench, used_up)
    revert(bench, first)
    with pytest.raises(ChainError, match=f"no snapshot {first}; there are: none"):
        revert(bench, first)


def test_snapshot_ids_are_never_given_twice(bench):
    first = snapshot(bench)
    revert(bench, first)
    assert snapshot(bench) > first


@pytest.mark.parametrize("unknown", [0, -1, 99])
def test_an_unknown_snapshot_is_refused(bench, unknown):
    before = everything(bench)
    with pytest.raises(ChainError, match=f"no snapshot {unknown}; there are: none"):
        revert(bench, unknown)
    assert everything(bench) == before


def test_a_reorg_replaces_the_last_blocks_and_mines_their_transactions_in_the_last(bench):
    sent = [bench.put(payment(n)) for n in range(4)]
    old = hashes(bench)
    bench.now[0] += 60
    reorg(bench, 3)
    new = hashes(bench)
    assert new[:2] == old[:2]
    assert len(new) == len(old)
    assert not set(new[2:]) & set(old)
    assert [block(bench, n).tx_hashes for n in (2, 3, 4)] == [(), (), tuple(sent[1:])]
    assert [block(bench, n).timestamp_s for n in range(1, 5)] == [NOW_S] + [NOW_S + 60] * 3
    assert all(receipt(bench, tx).block_hash == new[4] for tx in sent[1:])
    assert [block(bench, gone) for gone in old[2:]] == [None] * 3
    assert bench.balance(SHOP) == 40_000
    assert is_conserved(bench)


def test_even_a_block_with_nothing_in_it_gets_another_hash_each_time(bench):
    mine(bench)
    seen = set()
    for _ in range(4):
        seen.add(hashes(bench)[1])
        reorg(bench, 1)
    assert len(seen) == 4


def test_a_dropped_transaction_is_unknown_and_undone(bench):
    kept, dropped = bench.put(payment(1)), bench.put(payment(2))
    reorg(bench, 2, drop=[dropped])
    assert (transaction(bench, dropped), receipt(bench, dropped)) == (None, None)
    assert receipt(bench, kept).succeeded
    assert bench.balance(SHOP) == 10_000
    assert not bench.is_used(ALICE, nonce(2))
    logs = asyncio.run(bench.ledger.logs(LogFilter(0, 9)))
    assert {log.tx_hash for log in logs} == {kept}
    assert bench.send(payment(2)).succeeded
    assert is_conserved(bench)


@pytest.mark.parametrize(("dropped", "following"), [([1], 1), ([0], 2), ([0, 1], 0)])
def test_the_account_nonce_of_a_dropped_transaction_is_free_again(bench, dropped, following):
    sent = [bench.put(payment(n)) for n in range(2)]
    reorg(bench, 2, drop=[sent[n] for n in dropped])
    assert account_nonce(bench, RELAYER) == following


@pytest.mark.parametrize("drop", [False, True])
def test_a_reorg_mines_what_waits_unless_it_is_dropped(on_demand, drop):
    mine(on_demand)
    waiting = on_demand.put(payment())
    reorg(on_demand, 1, drop=[waiting] if drop else [])
    assert block(on_demand, 1).tx_hashes == (() if drop else (waiting,))
    assert (transaction(on_demand, waiting) is None) == drop
    assert on_demand.state.waiting == {}


def test_a_reorg_judges_by_the_new_time(bench):
    paid = bench.put(payment(valid_before=NOW_S + 10))
    assert bench.balance(SHOP) == 10_000
    bench.now[0] += 10
    reorg(bench, 1)
    assert receipt(bench, paid).revert_reason == "FiatTokenV2: authorization is expired"
    assert (bench.balance(SHOP), bench.is_used(ALICE, nonce("first"))) == (0, False)


@pytest.mark.parametrize("depth", [0, -1, 3, 10**6])
def test_a_reorg_out_of_reach_is_refused(bench, depth):
    mine(bench, 2)
    before = everything(bench)
    with pytest.raises(ChainError, match=f"last {depth} blocks; the last 2 can be"):
        reorg(bench, depth)
    assert everything(bench) == before


def test_a_reorg_ends_the_snapshots_of_what_it_replaced(bench):
    early = snapshot(bench)
    bench.send(payment(1))
    late = snapshot(bench)
    reorg(bench, 1)
    with pytest.raises(ChainError, match=f"no snapshot {late}; there are: {early}"):
        revert(bench, late)
    revert(bench, early)
    assert (bench.balance(SHOP), len(hashes(bench))) == (0, 1)


# --- a long chain --------------------------------------------------------------------


def test_a_long_chain_forgets_how_to_go_far_back_and_nothing_else(bench):
    asyncio.run(bench.ledger.fund(SHOP.address_bytes, 5))
    early = bench.put(payment("early"))
    mine(bench, 2 * KEPT_BLOCKS)
    late = bench.put(payment("late"))
    mine(bench, KEPT_BLOCKS - 1)
    height = asyncio.run(bench.ledger.height())
    assert bench.state._forgotten > 0

    with pytest.raises(ChainError, match=r"cannot replace the last \d+ blocks; the last \d+ can"):
        reorg(bench, height)
    reorg(bench, KEPT_BLOCKS)
    assert block(bench, height).tx_hashes == (late,)
    assert receipt(bench, late).succeeded
    assert receipt(bench, early).block_number == 2
    assert len(hashes(bench)) == height + 1
    assert (bench.balance(SHOP), bench.balance(ALICE)) == (20_005, START_BASE - 20_000)
    assert is_conserved(bench, START_BASE + 5)
    assert bench.send(payment("early")).succeeded is False


@pytest.mark.parametrize("extra", [0, 1, KEPT_BLOCKS - 1])
def test_the_promised_reach_is_kept_at_every_height(bench, extra):
    mine(bench, 2 * KEPT_BLOCKS + extra)
    old = hashes(bench)
    reorg(bench, KEPT_BLOCKS)
    new = hashes(bench)
    assert [a == b for a, b in zip(old, new, strict=True)].count(True) == len(old) - KEPT_BLOCKS


def test_a_snapshot_is_remembered_however_long_the_chain_grows(bench):
    bench.send(payment(1))
    before, number = everything(bench), snapshot(bench)
    mine(bench, 2 * KEPT_BLOCKS)
    bench.send(payment(2))
    revert(bench, number)
    assert everything(bench) == before
    mine(bench, 2 * KEPT_BLOCKS)
    assert bench.state._forgotten > 0
    assert bench.balance(SHOP) == 10_000


def test_after_a_revert_the_reach_is_that_of_the_shorter_chain(bench):
    mine(bench, 2 * KEPT_BLOCKS)
    number = snapshot(bench)
    mine(bench, 100)
    revert(bench, number)
    with pytest.raises(ChainError, match=f"the last {KEPT_BLOCKS} can be"):
        reorg(bench, KEPT_BLOCKS + 1)
    reorg(bench, KEPT_BLOCKS)


def test_reset_begins_again(bench):
    busy(bench, "before")
    asyncio.run(bench.ledger.reset())
    assert everything(bench) == everything(Bench(now=bench.now))
    assert not bench.ledger.machine.automine
    mine(bench)
    assert bench.put(payment()) in bench.state.waiting
