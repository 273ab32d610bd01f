"""Calls that are told what to find, and values that are set without a transaction: as on anvil."""

from typing import Any

import pytest

from tests.chain.helpers import ALICE, MALLORY, NOW_S, OWNER, RELAYER, SHOP, TOKEN
from tests.evm.flows import WALLET, paid, prepare
from tests.evm.helpers import ChainDriver
from x402sim.chain.ledger import storage
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, PrivateKey, keccak256, sign, to_hex

NEW = Wallet(b"\x55" * 32)


def slot(mapping: int, *keys: Wallet) -> str:
    at = mapping
    for key in keys:
        at = int.from_bytes(keccak256(abi.word(key.address_bytes) + abi.word(at)))
    return word(at)


def word(value: int | bytes) -> str:
    return to_hex(abi.word(value))


def call(data: bytes, by: Wallet = SHOP, to: Address = TOKEN) -> dict[str, str]:
    return {"from": by.address, "to": to_hex(to), "data": to_hex(data)}


def diff(*pairs: tuple[str, str], account: Address = TOKEN) -> dict[str, Any]:
    return {to_hex(account): {"stateDiff": dict(pairs)}}


RICH = diff((slot(storage.BALANCES, SHOP), word(500)))
SPEND = call(abi.calldata(abi.TRANSFER_FROM, ALICE.address_bytes, SHOP.address_bytes, 9))
DIGEST = keccak256(b"something")
SIGNED = sign(DIGEST, PrivateKey(bytes.fromhex(MALLORY.private_key[2:])))
ASK = call(abi.is_valid_signature(DIGEST, SIGNED), to=WALLET)
ASKED: dict[str, tuple[Any, ...]] = {
    "a balance": (call(abi.balance_of(SHOP.address_bytes)), RICH),
    "a transfer of it": (call(abi.transfer(ALICE.address_bytes, 500)), RICH),
    "too much of it": (call(abi.transfer(ALICE.address_bytes, 501)), RICH),
    "a balance of nobody": (
        call(abi.balance_of(NEW.address_bytes)),
        diff((slot(storage.BALANCES, NEW), word(7))),
    ),
    "no allowance": (SPEND, None),
    "an allowance": (SPEND, diff((slot(storage.ALLOWANCES, ALICE, SHOP), word(9)))),
    "a blacklisted sender": (
        SPEND,
        diff((slot(storage.BALANCES, SHOP), word(storage.BLACKLISTED))),
    ),
    "a paused token": (SPEND, diff((word(storage.PAUSER), word(b"\1" + OWNER.address_bytes)))),
    "another owner": (
        call(abi.selector("owner()")),
        diff((word(storage.OWNER), word(MALLORY.address_bytes))),
    ),
    "a minter": (
        call(abi.mint(SHOP.address_bytes, 3), MALLORY),
        diff(
            (slot(storage.MINTER_ALLOWANCES, MALLORY), word(3)),
            (slot(storage.MINTERS, MALLORY), word(1)),
        ),
    ),
    "the wallet's owner": (ASK, None),
    "another owner of the wallet": (
        ASK,
        diff((word(0), word(MALLORY.address_bytes)), account=WALLET),
    ),
    "the whole storage of the wallet": (ASK, {to_hex(WALLET): {"state": {word(1): word(1)}}}),
    "code by delegation": (
        {**ASK, "to": MALLORY.address},
        {MALLORY.address: {"code": "0xef0100" + WALLET.hex(), "nonce": "0x9"}},
    ),
    "too early": ("first", None, {"time": hex(NOW_S - 10_000)}),
    "in time": ("first", None, {"time": hex(NOW_S + 30)}),
    "too late": ("first", {}, {"time": hex(NOW_S + 10_000)}),
    "coins": (
        {**call(b"", to=ALICE.address_bytes), "value": "0x5"},
        {SHOP.address: {"balance": "0x6"}},
    ),
}


def test_overrides_are_those_of_anvil(two: list[ChainDriver]) -> None:
    for driver in two:
        prepare(driver)
    answered = 0
    for name, (asked, *overrides) in ASKED.items():
        for method in ("eth_call", "eth_estimateGas"):
            replies = []
            for driver in two:
                data = paid("first", ALICE, SHOP, domain=driver.domain)
                given = call(data, RELAYER) if asked == "first" else asked
                replies.append(driver.rpc.ask(method, given, "latest", *overrides))
            real, ours = replies
            if method == "eth_estimateGas":
                assert ("result" in ours) == ("result" in real), name
                continue
            assert ours.get("result") == real.get("result"), name
            assert ours.get("error", {}).get("data") == real.get("error", {}).get("data"), name
            answered += "result" in ours
    assert answered > 10
    for driver in two:
        poor = {**call(b"", NEW, ALICE.address_bytes), "value": "0x5"}
        assert "nsufficient funds" in driver.rpc.error("eth_call", poor, "latest")["message"]


def test_what_is_set_is_there_until_it_is_undone(two: list[ChainDriver]) -> None:
    code = "0x6001"
    for driver in two:
        prepare(driver)
    told = []
    for driver, is_ours in zip(two, (False, True), strict=True):
        chain, ask = driver.chain, driver.rpc.result
        snapshot = driver.run(chain.controls.snapshot())
        words = {
            slot(storage.BALANCES, SHOP): word(500),
            slot(storage.BALANCES, MALLORY): word(storage.BLACKLISTED | 3),
            slot(storage.ALLOWANCES, ALICE, SHOP): word(2),
            slot(storage.PERMIT_NONCES, ALICE): word(6),
            word(storage.RESCUER): word(SHOP.address_bytes),
        }
        for at, value in words.items():
            if is_ours:
                driver.run(chain.set_word(TOKEN, bytes.fromhex(at[2:]), bytes.fromhex(value[2:])))
            else:
                ask("anvil_setStorageAt", to_hex(TOKEN), at, value)
        if is_ours:
            driver.run(chain.put_code(NEW.address_bytes, bytes.fromhex(code[2:])))
            driver.run(chain.set_nonce(SHOP.address_bytes, 9))
        else:
            ask("anvil_setCode", NEW.address, code)
            ask("anvil_setNonce", SHOP.address, "0x9")
        seen = []
        for _ in range(2):
            seen += [ask("eth_getStorageAt", to_hex(TOKEN), at, "latest") for at in words]
            for each in (SHOP, MALLORY):
                seen.append(ask("eth_call", call(abi.balance_of(each.address_bytes)), "latest"))
            seen.append(ask("eth_getCode", NEW.address, "latest"))
            seen.append(ask("eth_getTransactionCount", SHOP.address, "latest"))
            if len(seen) < 10:
                sent = driver.send(abi.transfer(ALICE.address_bytes, 400), SHOP)
                seen += [sent.succeeded, driver.balance(SHOP)]
                driver.run(chain.controls.revert(snapshot))
        told.append(seen)
    assert told[0] == told[1]
    assert told[0][9:11] == [True, 100]


@pytest.mark.parametrize("at", [slot(storage.BALANCES, NEW), word(storage.SUPPLY)])
def test_a_slot_of_which_the_ledger_knows_nothing_is_refused_by_name(
    two: list[ChainDriver], at: str
) -> None:
    _, ours = two
    asked = call(abi.balance_of(SHOP.address_bytes)), "latest", diff((at, word(1)))
    assert "use --chain anvil" in ours.rpc.error("eth_call", *asked)["message"]
    for told in ({"code": "0x"}, {"state": {}}):
        error = ours.rpc.error("eth_call", asked[0], "latest", {to_hex(TOKEN): told})
        assert "use --chain anvil" in error["message"]
