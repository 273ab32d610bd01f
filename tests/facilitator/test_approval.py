"""The extension erc20ApprovalGasSponsoring: the payer's signed approval, broadcast before the settlement.

Each word has the sentence of the specification that demands it, or the library's check.
"""

from typing import Any

import pytest
from eth_account import Account

from tests.chain.helpers import ALICE, MALLORY, NATIVE_WEI, OWNER, RELAYER, SHOP, START_BASE
from tests.facilitator.test_facilitator import Desk
from tests.facilitator.test_permit2 import (
    MOST,
    SETTLE,
    USED,
    VERIFY,
    asking,
    authorization,
    reason,
)
from x402sim.chain.base import GAS_LIMIT
from x402sim.facilitator.approval import FEES, TIP_WEI
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.x402_reasons import PaymentFate, meaning_of

FEE_WEI = 2 * TESTNET.base_fee_wei


def approval(
    by: Wallet = ALICE, amount_base: int = MAX_UINT256, *, info: Any = None, **changes: Any
) -> dict[str, Any]:
    """Return the extension with Alice's approval; `changes` are of the transaction."""
    tx = {
        "to": checksum(TESTNET.asset),
        "data": to_hex(abi.approve(PERMIT2, amount_base)),
        "nonce": 0,
        "gas": 70_000,
        "maxFeePerGas": FEE_WEI,
        "maxPriorityFeePerGas": 0,
        "value": 0,
        "chainId": TESTNET.chain_id,
        "type": 2,
    }
    raw = Account.sign_transaction(tx | changes, by.private_key).raw_transaction
    told = {
        "from": ALICE.address,
        "asset": checksum(TESTNET.asset),
        "spender": checksum(PERMIT2),
        "amount": str(amount_base),
        "signedTransaction": to_hex(bytes(raw)),
        "version": "1",
    }
    return {"erc20ApprovalGasSponsoring": {"info": told | (info or {})}}


def sent(desk: Desk) -> list[tuple[bytes, str | None]]:
    """Return who sent each mined transaction, and why it was reverted."""
    receipts = desk.driver.state.receipts.values()
    return [(each.call.sender, each.revert_reason) for each in receipts]


@pytest.mark.parametrize("upto", [True, False])
@pytest.mark.parametrize("held_wei", [0, NATIVE_WEI])
def test_the_approval_is_broadcast_and_the_missing_gas_is_sent(upto: bool, held_wei: int) -> None:
    """“Fund the Client's wallet with enough native gas token if the Client lacks sufficient funds.”"""
    desk, used = Desk(), USED if upto else MOST
    desk.driver.set_native_balance(ALICE.address_bytes, held_wei)
    body = asking(used, upto=upto, extensions=approval())
    assert desk.post(VERIFY, asking(upto=upto, extensions=approval()))["isValid"]
    assert sent(desk) == [], "verify sends nothing"
    assert desk.post(SETTLE, body)["success"]
    relayer, alice = RELAYER.address_bytes, ALICE.address_bytes
    senders = [relayer] * (not held_wei) + [alice, relayer]
    assert sent(desk) == [(each, None) for each in senders]
    assert desk.driver.balance(SHOP) == used

    assert reason(desk.post(SETTLE, body)) == "permit2_invalid_nonce"
    assert len(sent(desk)) == len(senders), "nothing is sent twice"


def test_with_an_allowance_the_approval_is_not_broadcast() -> None:
    """“allowance already on-chain” (the library)"""
    desk = Desk()
    desk.driver.send(abi.approve(PERMIT2, MOST), ALICE)
    assert desk.post(SETTLE, asking(USED, extensions=approval(nonce=9)))["success"]


DEAR = {"gas": GAS_LIMIT, "maxFeePerGas": FEES * TESTNET.base_fee_wei + TIP_WEI + 1}
UNFIT = {
    "from": ({"info": {"from": MALLORY.address}}, "erc20_approval_from_mismatch"),
    "asset": ({"info": {"asset": MALLORY.address}}, "erc20_approval_asset_mismatch"),
    "spender": ({"info": {"spender": SHOP.address}}, "erc20_approval_spender_not_permit2"),
    "cut": ({"info": {"signedTransaction": "0x12"}}, "erc20_approval_tx_parse_failed"),
    "no hex": ({"info": {"signedTransaction": "0xno"}}, "erc20_approval_tx_parse_failed"),
    "no text": ({"info": {"amount": 7}}, "invalid_erc20_approval_extension_format"),
    "no number": ({"info": {"amount": "all"}}, "invalid_erc20_approval_extension_format"),
    "signer": ({"by": MALLORY}, "erc20_approval_tx_signer_mismatch"),
    "target": ({"to": SHOP.address}, "erc20_approval_tx_wrong_target"),
    "function": (
        {"data": to_hex(abi.transfer(SHOP.address_bytes, 1))},
        "erc20_approval_tx_wrong_selector",
    ),
    "spender of the call": (
        {"data": to_hex(abi.approve(SHOP.address_bytes, 1))},
        "erc20_approval_tx_wrong_spender",
    ),
    "amount of the call": ({"info": {"amount": "7"}}, "erc20_approval_tx_invalid_calldata"),
    "value": ({"value": 1}, "erc20_approval_tx_invalid_calldata"),
    "too little": ({"amount_base": MOST - 1}, "permit2_allowance_required"),
    "chain": ({"chainId": 1}, "erc20_approval_tx_failed"),
    "nonce": ({"nonce": 1}, "erc20_approval_tx_failed"),
    "fee": (
        {"maxFeePerGas": TESTNET.base_fee_wei - 1, "maxPriorityFeePerGas": 0},
        "erc20_approval_tx_failed",
    ),
    "too much gas": (DEAR, "erc20_approval_tx_failed"),
}


@pytest.mark.parametrize("path", [VERIFY, SETTLE])
@pytest.mark.parametrize("what", UNFIT)
def test_a_wrong_approval_is_refused_by_its_word_and_sends_nothing(path: str, what: str) -> None:
    """“nonce matches user's current on-chain nonce”, “maxFee … match the current network prices”"""
    changes, word = UNFIT[what]
    desk = Desk()
    desk.driver.set_native_balance(ALICE.address_bytes, 0)
    answer = desk.post(path, asking(extensions=approval(**changes)))
    assert reason(answer) == word
    assert answer.get("invalidMessage", answer.get("errorMessage"))
    assert sent(desk) == []
    assert meaning_of(word).fate is PaymentFate.REFUSED


def test_no_gas_is_sent_for_a_payment_that_lacks_more_than_the_approval() -> None:
    desk = Desk()
    assert desk.post(SETTLE, asking(USED, extensions=approval()))["success"]
    desk.driver.send(abi.approve(PERMIT2, 0), ALICE)
    desk.driver.set_native_balance(ALICE.address_bytes, 0)
    before, again = sent(desk), approval(nonce=2)
    for path in (VERIFY, SETTLE):
        assert reason(desk.post(path, asking(extensions=again))) == "permit2_invalid_nonce"
    desk.driver.set_native_balance(ALICE.address_bytes, NATIVE_WEI)
    desk.driver.send(abi.transfer(SHOP.address_bytes, START_BASE - USED), ALICE)
    poor = asking(auth=authorization(nonce=78), extensions=approval(nonce=3))
    for path in (VERIFY, SETTLE):
        assert reason(desk.post(path, poor)) == "permit2_insufficient_balance"
    assert len(sent(desk)) == len(before) + 1


def test_a_paused_token_refuses_the_approval() -> None:
    """“Simulate the full execution sequence”"""
    desk = Desk()
    desk.driver.send(abi.PAUSE, OWNER)
    for path in (VERIFY, SETTLE):
        answer = desk.post(path, asking(extensions=approval()))
        assert reason(answer) == "erc20_approval_tx_failed"


def test_an_approval_that_is_not_mined_is_told_and_not_sent_twice() -> None:
    desk = Desk(settings=FacilitatorSettings(receipt_timeout_s=0.05))
    desk.driver.set_automine(False)
    body = asking(USED, extensions=approval())
    answer = desk.post(SETTLE, body)
    assert reason(answer) == "erc20_approval_broadcast_failed"
    assert reason(desk.post(SETTLE, body)) == "erc20_approval_tx_failed", "its nonce waits"
    assert meaning_of("erc20_approval_broadcast_failed").fate is PaymentFate.REFUSED
    desk.driver.mine()
    desk.driver.set_automine(True)
    assert desk.post(SETTLE, body)["success"]
    assert [sender for sender, _ in sent(desk)] == [ALICE.address_bytes, RELAYER.address_bytes]
