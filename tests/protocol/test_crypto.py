import pytest
from eth_account import Account
from eth_utils import keccak

from tests.strategies import CURVE_ORDER
from x402sim.protocol.crypto import (
    HALF_ORDER,
    UNDEPLOYED,
    BadSignature,
    PrivateKey,
    checksum,
    from_hex,
    parse_address,
    recover,
    unwrapped,
)

ADDRESS = "0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0"


DIGEST = keccak(b"a message")
GOOD = bytes(Account.unsafe_sign_hash(DIGEST, "0x" + "11" * 32).signature)
HIGH_S = (CURVE_ORDER - int.from_bytes(GOOD[32:64])).to_bytes(32)


NO_KEYS = [r.to_bytes(32) + GOOD[32:] for r in (0, CURVE_ORDER, 2**256 - 1, 5)]
REFUSED: dict[str, list[bytes]] = {
    "ECRecover: invalid signature length": [(GOOD * 3)[:size] for size in (0, 1, 64, 66, 130)],
    "ECRecover: invalid signature 's' value": [
        GOOD[:32] + HIGH_S + bytes([55 - GOOD[64]]),
        GOOD[:32] + (HALF_ORDER + 1).to_bytes(32) + GOOD[64:],
    ],
    "ECRecover: invalid signature 'v' value": [GOOD[:64] + bytes([v]) for v in (0, 1, 26, 29, 255)],
    "ECRecover: invalid signature": [*NO_KEYS, GOOD[:32] + bytes(32) + GOOD[64:]],
}


@pytest.mark.parametrize("text", REFUSED)
def test_recover_refuses_what_gives_no_key_in_the_contracts_words(text):
    for signature in REFUSED[text]:
        with pytest.raises(BadSignature) as refused:
            recover(DIGEST, signature)
        assert str(refused.value) == text


def test_s_may_be_half_the_order():
    assert HALF_ORDER == CURVE_ORDER // 2
    assert recover(DIGEST, GOOD[:32] + HALF_ORDER.to_bytes(32) + GOOD[64:])


def test_a_key_shows_no_secret():
    key = PrivateKey(bytes(range(32)))
    assert bytes(range(8)).hex() not in f"{key!r} {key}"


@pytest.mark.parametrize("spell", [str, str.lower, lambda a: "0x" + a[2:].upper()])
def test_an_address_may_be_of_any_case(spell):
    assert checksum(parse_address(spell(ADDRESS))) == ADDRESS


BAD_ADDRESSES = {
    "empty": "", "short": ADDRESS[:-1], "long": ADDRESS + "0", "no prefix": ADDRESS[2:] + "00",
    "upper prefix": "0X" + ADDRESS[2:], "space inside": ADDRESS[:10] + "  " + ADDRESS[12:],
    "newline after": ADDRESS + "\n", "arabic digit": ADDRESS[:-1] + "٣", "sign": "0x-" + ADDRESS[3:],
}  # fmt: skip


@pytest.mark.parametrize("text", BAD_ADDRESSES.values(), ids=BAD_ADDRESSES)
def test_parse_address_refuses(text):
    with pytest.raises(ValueError, match="expected 0x and 40 hex digits"):
        parse_address(text)


def test_the_text_of_a_refusal_is_short_however_long_the_value():
    with pytest.raises(ValueError) as refused:
        from_hex("0x" + "f" * 1_000_000, 32)
    assert len(str(refused.value)) < 200


def test_a_wrapper_of_eip_6492_holds_a_signature_at_an_offset_of_32_bytes():
    def wrapped(offset: int) -> bytes:
        words = [0, 0, offset, len(GOOD)]
        return b"".join(word.to_bytes(32) for word in words) + GOOD + UNDEPLOYED

    assert unwrapped(wrapped(96)) == GOOD
    assert unwrapped(GOOD) == GOOD
    for offset in (0, 95, 10**6, 96 + (1 << 248)):
        assert unwrapped(wrapped(offset)) == wrapped(offset)
