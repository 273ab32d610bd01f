"""The cost of a payment, a lookup or a page of the journal does not grow with the run.

Work is counted, not timed: how many balances are added up, how many blocks or entries are read.
"""

from tests.chain.helpers import (
    ALICE,
    TOKEN,
    LedgerDriver,
    cancel_call,
    nonce,
    payment,
)
from x402sim.chain.base import Block, Log, LogFilter
from x402sim.chain.ledger import machine
from x402sim.protocol import abi

MANY = 300


def pay(driver: LedgerDriver, number: int) -> None:
    assert driver.refusal(payment(number, value=1)) is None


def logs(driver: LedgerDriver, *topics: tuple[bytes, ...], first: int = 0) -> list[Log]:
    wanted = LogFilter(first, 2**63, (TOKEN,), topics)
    return driver.logs(wanted)


USES = (abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED)


def test_logs_are_found_as_by_reading_every_block_also_after_a_reorganisation(driver):
    for number in range(20):
        pay(driver, number)
    driver.send(cancel_call(nonce("canceled")))
    dropped = [tx for n in (19, 20) for tx in driver.state.blocks[n].tx_hashes]
    driver.reorg(4, dropped)
    pay(driver, "later")
    wanted = [
        (USES, (abi.word(ALICE.address_bytes),), (nonce(n),)) for n in (1, 17, 18, 19, "canceled")
    ]
    for topics in [*wanted, (USES,), ((abi.AUTHORIZATION_CANCELED,),), ((), (b"x" * 32,))]:
        for first in (0, 10, 18, 21, 99):
            assert logs(driver, *topics, first=first) == by_reading(driver, topics, first)
    assert [len(logs(driver, *topics)) for topics in wanted] == [1, 1, 0, 0, 1]


def by_reading(driver: LedgerDriver, topics: tuple[tuple[bytes, ...], ...], first: int) -> list:
    blocks: list[Block] = [driver.state.blocks[n] for n in sorted(driver.state.blocks)]
    return [
        log
        for block in blocks
        for tx in block.tx_hashes
        for log in driver.state.receipts[tx].logs
        if block.number >= first
        and len(topics) <= len(log.topics)
        and all(not any_of or t in any_of for any_of, t in zip(topics, log.topics, strict=False))
    ]


# --- an archive of old transactions ---------------------------------------------------


def test_old_transactions_move_to_an_archive_and_are_read_from_there(monkeypatch):
    keeps, moves = LedgerDriver(), LedgerDriver()
    for driver, blocks in ((keeps, 1024), (moves, 16)):
        monkeypatch.setattr(machine, "KEPT_BLOCKS", blocks)
        for number in range(50):
            pay(driver, number)
    assert len(keeps.state.receipts) == 50
    assert len(moves.state.receipts) == len(moves.state.transactions) == 50 - 32
    assert everything(moves) == everything(keeps)
    for driver in (keeps, moves):
        driver.reorg(9)
        pay(driver, "after")
    assert everything(moves) == everything(keeps)
    moves.reset()
    pay(moves, 0)
    assert moves.height() == 1
    for driver in (keeps, moves):
        driver.ledger.close()


def everything(driver: LedgerDriver) -> list[object]:
    blocks = [driver.block(n) for n in range(driver.height() + 1)]
    hashes = [tx for block in blocks for tx in block.tx_hashes]
    read = [(driver.transaction(tx), driver.receipt(tx), driver.wait(tx, 1)) for tx in hashes]
    return [blocks, read, driver.logs(LogFilter(0, 99))]
