"""Payers that are contracts: Circle's contract asks them (EIP-1271), and so does the ledger."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    RELAYER,
    SHOP,
    START_BASE,
    authorization,
    cancel_call,
    nonce,
    signature_of,
)
from tests.evm.flows import CODE, WALLET, paid, prepare
from tests.evm.helpers import ChainDriver
from tests.evm.test_equality import SIGNATURES
from x402sim.chain import contract
from x402sim.chain.base import Call
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import recover
from x402sim.protocol.eip3009 import transfer_digest

FORGED = "FiatTokenV2: invalid signature"
USED = "FiatTokenV2: authorization is used or canceled"


@pytest.fixture
def two(two: list[ChainDriver]) -> list[ChainDriver]:
    """Circle's contract on anvil, and the ledger; Alice's smart wallet has tokens on both."""
    for chain in two:
        prepare(chain)
        assert chain.refusal(abi.transfer(WALLET, START_BASE // 2), ALICE) is None
    return two


def refusal(two: list[ChainDriver], data: bytes, sender: Wallet = RELAYER) -> str | None:
    """Send a call to both chains; return why both refuse it."""
    tried = [driver.tried(data, sender) for driver in two]
    receipts = [driver.send(data, sender) for driver in two]
    real, ours = receipts
    assert ours.revert_reason == real.revert_reason == tried[0] == tried[1]
    if real.succeeded:
        events = [[(log.topics, log.data) for log in receipt.logs] for receipt in receipts]
        assert events[0] == events[1]
    return real.revert_reason


def pay(two: list[ChainDriver], name: str = "first", **how: Any) -> str | None:
    """Pay from Alice's smart wallet, with a signature as bytes unless told otherwise."""
    how = {"from_": WALLET, "packed": True, **how}
    data = paid(name, ALICE, SHOP, domain=two[0].domain, **how)
    return refusal(two, data, SHOP if how.get("receive") else RELAYER)


@pytest.fixture(params=[False, True], ids=["v, r, s", "bytes"])
def packed(request) -> bool:
    """Whether the signature goes as bytes."""
    return request.param


@pytest.mark.parametrize("receive", [False, True], ids=["transfer", "receive"])
def test_the_owners_signature_is_the_wallets(two, packed: bool, receive: bool):
    assert pay(two, packed=packed, receive=receive) is None
    assert [driver.balance(SHOP) for driver in two] == [10_000, 10_000]
    assert pay(two, packed=packed, receive=receive) == USED


def test_a_wallet_cancels(two, packed: bool):
    data = cancel_call(nonce("first"), of=WALLET, packed=packed, domain=two[0].domain)
    assert refusal(two, data) is None
    assert pay(two) == USED


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    **SIGNATURES,
    "nothing": lambda _: b"",
    "64 bytes": lambda s: s[:64],
    "66 bytes": lambda s: s + b"\x00",
    "wrapped for a wallet that is not there": lambda s: s + bytes.fromhex("6492" * 16),
}


def test_what_the_wallet_refuses_the_token_refuses_in_one_word(two):
    """Not in the words of ECRecover, which is not asked."""
    assert {name: pay(two, spoil=spoil) for name, spoil in SPOILT.items()} == dict.fromkeys(
        SPOILT, FORGED
    )


def test_another_signer_is_refused(two, packed: bool):
    assert pay(two, by=MALLORY, packed=packed) == FORGED


@pytest.mark.parametrize(
    "code", [b"\xef\x01\x00" + SHOP.address_bytes, b"\xfe"], ids=["delegates to nothing", "other"]
)
def test_a_key_that_makes_the_payers_address_is_not_enough(two, packed: bool, code: bytes):
    """An account with code is asked, and no signature of its own key counts (EIP-7702)."""
    for chain in two:
        chain.set_code(ALICE.address_bytes, code)
    assert pay(two, from_=ALICE.address_bytes, packed=packed) == FORGED


def test_an_account_that_delegates_to_a_wallets_code_signs_through_it(two, packed: bool):
    for chain in two:
        chain.set_code(ALICE.address_bytes, b"\xef\x01\x00" + CODE)
    assert pay(two, from_=ALICE.address_bytes, packed=packed) is None
    assert pay(two, from_=ALICE.address_bytes, by=MALLORY, name="second") == FORGED


def test_the_wallet_answers_for_itself(two):
    """As a facilitator asks it: eth_getCode, then isValidSignature."""
    auth = authorization(from_=WALLET)
    digest = transfer_digest(auth, two[0].domain)
    good = signature_of(auth, domain=two[0].domain)
    assert recover(digest, good) == ALICE.address_bytes
    for signature in (good, good[:64], b"", good[:64] + b"\x00", b"\xff" * 65):
        call = Call(RELAYER.address_bytes, WALLET, abi.is_valid_signature(digest, signature))
        real, ours = (chain.call(call) for chain in two)
        assert ours == real
        assert (real == abi.VALID_SIGNATURE) == (signature == good)
    for account, code in ((WALLET, contract.wallet_code()), (SHOP.address_bytes, b"")):
        assert [chain.code(account) for chain in two] == [code, code]


def test_a_wallet_outlives_what_is_undone_but_not_a_reset(two):
    for chain in two:
        chain.reorg(1)
        assert chain.code(WALLET)
        snapshot = chain.snapshot()
        chain.set_code(CODE, contract.wallet_code())
        chain.revert(snapshot)
        assert chain.code(CODE)
        assert chain.code(WALLET)
    assert pay(two) is None
    for chain in two:
        chain.reset()
        assert chain.code(WALLET) == b""
