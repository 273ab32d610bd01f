"""The ledger's JSON-RPC answers what anvil's does, of the same blocks, transactions and logs."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chain.helpers import ALICE, MALLORY, NOW_S, OWNER, RELAYER, SHOP, TOKEN, nonce
from tests.evm.flows import paid
from tests.evm.helpers import MONEY, ChainDriver, Town
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.node.local_chain import LocalChain
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex

EXECUTED = "anvil executes the next block, and says what it would have"
OWN_FEES = "each has fees of its own"
APART = {
    "block.baseFeePerGas": OWN_FEES,
    "block.gasLimit": "anvil's is so high that every transaction fits into one block",
    "block.stateRoot": "the ledger has no tries",
    "block.transactionsRoot": "the ledger has no tries",
    "block.receiptsRoot": "the ledger has no tries",
    "block.mixHash": "the ledger draws no randomness",
    "block.size": "the ledger's is an estimate",
    "error.message": "each has its own words, but for those of the token",
    "fees.baseFeePerGas": OWN_FEES,
    "fees.gasUsedRatio": "of other limits",
    "fees.reward": OWN_FEES,
    "pending block.baseFeePerGas": OWN_FEES,
    "pending block.gasLimit": "as that of other blocks",
    "pending block.gasUsed": EXECUTED,
    "pending block.hash": "null on geth, too, and so are the next three",
    "pending block.logsBloom": EXECUTED,
    "pending block.miner": "null on geth",
    "pending block.nonce": "null on geth",
    "pending block.receiptsRoot": EXECUTED,
    "pending block.transactionsRoot": EXECUTED,
    "pending block.mixHash": "as that of other blocks",
    "pending block.size": "as that of other blocks",
    "receipt.blobGasPrice": "of a transaction without blobs, geth does not tell it",
    "receipt.blockTimestamp": "anvil's own, as a number, which JSON-RPC has nowhere",
    "transaction.v": "of one that was not signed: anvil makes it up",
}
"""The differences of the chains, by kind of object and field, with the reason."""
OTHERWISE = {
    ("eth_getBlockTransactionCountByNumber", "0x99"): "null on geth; an error on anvil",
}
"""The questions that one refuses and the other does not."""
UNKNOWN = to_hex(b"\xee" * 32)
TRANSFER, USED = to_hex(abi.TRANSFER_EVENT), to_hex(abi.AUTHORIZATION_USED)
PAYER = to_hex(bytes(12) + ALICE.address_bytes)
FILTERS: list[dict[str, Any]] = [
    {},  # the newest block only, which is empty
    {"fromBlock": "0x0"},
    {"fromBlock": "0x1", "toBlock": "0x1"},
    {"fromBlock": "0x0", "toBlock": "0x" + "f" * 16},
    {"fromBlock": "0x0", "address": [SHOP.address, checksum(TOKEN)]},
    {"fromBlock": "0x0", "address": to_hex(SHOP.address_bytes)},
    {"fromBlock": "0x0", "topics": [TRANSFER, PAYER]},
    {"fromBlock": "0x0", "topics": [TRANSFER, None]},
    {"fromBlock": "0x0", "topics": [None, None, to_hex(nonce("first"))]},
    {"fromBlock": "0x0", "topics": [[USED, UNKNOWN]]},
    {"blockHash": "block 1"},
    {"blockHash": UNKNOWN},
    {"topics": "0x"},
    {"address": "0x12"},
]
BALANCE = {"to": to_hex(TOKEN), "data": to_hex(abi.balance_of(SHOP.address_bytes))}
STATES = ("latest", "earliest", "0x1", "0x3", {"blockNumber": "0x1"})
QUESTIONS: list[tuple[Any, ...]] = [
    *(("eth_chainId",), ("net_version",), ("eth_syncing",), ("eth_blockNumber",)),
    *(("eth_getLogs", wanted) for wanted in FILTERS),
    *(
        ("eth_getBlockByNumber", tag, full)
        for tag in (*STATES[:-1], "0x99")
        for full in (False, True)
    ),
    *(("eth_getBlockByHash", name, False) for name in ("block 2", UNKNOWN)),
    *(("eth_getBlockReceipts", which) for which in ("latest", "0x1", "0x2", "0x99")),
    *(("eth_call", BALANCE, state) for state in (*STATES, {"blockHash": "block 2"})),
    ("eth_call", {**BALANCE, "data": "0x12345678"}, "latest"),
    ("eth_call", {**BALANCE, "to": SHOP.address}, "latest"),
    ("eth_call", {"to": "0x12"}, "latest"),
    *(("eth_getTransactionCount", OWNER.address, state) for state in STATES[:-1]),
    *(("eth_getBalance", RELAYER.address, state) for state in STATES[:-1]),
    *(("eth_getCode", SHOP.address, state) for state in STATES[:-1]),
    *(("eth_estimateGas", BALANCE, state) for state in STATES[:-1]),
    *(
        ("eth_getBlockTransactionCountByNumber", block)
        for block in ("latest", "0x1", "pending", "0x99", "earliest")
    ),
    *(("eth_getBlockTransactionCountByHash", name) for name in ("block 2", UNKNOWN)),
    *(
        ("eth_getTransactionByBlockNumberAndIndex", *which)
        for which in (("0x1", "0x0"), ("0x1", "0x1"), ("latest", "0x0"))
    ),
    *(
        ("eth_getTransactionByBlockHashAndIndex", *which)
        for which in (("block 2", "0x0"), ("block 2", "0x7"), (UNKNOWN, "0x0"))
    ),
    ("eth_getBlockByNumber", "pending", False),
    ("eth_feeHistory", "0x3", "latest", [50]),
    *(("net_listening",), ("web3_sha3", "0x68656c6c6f"), ("web3_sha3", "0x"), ("eth_blobBaseFee",)),
    *((f"eth_getTransaction{by}", UNKNOWN) for by in ("ByHash", "Receipt")),
    *(
        (f"eth_getTransaction{by}", f"transaction {number}")
        for by in ("ByHash", "Receipt")
        for number in range(6)
    ),
]
FILTER_KINDS = [
    *(("eth_newFilter", wanted) for wanted in FILTERS[1:10] if "toBlock" not in wanted),
    ("eth_newFilter", {"toBlock": "0x1"}),
    *(("eth_newBlockFilter",), ("eth_newPendingTransactionFilter",)),
]


def happen(driver: ChainDriver) -> Iterator[bytes]:
    """Do what is asked about; yields the hash of each transaction."""
    for data in (paid("first", ALICE, SHOP, domain=driver.domain),) * 2:
        yield driver.put(data)
    yield driver.put(abi.mint(ALICE.address_bytes, 5), OWNER)
    driver.mine()
    yield driver.put(b"", ALICE, to=MALLORY.address_bytes, value=7)
    driver.set_automine(False)
    yield driver.put(abi.transfer(SHOP.address_bytes, 3), ALICE)
    driver.mine(2)
    yield driver.put(abi.transfer(SHOP.address_bytes, 4), ALICE)


def answers(driver: ChainDriver) -> list[Any]:
    """Return a chain's answers to all questions, and the news of filters meanwhile."""
    ask = driver.rpc.ask
    filters = [ask(*kind)["result"] for kind in FILTER_KINDS]
    told, names = [], {}
    for number, tx_hash in enumerate(happen(driver)):
        names[to_hex(tx_hash)] = f"transaction {number}"
        told += [ask("eth_getFilterChanges", name) for name in filters]
    for number in range(driver.height() + 1):
        names[to_hex(driver.block(number).hash)] = f"block {number}"
    told += [ask("eth_getFilterLogs", name) for name in filters[:-3]]
    hashes = {name: found for found, name in names.items()}
    told += [ask(method, *replaced(params, hashes)) for method, *params in QUESTIONS]
    return replaced(told, names)


def replaced(value: Any, names: dict[str, str]) -> Any:
    """Return a value with other names for some texts."""
    match value:
        case dict():
            return {k: replaced(v, names) for k, v in value.items()}
        case list() | tuple():
            return [replaced(each, names) for each in value]
        case str():
            return names.get(value, value)
        case _:
            return value


KINDS = {
    "logIndex": "log",
    "cumulativeGasUsed": "receipt",
    "sha3Uncles": "block",
    "gasPrice": "transaction",
    "oldestBlock": "fees",
    "message": "error",
}
"""By a field that only such an object has, unless an earlier row fits."""


def apart(ours: Any, real: Any, within: str = "answer") -> Iterator[str]:
    """Yield kind and field of all that differs."""
    match ours, real:
        case dict(), dict():
            kind = next((KINDS[name] for name in KINDS if name in ours), within)
            if kind == "block" and ours["hash"] is None:
                kind = "pending block"
            for name in ours.keys() | real.keys():
                if name in ours and name in real:
                    yield from apart(ours[name], real[name], f"{kind}.{name}")
                else:
                    yield f"{kind}.{name}"
        case list(), list() if len(ours) == len(real):
            for pair in zip(ours, real, strict=True):
                yield from apart(*pair, within)
        case _ if ours != real:
            yield within


@pytest.mark.parametrize("at_block_time", [True, False])
def test_a_call_has_the_time_of_the_newest_block_as_on_an_idle_node_or_that_of_now(
    circle_town: Town, at_block_time: bool
) -> None:
    """An authorization valid from now on, and another expired since the last block."""
    town = circle_town
    options = {"calls_at_block_time": at_block_time}
    node = LocalChain(
        town.node, town.network, town.clock, **MONEY, install=lambda *_: None, **options
    )
    ledger = LedgerChain(town.network, town.clock, **MONEY, **options)
    real, ours = (town.driver(chain) for chain in (node, ledger))
    town.now[0] += 100
    fields = {"from": SHOP.address, "to": to_hex(TOKEN)}
    told = []
    for window in ({"valid_after": NOW_S + 50}, {"valid_before": NOW_S + 50}):
        data = paid(str(window), ALICE, SHOP, domain=town.network.domain, **window)
        asked = {**fields, "data": to_hex(data)}
        by_rpc = ["error" in d.rpc.ask("eth_call", asked, "latest") for d in (real, ours)]
        told.append((real.tried(data, SHOP), ours.tried(data, SHOP), *by_rpc))
    early, expired = (
        f"FiatTokenV2: authorization is {why}" for why in ("not yet valid", "expired")
    )
    if at_block_time:
        assert told == [(early, early, True, True), (None, None, False, False)]
    else:  # anvil's own way at its RPC is a node's
        assert told == [(None, None, True, False), (expired, expired, False, True)]


def test_the_ledger_answers_as_anvil(two: list[ChainDriver]) -> None:
    """Field by field, but for the differences in the tables; and every difference exists."""
    real, ours = map(answers, two)
    told = len(real) - len(QUESTIONS)
    seen, refused = set[str](), set[Any]()
    for asked, one, other in zip([*range(told), *QUESTIONS], ours, real, strict=True):
        if ("error" in one) != ("error" in other):
            refused.add(asked)
            continue
        found = {*apart(one, other)}
        assert found <= APART.keys(), (asked, one, other)
        seen |= found
    assert refused == OTHERWISE.keys()
    assert seen == APART.keys()
    assert sum("error" in each for each in real) in range(4, 12)
    assert sum(bool(each["result"]) for each in real[:told]) > 20
