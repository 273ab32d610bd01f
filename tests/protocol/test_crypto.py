import pytest
from eth_account import Account
from eth_utils import keccak

from tests.strategies import CURVE_ORDER
from x402sim.protocol.crypto import (
    HALF_ORDER,
    UNDEPLOYED,
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


def test_s_may_be_half_the_order():
    assert HALF_ORDER == CURVE_ORDER // 2
    assert recover(DIGEST, GOOD[:32] + HALF_ORDER.to_bytes(32) + GOOD[64:])


def test_a_key_shows_no_secret():
    key = PrivateKey(bytes(range(32)))
    assert bytes(range(8)).hex() not in f"{key!r} {key}"


@pytest.mark.parametrize("spell", [str, str.lower, lambda a: "0x" + a[2:].upper()])
def test_an_address_may_be_of_any_case(spell):
    assert checksum(parse_address(spell(ADDRESS))) == ADDRESS


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
