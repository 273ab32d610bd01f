"""Payers that are contracts, in both dialects: the facilitator asks wallet and token alike."""

import asyncio
from typing import Any

import pytest
from eth_abi import encode

from tests.chain.helpers import ALICE, MALLORY, SHOP, authorization, nonce, signature_of
from tests.facilitator.test_facilitator import SETTLE, VERIFY, Desk, asking, header
from tests.facilitator.test_standard import Away, asking as asking_standard
from x402sim.chain import contract
from x402sim.protocol import abi, x402_reasons
from x402sim.protocol.crypto import UNDEPLOYED, Address, checksum

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


def wrapped(signature: bytes, *, factory: Address = DELEGATE, call: bytes = b"\x12" * 5) -> bytes:
    """Return a signature in the wrapper of EIP-6492: abi.encode(factory, call, signature)."""
    return encode(["address", "bytes", "bytes"], [factory, call, signature]) + UNDEPLOYED


@pytest.mark.parametrize("version", [1, 2])
def test_the_wrapper_around_a_wallet_that_is_deployed_is_taken_off(desk: Desk, version: int):
    """EIP-6492: only an undeployed wallet needs the deploying call."""
    for name, call in (("with a call", b"\x12" * 5), ("without", b"")):
        auth = authorization(from_=WALLET, nonce=nonce(name))
        body = asking_standard(version, auth, signature=wrapped(signature_of(auth), call=call))
        assert desk.post("/verify", body) == {"isValid": True, "payer": checksum(WALLET)}
        assert desk.post("/settle", body)["success"]
    assert desk.driver.balance(SHOP) == 20_000
    assert desk.post("/settle", body)["errorReason"] == x402_reasons.NONCE_USED[version]


@pytest.mark.parametrize(
    "signature",
    [
        wrapped(signature_of(PAID, by=MALLORY)),
        wrapped(wrapped(signature_of(PAID))),
        wrapped(b""),
        UNDEPLOYED,
        signature_of(PAID) + UNDEPLOYED,
        b"\xff" * 96 + UNDEPLOYED,
        wrapped(signature_of(PAID))[32:],
    ],
    ids=["another's", "twice", "empty", "nothing", "no wrapper", "huge offset", "cut"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_is_no_signature_in_the_wrapper_of_a_deployed_wallet_is_an_invalid_one(
    desk: Desk, version: int, signature: bytes
):
    for path, word in (("/verify", "invalidReason"), ("/settle", "errorReason")):
        refused = desk.post(path, asking_standard(version, PAID, signature=signature))
        assert refused[word] == "invalid_exact_evm_payload_signature"


@pytest.mark.parametrize("version", [1, 2])
def test_a_wallet_that_is_not_there_is_told_as_such(desk: Desk, version: int):
    absent = authorization(from_=contract.wallet_address(MALLORY.address_bytes))
    body = asking_standard(version, absent, signature=wrapped(signature_of(absent)))
    refused = desk.post("/verify", body)
    assert refused["invalidReason"] == "invalid_exact_evm_payload_undeployed_smart_wallet"


def test_whether_a_wallet_is_deployed_may_be_unknown(desk: Desk):
    body = asking_standard(2, PAID, signature=wrapped(signature_of(PAID)))
    refused = Desk(chain=Away(desk, "code")).post("/verify", body)
    assert refused["invalidReason"] == "unexpected_verify_error"


def test_without_an_answer_of_the_chain_no_signature_is_verified(desk: Desk):
    """Also not an account's own: where it delegates to a contract, that decides."""
    silent = Desk(chain=Away(desk, "code"))
    for asked in asking(), asking(header(PAID)):
        answer = silent.request("POST", VERIFY, json=asked)
        assert (answer.status_code, answer.json()["error"]) == (503, "Chain unavailable")
        assert "whether the payer is a contract is not known" in answer.json()["reason"]
