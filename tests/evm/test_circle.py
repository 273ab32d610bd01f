"""Circle's own contract: what else the ledger must have of it, beside what `test_equality` does."""

from itertools import product

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    RELAYER,
    SHOP,
    TOKEN,
    authorization,
    cancel_call,
    nonce,
    permit_call,
    signature_of,
    transfer_call,
)
from tests.evm import circle
from tests.evm.helpers import ChainDriver
from x402sim.chain.ledger import proxy
from x402sim.chain.ledger.token import FUNCTIONS, VIEWS
from x402sim.protocol import abi
from x402sim.protocol.crypto import keccak256, to_hex
from x402sim.protocol.eip3009 import Permit


def do(two: list[ChainDriver]) -> None:
    """Use the token on both chains, so that most of its storage is written."""
    domain = two[0].domain
    auth = authorization()
    paid = transfer_call(auth, signature_of(auth, domain=domain))
    permit = Permit(ALICE.address_bytes, MALLORY.address_bytes, 70, 0, 2**256 - 1)
    calls = [
        (paid, RELAYER),
        (permit_call(permit, domain=domain), RELAYER),
        (abi.calldata(abi.APPROVE, SHOP.address_bytes, 50), ALICE),
        (cancel_call(nonce("second"), domain=domain), RELAYER),
        (abi.calldata(abi.CONFIGURE_MINTER, MALLORY.address_bytes, 10), OWNER),
        (abi.mint(SHOP.address_bytes, 7), MALLORY),
        (abi.calldata(abi.BLACKLIST, SHOP.address_bytes), OWNER),
        (abi.calldata(abi.UPDATE_RESCUER, SHOP.address_bytes), OWNER),
        (abi.calldata(abi.UPDATE_PAUSER, ALICE.address_bytes), OWNER),
        (abi.PAUSE, ALICE),
        (abi.calldata(abi.UPDATE_BLACKLISTER, RELAYER.address_bytes), OWNER),
        (abi.calldata(abi.UPDATE_MASTER_MINTER, MALLORY.address_bytes), OWNER),
        (abi.calldata(abi.TRANSFER_OWNERSHIP, ALICE.address_bytes), OWNER),
    ]
    for chain in two:
        for data, sender in calls:
            assert chain.refusal(data, sender) is None


def entry(mapping: int, key: bytes) -> bytes:
    return keccak256(abi.word(key) + abi.word(mapping))


def test_the_ledger_has_circles_storage(two: list[ChainDriver]):
    do(two)
    anvil, ledger = (driver.chain for driver in two)
    accounts = [w.address_bytes for w in (ALICE, SHOP, OWNER, MALLORY)] + [TOKEN]
    used = [entry(int.from_bytes(entry(16, accounts[0])), nonce(n)) for n in ("first", "second")]
    slots = [
        *(abi.word(n) for n in range(20)),
        *proxy.SLOTS,
        *(entry(mapping, account) for mapping in (9, 12, 13) for account in accounts),
        *used,
        *(entry(int.from_bytes(entry(10, accounts[0])), a) for a in accounts),
        *(entry(17, account) for account in accounts),
    ]
    asked = [("eth_getStorageAt", to_hex(TOKEN), to_hex(slot), "latest") for slot in slots]
    real = two[0].run(anvil.node.ask_all(*asked))
    ours = [to_hex(two[1].run(ledger.storage(TOKEN, slot))) for slot in slots]
    assert ours == real
    assert sum(int(word, 16) != 0 for word in real) > 15


def test_every_getter_answers_the_same(two: list[ChainDriver]):
    do(two)
    accounts = [w.address_bytes for w in (ALICE, SHOP, OWNER, MALLORY)] + [TOKEN]
    views = [abi.NAME, abi.SYMBOL, abi.VERSION, abi.selector("currency()")]
    for signature in VIEWS.keys() - {"authorizationState(address,bytes32)"}:
        given = product(accounts, repeat=signature.count("address"))
        views += [abi.calldata(abi.selector(signature), *each) for each in given]
    for view in views:
        real, ours = (driver.view(view) for driver in two)
        assert ours == real, view.hex()


def test_the_ledger_has_circles_functions():
    functions = {abi.selector(signature) for signature in circle.functions()}
    assert FUNCTIONS.keys() == functions | set(proxy.OWN)


GOOD = authorization(nonce=nonce("packed"))


def malformed(domain) -> dict[str, bytes]:
    words = transfer_call(GOOD, signature_of(GOOD, domain=domain))
    packed = transfer_call(GOOD, signature_of(GOOD, domain=domain), packed=True)
    tail_at = 4 + 6 * 32
    return {
        "half a selector": words[:3],
        "a word short": words[:-32],
        "bytes cut off": packed[:-32],
        "bytes beyond": packed[:tail_at] + abi.word(2**255) + packed[tail_at + 32 :],
        "bytes at the end": packed[:tail_at] + abi.word(len(packed)) + packed[tail_at + 32 :],
        "endless bytes": packed[:-128] + abi.word(2**255) + packed[-96:],
        "a transfer to a dirty address": abi.TRANSFER + b"\x01" * 64,
        "a view without its argument": abi.BALANCE_OF,
        "more than is needed": words + b"\x01",
        "bytes whose padding is missing": packed[:-31],
        "bytes whose padding is dirty": packed[:-1] + b"\x01",
    }


def test_malformed_calldata_is_treated_the_same(two: list[ChainDriver]):
    for name, data in malformed(two[0].domain).items():
        real, ours = (driver.refusal(data) for driver in two)
        assert ours == real, name
