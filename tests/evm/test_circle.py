"""Circle's own contract: storage, getters and malformed calldata, beside `test_equality`."""

from itertools import product

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    SHOP,
    TOKEN,
    authorization,
    nonce,
    signature_of,
    transfer_call,
)
from tests.evm import circle
from tests.evm.flows import flows, prepare
from tests.evm.helpers import ChainDriver
from x402sim.chain.ledger.token import FUNCTIONS, VIEWS
from x402sim.protocol import abi
from x402sim.protocol.crypto import keccak256, to_hex

ACCOUNTS = [*(w.address_bytes for w in (ALICE, SHOP, OWNER, MALLORY)), TOKEN]


def entry(mapping: int, *keys: bytes) -> bytes:
    """Return the slot of an entry of a mapping, or of a mapping inside."""
    slot = abi.word(mapping)
    for key in keys:
        slot = keccak256(abi.word(key) + slot)
    return slot


SLOTS = [
    *(abi.word(n) for n in range(20)),
    *(entry(mapping, account) for mapping in (9, 12, 13, 17) for account in ACCOUNTS),
    *(entry(10, ALICE.address_bytes, account) for account in ACCOUNTS),
    *(entry(16, ALICE.address_bytes, nonce(name)) for name in ("a", "d", "unused")),
]
GETTERS = [
    *(abi.NAME, abi.SYMBOL, abi.VERSION, abi.selector("currency()")),
    *(
        abi.calldata(abi.selector(signature), *given)
        for signature in VIEWS.keys() - {"authorizationState(address,bytes32)"}
        for given in product(ACCOUNTS, repeat=signature.count("address"))
    ),
]


def test_storage_and_getters_are_circles_after_every_call(two: list[ChainDriver]):
    anvil, ledger = two
    asked = [
        *(("eth_getStorageAt", to_hex(TOKEN), to_hex(slot), "latest") for slot in SLOTS),
        *(("eth_call", {"to": to_hex(TOKEN), "input": to_hex(it)}, "latest") for it in GETTERS),
    ]
    for driver in two:
        prepare(driver)
    written: set[int] = set()
    for flow in flows(anvil.domain):
        assert {driver.refusal(flow.data, flow.sender) for driver in two} == {None}
        real = anvil.rpc.results(*asked)
        ours = [*(ledger.storage(TOKEN, slot) for slot in SLOTS), *map(ledger.view, GETTERS)]
        assert [*map(to_hex, ours)] == real, flow
        written |= {n for n, word in enumerate(real[: len(SLOTS)]) if int(word, 16)}
    assert len(written) > 20


def test_the_ledger_has_circles_functions():
    functions = {abi.selector(signature) for signature in circle.functions()}
    assert FUNCTIONS.keys() == functions


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
