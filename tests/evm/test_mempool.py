"""A mempool with gaps in nonces, as several senders in a process make: the ledger as anvil, with a
single named difference.
"""

from typing import Any

import pytest
from eth_account import Account

from tests.chain.helpers import RELAYER, SHOP, TOKEN, payment
from tests.evm.helpers import ChainDriver
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import TESTNET

TO = checksum(b"\x44" * 20)
PRICE_WEI = 6000 * 10**9
BALANCE = {"to": to_hex(TOKEN), "data": to_hex(abi.balance_of(SHOP.address_bytes))}


def signed(nonce: int, **changes: Any) -> str:
    fields = {"to": TO, "value": 1, "gas": 21_000, "gasPrice": PRICE_WEI, "nonce": nonce}
    fields |= {"chainId": TESTNET.chain_id} | changes
    return to_hex(Account.sign_transaction(fields, RELAYER.private_key).raw_transaction)


class Pool:
    """The mempool of a chain, over JSON-RPC."""

    def __init__(self, driver: ChainDriver) -> None:
        self.driver, self.ask = driver, driver.rpc.result

    def send(self, nonce: int, **changes: Any) -> str:
        return self.ask("eth_sendRawTransaction", signed(nonce, **changes))

    def counts(self) -> tuple[int, ...]:
        """Return how many wait, pending and queued, and the nonces told of as latest and pending."""
        status = self.ask("txpool_status")
        tags = ("latest", "pending")
        nonces = [self.ask("eth_getTransactionCount", RELAYER.address, tag) for tag in tags]
        return tuple(int(n, 16) for n in (status["pending"], status["queued"], *nonces))

    def blocks(self) -> list[list[str]]:
        """Return the transactions of each block."""
        height = int(self.ask("eth_blockNumber"), 16)
        found = [self.ask("eth_getBlockByNumber", hex(n), False) for n in range(1, height + 1)]
        return [block["transactions"] for block in found]


@pytest.fixture
def pool(either: ChainDriver) -> Pool:
    return Pool(either)


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (4, 3, 2, 1, 0)])
def test_five_sends_at_once_are_mined_in_whatever_order_they_arrive(
    pool: Pool, order: tuple[int, ...]
) -> None:
    sent = {nonce: pool.send(nonce) for nonce in order}
    mined = [tx_hash for block in pool.blocks() for tx_hash in block]
    assert mined == [sent[nonce] for nonce in sorted(order)]
    assert pool.counts() == (0, 0, len(order), len(order))
    assert int(pool.ask("eth_getBalance", TO, "latest"), 16) == len(order)


def test_a_nonce_that_is_ahead_waits_and_no_block_is_mined_for_it(pool: Pool) -> None:
    ahead = pool.send(2)
    assert (pool.blocks(), pool.counts()) == ([], (0, 1, 0, 0))
    assert pool.ask("eth_getTransactionByHash", ahead)["blockHash"] is None
    assert pool.ask("eth_getTransactionReceipt", ahead) is None
    first = pool.send(0)
    pool.driver.mine()
    assert pool.blocks() == [[first], []]
    assert pool.counts() == (0, 1, 1, 1)
    second = pool.send(1)
    assert (pool.blocks()[2], pool.counts()) == ([second, ahead], (0, 0, 3, 3))


def test_the_pending_state_is_that_after_the_waiting_transactions(pool: Pool) -> None:
    pool.driver.set_automine(False)
    for nonce in (0, 1, 3):
        pool.send(nonce)
    pool.send(2, to=checksum(TOKEN), value=0, data=payment(value=7), gas=200_000)
    pool.send(5)

    def by_tag(tag: str) -> tuple[int, ...]:
        asked = ("eth_getBalance", TO, tag), ("eth_call", BALANCE, tag)
        return (*(int(pool.ask(*each), 16) for each in asked),)

    assert (by_tag("latest"), by_tag("pending")) == ((0, 0), (3, 7))
    assert pool.counts() == (4, 1, 0, 4)
    assert len(pool.ask("eth_getBlockByNumber", "pending", False)["transactions"]) == 4
    pool.driver.mine()
    assert (by_tag("latest"), by_tag("pending")) == ((3, 7), (3, 7))


def test_what_waits_is_told_by_sender_and_nonce(pool: Pool) -> None:
    pool.driver.set_automine(False)
    hashes = [pool.send(nonce) for nonce in (0, 1, 4)]
    sender = RELAYER.address.lower()
    content = pool.ask("txpool_content")
    found = {
        which: {n: tx["hash"] for n, tx in content[which][sender].items()} for which in content
    }
    assert found == {"pending": {"0": hashes[0], "1": hashes[1]}, "queued": {"4": hashes[2]}}


def test_a_transaction_is_dropped_with_those_after_it(pool: Pool) -> None:
    """A test node's `anvil_dropTransaction`."""
    pool.driver.set_automine(False)
    hashes = [bytes.fromhex(pool.send(nonce)[2:]) for nonce in (0, 1, 2, 5)]
    assert pool.driver.run(pool.driver.chain.controls.drop(hashes[1]))
    assert not pool.driver.run(pool.driver.chain.controls.drop(hashes[1]))
    assert pool.counts() == (1, 1, 0, 1)
    again = pool.send(1, value=3)
    pool.driver.mine()
    assert pool.blocks() == [[to_hex(hashes[0]), again]]


def test_a_reorganisation_puts_them_back_and_a_gap_that_it_makes_is_waited_for(pool: Pool) -> None:
    first, second, last = (pool.send(nonce) for nonce in (0, 1, 3))
    pool.driver.reorg(2, [bytes.fromhex(first[2:])])
    assert (pool.blocks(), pool.counts()) == ([[], []], (0, 2, 0, 0))
    again = pool.send(0, value=5)
    assert [block for block in pool.blocks() if block] == [[again, second]]  # anvil mines one more
    assert pool.counts() == (0, 1, 2, 2)
    third = pool.send(2)
    for _ in range(2):
        assert [block for block in pool.blocks() if block] == [[again, second], [third, last]]
        pool.driver.reorg(1)


def test_one_with_too_low_a_nonce_is_refused(pool: Pool) -> None:
    pool.send(0)
    assert "nonce too low" in pool.driver.rpc.error("eth_sendRawTransaction", signed(0))["message"]


def test_one_that_waits_is_replaced_for_a_tenth_more(pool: Pool) -> None:
    """So on geth and the ledger. On anvil any more will do, and behind a gap it keeps both."""
    pool.driver.set_automine(False)
    for nonce in (0, 2):
        pool.send(nonce)
    dear = [pool.send(nonce, gasPrice=PRICE_WEI * 11 // 10) for nonce in (0, 2)]
    refused = pool.driver.rpc.ask("eth_sendRawTransaction", signed(0))
    assert refused["error"]["message"] == "replacement transaction underpriced"
    filler = pool.send(1)
    pool.driver.mine()
    assert pool.blocks() == [[dear[0], filler, dear[1]]]
