"""Signed transactions over JSON-RPC: accepted, refused, and the cost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from tests.chain.asking import PAYMENT, SHOP, UNKNOWN, Rpc
from tests.chain.helpers import ALICE, RELAYER, LedgerDriver, payment
from tests.chain.test_ledger_file import contents
from x402sim.chain.base import ForcedReverts
from x402sim.chain.ledger.ledger import AT_A_TURN
from x402sim.chain.ledger.machine import Machine
from x402sim.chain.rpc import reading
from x402sim.http.limits import MAX_TRANSACTION_BYTES as MAX_BYTES
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash, checksum, keccak256, to_hex
from x402sim.protocol.networks import TESTNET
from x402sim.tasks import Turns

TOKEN = checksum(TESTNET.asset)
BOB, BOB_KEY, BOBS_WEI = RELAYER.address, bytes.fromhex(RELAYER.private_key[2:]), 10**21


def signed(key: bytes = BOB_KEY, **changes: Any) -> str:
    fields: dict[str, Any] = {"to": TOKEN, "value": 0, "gas": 200_000, "nonce": 0, "chainId": 338}
    fields |= {"data": PAYMENT.data} | changes
    if "gasPrice" not in fields:
        fees = {"maxFeePerGas": 2 * TESTNET.base_fee_wei, "maxPriorityFeePerGas": 10**9}
        fields = {"type": 2, **fees, **fields}
    kept = {name: value for name, value in fields.items() if value is not None}
    return to_hex(Account.sign_transaction(kept, key).raw_transaction)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"chainId": 1}, "invalid chain id for signer: have 1 want 338"),
        ({"gas": 21_000}, "intrinsic gas too low: gas 21000, minimum needed"),
        ({"gas": 25_000}, "insufficient gas for floor data gas cost: gas 25000, minimum needed"),
        ({"gas": 30_000_001}, "exceeds block gas limit"),
        ({"maxFeePerGas": 1, "maxPriorityFeePerGas": 0}, "max fee per gas less than block base"),
        ({"gasPrice": 1}, "maxFeePerGas: 1, baseFee: 5000000000000"),
        ({"maxPriorityFeePerGas": 3 * TESTNET.base_fee_wei}, "max priority fee per gas higher than max"),
        ({"value": BOBS_WEI}, f"insufficient funds for gas * price + value: balance {BOBS_WEI}, tx"),
        ({"key": b"\x0c" * 32}, "insufficient funds for gas * price + value: balance 0"),
        ({"to": None}, "contracts cannot be created here"),
        ({"data": b"\1" * MAX_BYTES, "gas": 29_000_000}, "oversized data: transaction size"),
        (
            {"gas": 60_000, "accessList": [{"address": TOKEN, "storageKeys": ["0x" + "1" * 64] * 30}]},
            "intrinsic gas too low",
        ),
    ],
)  # fmt: skip
def test_a_refused_transaction_leaves_no_trace(
    rpc: Rpc, changes: dict[str, Any], says: str
) -> None:
    error = rpc.error("eth_sendRawTransaction", signed(**changes))
    assert error["code"] == -32000
    assert says in error["message"]
    assert rpc.result("eth_blockNumber") == "0x0"


def test_a_signed_transaction_survives_a_reorganisation_and_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "chain"
    chain = LedgerDriver(file=file).ledger
    rpc = Rpc(ledger=chain)
    sent = rpc.result("eth_sendRawTransaction", signed())
    ahead = rpc.result("eth_sendRawTransaction", signed(nonce=2))
    asyncio.run(chain.controls.reorg(1))
    receipt = rpc.result("eth_getTransactionReceipt", sent)
    pool = rpc.result("txpool_content")
    chain.close()
    opened = LedgerDriver(file=file).ledger
    rpc = Rpc(ledger=opened)
    assert rpc.result("eth_getTransactionReceipt", sent) == receipt
    assert receipt["status"] == "0x1"
    assert rpc.result("txpool_content") == pool
    assert pool["queued"][BOB.lower()]["2"]["hash"] == ahead
    rpc.result("eth_sendRawTransaction", signed(nonce=1))
    assert rpc.result("eth_getTransactionReceipt", ahead)["blockNumber"] == "0x2"
    opened.close()


# --- behind a gap in nonces: `tests/evm/test_mempool.py` compares it with anvil --------


def test_the_queue_has_rules_of_geth(rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    first = signed(nonce=3, gasPrice=TESTNET.base_fee_wei)
    rpc.result("eth_sendRawTransaction", first)

    def refused(**changes: Any) -> str:
        return rpc.error("eth_sendRawTransaction", signed(**changes))["message"]

    assert rpc.error("eth_sendRawTransaction", first)["message"] == "already known"
    cheap = refused(nonce=3, gasPrice=TESTNET.base_fee_wei * 109 // 100)
    assert cheap == "replacement transaction underpriced"
    price_wei = TESTNET.base_fee_wei * 11 // 10
    dear = rpc.result("eth_sendRawTransaction", signed(nonce=3, gasPrice=price_wei))
    rest = BOBS_WEI - 200_000 * (price_wei + TESTNET.base_fee_wei)
    poor = refused(nonce=5, gasPrice=TESTNET.base_fee_wei, value=rest + 1)
    assert poor == (
        f"insufficient funds for gas * price + value: balance {BOBS_WEI}, queued cost "
        f"{200_000 * price_wei}, tx cost {rest + 1 + 200_000 * TESTNET.base_fee_wei}, overshot 1"
    )
    assert rpc.result(
        "eth_sendRawTransaction", signed(nonce=5, gasPrice=TESTNET.base_fee_wei, value=rest)
    )
    monkeypatch.setattr("x402sim.chain.ledger.machine.MAX_QUEUED", 2)
    other = {"key": bytes.fromhex(ALICE.private_key[2:])}
    assert refused(nonce=8, **other) == "txpool is full"
    assert rpc.result("eth_sendRawTransaction", signed(nonce=0, **other))
    mine = rpc.result("txpool_content")["queued"][BOB.lower()]
    assert [*mine] == ["3", "5"]
    assert mine["3"]["hash"] == dear
    assert rpc.run(rpc.ledger.drop(Hash(bytes.fromhex(dear[2:]))))
    assert rpc.result("txpool_status") == {"pending": "0x0", "queued": "0x1"}
    assert rpc.run(rpc.ledger.waiting()) == 1
    rpc.run(rpc.ledger.drop())
    assert rpc.result("txpool_content") == {"pending": {}, "queued": {}}


def coins(rpc: Rpc, *nonces: int) -> list[str]:
    """Send a transaction of Bob's with each of these nonces; return the hashes."""
    sent = (signed(nonce=nonce, to=checksum(SHOP), data=b"") for nonce in nonces)
    return [rpc.result("eth_sendRawTransaction", raw) for raw in sent]


def delegation(nonce: int) -> Any:
    """Return Bob's delegation to an account, which uses a nonce of his."""
    asked = {"chainId": TESTNET.chain_id, "address": checksum(SHOP), "nonce": nonce}
    return Account.sign_authorization(asked, BOB_KEY)


@pytest.mark.parametrize("automine", [True, False])
def test_a_delegation_that_uses_the_missing_nonce_ends_the_gap(rpc: Rpc, automine: bool) -> None:
    rpc.run(rpc.ledger.set_automine(automine))
    stale, ahead, far = coins(rpc, 1, 2, 4)
    key = bytes.fromhex(ALICE.private_key[2:])
    sent = signed(key, type=4, authorizationList=[delegation(0), delegation(1)])
    rpc.result("eth_sendRawTransaction", sent)
    if not automine:
        rpc.run(rpc.ledger.mine())
        pool = rpc.result("txpool_content")
        assert pool["pending"][BOB.lower()]["2"]["hash"] == ahead
        assert rpc.result("eth_getTransactionCount", BOB, "pending") == "0x3"
        rpc.run(rpc.ledger.reorg(1))
        assert rpc.result("txpool_content") == pool
        rpc.run(rpc.ledger.mine())
    assert rpc.result("eth_getTransactionByHash", stale) is None
    assert rpc.result("eth_getTransactionReceipt", ahead)["blockNumber"] == "0x2"
    assert rpc.result("txpool_content")["queued"][BOB.lower()]["4"]["hash"] == far
    rpc.result("eth_sendRawTransaction", signed(nonce=3))
    rpc.run(rpc.ledger.mine())
    assert rpc.result("eth_getTransactionReceipt", far)["status"] == "0x1"


@pytest.mark.parametrize("automine", [True, False])
def test_a_nonce_that_is_set_ends_the_gap(rpc: Rpc, automine: bool) -> None:
    rpc.run(rpc.ledger.set_automine(automine))
    stale, ahead, far = coins(rpc, 1, 2, 4)
    rpc.run(rpc.ledger.set_nonce(RELAYER.address_bytes, 2))
    assert rpc.result("eth_getTransactionByHash", stale) is None
    assert rpc.result("eth_getTransactionCount", BOB, "pending") == "0x3"
    if not automine:
        rpc.run(rpc.ledger.mine())
    assert rpc.result("eth_getTransactionReceipt", ahead)["blockNumber"] == "0x1"
    assert rpc.result("txpool_content")["queued"][BOB.lower()]["4"]["hash"] == far


def test_a_nonce_that_is_set_counts_what_waits_and_takes_out_what_can_never_run(rpc: Rpc) -> None:
    rpc.run(rpc.ledger.set_automine(False))
    stale, kept = coins(rpc, 0, 1)
    rpc.run(rpc.ledger.set_nonce(RELAYER.address_bytes, 1))
    assert rpc.result("eth_getTransactionCount", BOB, "pending") == "0x2"
    assert rpc.result("eth_getTransactionByHash", stale) is None
    rpc.run(rpc.ledger.drop())
    assert rpc.result("eth_getTransactionByHash", kept) is None
    assert rpc.result("eth_getTransactionCount", BOB, "pending") == "0x1"


def test_the_pending_state_changes_nothing(driver: LedgerDriver) -> None:
    rpc = Rpc(ledger=driver.ledger)
    rpc.run(rpc.ledger.set_automine(False))
    for nonce in (0, 1):
        rpc.result("eth_sendRawTransaction", signed(nonce=nonce, data=payment(nonce)))
    rpc.run(rpc.ledger.force_revert(1))
    before = contents(driver)
    asked = {"to": TOKEN, "data": to_hex(abi.balance_of(SHOP))}
    for tag, paid in (("latest", 0), ("pending", 10_000)):
        assert int(rpc.result("eth_call", asked, tag), 16) == paid
    assert contents(driver) == before
    assert rpc.ledger.machine.forced_reverts == ForcedReverts(1)


def test_calls_on_the_pending_block_share_its_execution_and_leave_others_their_turns(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call executed the whole mempool in one piece (issue 51)."""
    rpc.run(rpc.ledger.set_automine(False))

    def send(first: int, number: int) -> None:
        for n in range(first, first + number):
            rpc.result("eth_sendRawTransaction", signed(nonce=n, data=payment(n, value=1)))

    send(0, 50)
    executed = turns = 0
    most = dict[int, int]()
    execute = Machine._execute

    def counted(*given: Any) -> Any:
        nonlocal executed
        executed += 1
        most[turns] = most.get(turns, 0) + 1
        return execute(*given)

    monkeypatch.setattr(Machine, "_execute", counted)
    asked = {"to": TOKEN, "data": to_hex(abi.balance_of(SHOP))}
    context = reading.RpcContext(rpc.ledger, {}, False, turns=Turns())

    async def call(tag: str) -> str:
        await context.turn()
        return await reading.eth_call(context, asked, tag)

    async def paid(*tags: str) -> list[int]:
        nonlocal turns
        calls = [asyncio.create_task(call(tag)) for tag in tags]
        while not all(call.done() for call in calls):
            turns += 1
            await asyncio.sleep(0)
        return [int(call.result(), 16) for call in calls]

    assert asyncio.run(paid(*["pending"] * 20, "latest")) == [50] * 20 + [0]
    assert executed == 50
    assert max(most.values()) <= 2 * AT_A_TURN
    send(50, 3)
    assert asyncio.run(paid("pending", "pending")) == [53, 53]
    assert executed == 53
    rpc.run(rpc.ledger.set_native_balance(RELAYER.address_bytes, BOBS_WEI))
    assert asyncio.run(paid("pending")) == [53]
    assert executed == 2 * 53
    dear = signed(nonce=52, data=payment("dear", value=5), gasPrice=3 * TESTNET.base_fee_wei)
    rpc.result("eth_sendRawTransaction", dear)  # replaces an executed transaction
    assert asyncio.run(paid("pending")) == [57]
    rpc.run(rpc.ledger.drop())
    assert asyncio.run(paid("pending")) == [0]


# --- accounts of the server ----------------------------------------------------------


def test_the_server_signs_what_its_accounts_send() -> None:
    wallet = Rpc(BOB_KEY)
    asked = {"from": BOB, "to": TOKEN, "data": to_hex(PAYMENT.data)}
    tx_hash = wallet.result("eth_sendTransaction", asked)
    tx = wallet.result("eth_getTransactionByHash", tx_hash)
    assert (tx["from"], tx["type"], tx["gas"]) == (BOB.lower(), "0x2", hex(200_000))
    legacy = {"from": BOB, "to": BOB, "value": "0x5", "gasPrice": hex(TESTNET.base_fee_wei)}
    tx_hash = wallet.result("eth_sendTransaction", legacy)
    assert wallet.result("eth_getTransactionReceipt", tx_hash)["type"] == "0x0"
    too_large = {"from": BOB, "to": BOB, "nonce": hex(2**200), "maxFeePerGas": hex(2**255)}
    assert "error" in wallet.ask("eth_sendTransaction", too_large)
    assert "from" in wallet.error("eth_sendTransaction", {**asked, "from": None})["message"]
    both = wallet.error("eth_sendTransaction", {**legacy, "maxFeePerGas": "0x1"})
    assert "both gasPrice and" in both["message"]


# --- storage -------------------------------------------------------------------------


def test_a_word_of_storage_is_told_by_a_short_or_a_long_slot(rpc: Rpc) -> None:
    """`tests/evm/test_circle.py` compares all of them with Circle's token."""
    balance = to_hex(keccak256(abi.word(SHOP) + abi.word(9)))
    rpc.result("eth_sendRawTransaction", signed())
    for asked, word in (
        *(((TOKEN, slot), 1_000_000) for slot in ("0xb", "0x" + "0" * 63 + "b")),
        *(((TOKEN, balance), 10_000), ((TOKEN, balance, "0x0"), 0), ((BOB, "0xb"), 0)),
    ):
        assert int(rpc.result("eth_getStorageAt", *asked), 16) == word
    assert rpc.error("eth_getStorageAt", TOKEN, "b")["code"] == -32602


def test_a_transaction_is_sent_and_answered_with_its_receipt(rpc: Rpc) -> None:
    receipt = rpc.result("eth_sendRawTransactionSync", signed())
    assert receipt == rpc.result("eth_getTransactionReceipt", receipt["transactionHash"])
    rpc.run(rpc.ledger.set_automine(False))
    late = rpc.error("eth_sendRawTransactionSync", signed(nonce=1), 1)
    assert (late["code"], len(late["data"])) == (4, 66)
    assert rpc.result("eth_getTransactionByHash", late["data"])["nonce"] == "0x1"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("eth_getProof", [BOB, [], "latest"]),
        ("eth_simulateV1", [{"blockStateCalls": []}, "latest"]),
        ("eth_createAccessList", [{"to": TOKEN}]),
        ("debug_traceTransaction", [UNKNOWN, {"tracer": "callTracer"}]),
        ("eth_call", [{"data": "0x6000"}, "latest"]),
        ("eth_call", [{"to": TOKEN}, "latest", {BOB: {"balance": "0x1"}}]),
        ("eth_estimateGas", [{"to": TOKEN}, "latest", {BOB: {"code": "0x"}}]),
        ("eth_sendRawTransaction", [signed(to=None)]),
    ],
)
def test_what_needs_an_evm_names_the_way(rpc: Rpc, method: str, params: list[Any]) -> None:
    assert "use --chain anvil" in rpc.error(method, *params)["message"]
