"""Payers that are contracts, in both dialects: the facilitator asks them what it asks the token."""

import asyncio
from typing import Any

import pytest

from tests.chain.helpers import ALICE, MALLORY, SHOP, authorization, nonce, signature_of
from tests.facilitator.test_facilitator import SETTLE, VERIFY, Desk, asking, header
from tests.facilitator.test_standard import Away, asking as asking_standard
from x402sim.chain import contract
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address

WALLET = contract.wallet_address(ALICE.address_bytes)
PAID = authorization(from_=WALLET)
DELEGATE = Address(b"\x0c" * 20)


@pytest.fixture
def desk() -> Desk:
    """A facilitator, and Alice's smart wallet with tokens."""
    desk = Desk()
    slots = contract.wallet_storage(ALICE.address_bytes)
    set_code(desk, WALLET, contract.wallet_code(), slots)
    assert desk.driver.refusal(abi.transfer(WALLET, 50_000), ALICE) is None
    return desk


def set_code(desk: Desk, account: Address, code: bytes, slots: dict[bytes, bytes]) -> None:
    asyncio.run(desk.driver.ledger.set_code(account, code, slots))


def verdict(desk: Desk, **sent: Any) -> str | None:
    """Return why verify and settle of the Cronos dialect refuse a payment; they say the same."""
    verified = desk.post(VERIFY, asking(header(**sent)))
    settled = desk.post(SETTLE, asking(header(**sent)))
    assert verified["isValid"] == (settled["event"] == "payment.settled")
    reason: str | None = verified["invalidReason"]
    return reason


def test_the_owner_of_a_smart_wallet_pays_with_it(desk: Desk):
    assert verdict(desk, auth=PAID) is None
    assert desk.driver.balance(SHOP) == 10_000
    again = desk.post(SETTLE, asking(header(PAID)))
    assert again["error"] == "Authorization already used"


def test_an_account_with_code_is_asked_and_its_own_key_is_not_enough(desk: Desk):
    """EIP-7702: the code that an account delegates to decides, as it does at the token."""
    set_code(desk, ALICE.address_bytes, b"\xef\x01\x00" + DELEGATE, {})
    assert verdict(desk) == "Invalid EIP-3009 signature"
    set_code(desk, DELEGATE, contract.wallet_code(), {})
    assert verdict(desk, auth=authorization(nonce=nonce("through it"))) is None


@pytest.mark.parametrize("version", [1, 2])
def test_the_standard_has_the_same_verdicts(desk: Desk, version: int):
    good = asking_standard(version, PAID)
    assert desk.post("/verify", good)["isValid"]
    forged = desk.post("/verify", asking_standard(version, PAID, by=MALLORY))
    assert forged["invalidReason"] == "invalid_exact_evm_payload_signature"
    wrapped = signature_of(PAID) + bytes.fromhex("6492" * 16)
    undeployed = desk.post("/verify", asking_standard(version, PAID, signature=wrapped))
    assert undeployed["invalidReason"] == "invalid_exact_evm_payload_undeployed_smart_wallet"
    assert desk.post("/settle", good)["success"]


def test_without_an_answer_of_the_chain_no_signature_is_verified(desk: Desk):
    """Also not an account's own: where it delegates to a contract, that decides."""
    silent = Desk(chain=Away(desk, "code"))
    for asked in asking(), asking(header(PAID)):
        answer = silent.request("POST", VERIFY, json=asked)
        assert (answer.status_code, answer.json()["error"]) == (503, "Chain unavailable")
        assert "whether the payer is a contract is not known" in answer.json()["reason"]
