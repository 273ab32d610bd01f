"""The wallet: keys, windows and signatures, with eth-account as the oracle."""

import pytest
from eth_account import Account

from tests.strategies import requirements
from x402sim import TESTNET, Wallet
from x402sim.protocol.crypto import recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import authorization_of, decode_header

WANTED = requirements()
JUNK = "test test test test test test test test test test test junk"


@pytest.mark.clause("2.3/window", "8/validity-window")
def test_the_window_is_the_specifications_and_each_nonce_another() -> None:
    wallet = Wallet.create()
    made = [wallet.authorize(WANTED, now_s=1_000_000) for _ in range(100)]
    assert {(each.valid_after, each.valid_before) for each in made} == {(999_940, 1_000_300)}
    assert len({each.nonce for each in made}) == 100


@pytest.mark.clause("2.3/hex-header", "2.3/contents")
def test_the_header_holds_what_was_signed() -> None:
    wallet = Wallet(b"k" * 32)
    header = wallet.payment_header(WANTED, 1_000_000)
    assert header.startswith("0x")
    decoded = decode_header(header)
    auth, signature = authorization_of(header)
    assert recover(transfer_digest(auth, TESTNET.domain), signature) == wallet.address_bytes
    assert (auth.value, auth.to) == (10_000, b"\x22" * 20)
    spelled = wallet.payment_header(WANTED, 1_000_000, spelling="base64")
    assert not spelled.startswith("0x")
    assert decode_header(spelled).payload.to == decoded.payload.to


def test_keys_are_eth_accounts_keys() -> None:
    account = Account.from_key("0x" + "5a" * 32)
    for key in ("0x" + "5a" * 32, b"\x5a" * 32, account):
        wallet = Wallet(key)
        assert (wallet.address, wallet.private_key) == (account.address, "0x" + "5a" * 32)
        assert wallet.account.address == account.address
    assert "5a5a" not in repr(wallet)


def test_a_phrase_gives_the_accounts_every_tool_knows() -> None:
    assert Wallet.from_mnemonic(JUNK).address == "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
    assert Wallet.from_mnemonic(JUNK, 1).address == "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
