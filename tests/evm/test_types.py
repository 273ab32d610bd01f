"""Transactions of types 1 and 4 have the same effects and costs on ledger and anvil."""

from typing import Any

import pytest
from eth_account import Account

from tests.chain.helpers import ALICE, MALLORY, RELAYER, SHOP, START_BASE, TOKEN
from tests.evm.flows import WALLET, paid, prepare
from tests.evm.helpers import ChainDriver
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import TESTNET

NEW = Wallet(b"\x55" * 32)
FEES = {"maxFeePerGas": TESTNET.base_fee_wei, "maxPriorityFeePerGas": TESTNET.base_fee_wei}


def sent(driver: ChainDriver, sender: Wallet, **changes: Any) -> Any:
    """Sign and send a transaction at once; return its receipt."""
    fields = {
        "chainId": TESTNET.chain_id,
        "nonce": driver.account_nonce(sender.address_bytes),
        "gas": 400_000,
        "to": checksum(TOKEN),
        "value": 0,
        "data": abi.transfer(SHOP.address_bytes, 3),
    }
    raw = Account.sign_transaction(fields | changes, sender.private_key).raw_transaction
    return driver.rpc.result("eth_sendRawTransactionSync", to_hex(raw))


def wish(signer: Wallet, nonce: int, account: str, chain_id: int = TESTNET.chain_id) -> Any:
    asked = {"chainId": chain_id, "address": account, "nonce": nonce}
    return Account.sign_authorization(asked, signer.private_key)


def delegating(driver: ChainDriver, sender: Wallet, *wishes: Any, **changes: Any) -> Any:
    """Send a transaction with delegations."""
    return sent(driver, sender, type=4, authorizationList=[*wishes], **FEES, **changes)


def test_an_access_list_costs_the_same(two: list[ChainDriver]) -> None:
    lists = [[], [{"address": SHOP.address, "storageKeys": ["0x" + "11" * 32]}]]
    asked = {"from": ALICE.address, "to": checksum(TOKEN)}
    asked["data"] = to_hex(abi.transfer(SHOP.address_bytes, 3))
    for slots in lists:
        told = [d.rpc.result("eth_estimateGas", {**asked, "accessList": slots}) for d in two]
        assert told[0] == told[1]
        more = {"type": 1, "gasPrice": TESTNET.base_fee_wei, "accessList": slots}
        real, ours = (sent(driver, ALICE, **more) for driver in two)
        assert ours["gasUsed"] == real["gasUsed"]
        assert ours["status"] == real["status"] == ours["type"] == "0x1"


@pytest.mark.parametrize("chain_id", [0, TESTNET.chain_id])
def test_an_account_takes_the_code_of_a_wallet_pays_by_it_and_gives_it_back(
    two: list[ChainDriver], chain_id: int
) -> None:
    for driver in two:
        prepare(driver)
        sent(driver, ALICE, to=NEW.address, value=1, data=b"", gasPrice=TESTNET.base_fee_wei)
    used = []
    for driver in two:
        to_wallet = wish(
            ALICE, driver.account_nonce(ALICE.address_bytes), checksum(WALLET), chain_id
        )
        seen = [delegating(driver, RELAYER, to_wallet, to=SHOP.address, data=b"")]
        code = driver.rpc.result("eth_getCode", ALICE.address, "latest")
        assert code == "0xef0100" + WALLET.hex()
        data = paid("by code", ALICE, SHOP, domain=driver.domain, packed=True)
        seen.append(sent(driver, RELAYER, data=data, type=2, **FEES))
        assert driver.balance(SHOP) > 0
        refused = [
            wish(ALICE, 0, checksum(WALLET)),  # its nonce is another by now
            wish(NEW, 0, checksum(WALLET), 1),
            wish(NEW, 3, checksum(WALLET)),
        ]
        seen.append(delegating(driver, RELAYER, *refused))
        assert driver.rpc.result("eth_getCode", NEW.address, "latest") == "0x"
        both = (wish(NEW, number, MALLORY.address) for number in (0, 1))
        seen.append(delegating(driver, ALICE, *both))
        back = wish(ALICE, driver.account_nonce(ALICE.address_bytes), "0x" + "00" * 20)
        seen.append(delegating(driver, RELAYER, back))
        too_much = abi.transfer(SHOP.address_bytes, 2 * START_BASE)
        seen.append(delegating(driver, ALICE, wish(NEW, 2, MALLORY.address), data=too_much))
        codes = [driver.rpc.result("eth_getCode", it.address, "latest") for it in (ALICE, NEW)]
        assert codes == ["0x", "0xef0100" + MALLORY.address_bytes.hex()]
        nonces = [driver.account_nonce(it.address_bytes) for it in (ALICE, NEW, RELAYER)]
        used.append([[(it["status"], int(it["gasUsed"], 16)) for it in seen], nonces])
        tx = driver.rpc.result("eth_getTransactionByHash", seen[-1]["transactionHash"])
        used[-1].append([tx["authorizationList"], tx["type"], tx["accessList"], tx["yParity"]])
    assert used[0] == used[1]


def test_geth_refunds_nothing_for_an_account_that_was_never_there(two: list[ChainDriver]) -> None:
    """A row of the table in `ledger/gas.py`: anvil does."""
    asked = wish(NEW, 0, MALLORY.address)
    real, ours = (delegating(it, RELAYER, asked, to=SHOP.address, data=b"") for it in two)
    gas = 21_000 + 25_000
    assert [int(it["gasUsed"], 16) for it in (ours, real)] == [gas, gas - gas // 5]
