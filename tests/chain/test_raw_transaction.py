"""Signed transactions: what eth-account writes is read, and nothing else is."""

from typing import Any

import pytest
import rlp as reference
from eth_account import Account
from eth_utils import keccak
from hypothesis import given, strategies as st

from x402sim.protocol import rlp
from x402sim.protocol.crypto import Address, PrivateKey, checksum
from x402sim.protocol.raw_transaction import BadTransaction, read

KEY = PrivateKey(b"\x0a" * 32)
SENDER = KEY.address
TO = Address(b"\x03" * 20)
ITEMS = st.recursive(
    st.binary(max_size=80), lambda inner: st.lists(inner, max_size=4), max_leaves=8
)
DEFAULTS: dict[str, Any] = {
    "to": checksum(TO), "value": 5, "gas": 21_000, "nonce": 3, "chainId": 338, "data": b"\x01\x00",
}  # fmt: skip


def legacy(**changes: Any) -> bytes:
    return _signed({"gasPrice": 10**9}, changes)


def dynamic(**changes: Any) -> bytes:
    return _signed({"type": 2, "maxFeePerGas": 10**10, "maxPriorityFeePerGas": 7}, changes)


def _signed(fees: dict[str, Any], changes: dict[str, Any]) -> bytes:
    asked = {
        name: value for name, value in (DEFAULTS | fees | changes).items() if value is not None
    }
    return bytes(Account.sign_transaction(asked, KEY.secret).raw_transaction)


def _depth(item: Any) -> int:
    return 0 if isinstance(item, bytes) else 1 + max(map(_depth, item), default=0)


@given(ITEMS)
def test_rlp_is_that_of_the_reference(item: Any) -> None:
    encoded = rlp.encode(item)
    assert encoded == reference.encode(item)
    if _depth(item) <= rlp.MAX_DEPTH:
        assert rlp.decode(encoded) == item


@given(st.binary(max_size=80) | ITEMS.map(reference.encode).map(lambda raw: raw[:-1] or b""))
def test_rlp_takes_what_the_reference_takes(data: bytes) -> None:
    def decoded(decode: Any) -> Any:
        try:
            return decode(data)
        except (ValueError, reference.DecodingError):
            return None

    ours, wanted = decoded(rlp.decode), decoded(reference.decode)
    assert ours == wanted or (ours is None and _depth(wanted) > rlp.MAX_DEPTH)


FIELDS = {"value": st.integers(0, 2**200), "nonce": st.integers(0, 2**64 - 2), "to": st.just(None)}
FIELDS |= {
    "gas": st.integers(21_000, 2**60),
    "data": st.binary(max_size=99),
    "chainId": st.integers(1, 2**40),
}


@given(is_legacy=st.booleans(), changes=st.fixed_dictionaries({}, optional=FIELDS))
def test_a_transaction_that_eth_account_signs_is_read(
    is_legacy: bool, changes: dict[str, Any]
) -> None:
    slots = [{"address": checksum(TO), "storageKeys": ["0x" + "11" * 32]}]
    raw = legacy(**changes) if is_legacy else dynamic(accessList=slots, **changes)
    tx, said = read(raw), DEFAULTS | {"to": TO} | changes
    assert (tx.type, tx.hash, tx.sender) == (0 if is_legacy else 2, keccak(raw), SENDER)
    assert (tx.chain_id, tx.nonce, tx.gas_limit) == (said["chainId"], said["nonce"], said["gas"])
    assert (tx.to, tx.value, tx.data) == (said["to"], said["value"], said["data"])
    if is_legacy:
        assert tx.max_fee_wei == tx.max_tip_wei == tx.price_wei(1) == 10**9
        assert tx.v in (35 + 2 * said["chainId"], 36 + 2 * said["chainId"])
    else:
        assert (tx.max_fee_wei, tx.max_tip_wei) == (10**10, 7)
        assert (tx.price_wei(10**9), tx.price_wei(10**10)) == (10**9 + 7, 10**10)
        assert tx.access_list == ((TO, (b"\x11" * 32,)),)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "typed transaction too short"),
        (b"\x01\xc0", "too few elements"),
        (b"\x03\xc0", "transaction type not supported"),
        (b"\x04" + reference.encode([b""] * 13), "expected input list"),
        (b"\x04" + reference.encode([b""] * 8 + [[], []] + [b""] * 3), "at least one"),
        (b"\x02", "unexpected end of input"),
        (b"\x02\xc0", "too few elements"),
        (b"\x02\x80", "expected input list"),
        (b"\xc0", "too few elements"),
        (legacy() + b"\0", "more than one value"),
        (legacy()[:-1], "exceeds available input length"),
        (reference.encode([b"\1"] * 10), "too many elements"),
        (reference.encode([b"\0\1", *[b"\1"] * 8]), "non-canonical integer|invalid transaction v"),
        (reference.encode([b"", b"\1", b"\1", b"\1", b"", b"", b"\x1b", b"\1", b"\1"]), "EIP-155"),
        (legacy(chainId=None), "only replay-protected"),
    ],
)
def test_what_is_no_transaction_is_refused_in_the_words_of_geth(raw: bytes, says: str) -> None:
    with pytest.raises(BadTransaction, match=says):
        read(raw)


def test_a_high_s_and_an_unknown_parity_are_refused() -> None:
    *fields, v, r, s = reference.decode(dynamic()[1:])
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    other = b"" if v else b"\1"
    high = (order - int.from_bytes(s)).to_bytes(32)
    for signature in ([other, r, high], [b"\2", r, s], [v, r, b""], [v, b"", s]):
        with pytest.raises(BadTransaction, match="invalid sender"):
            read(b"\2" + reference.encode([*fields, *signature]))


def test_types_1_and_4_are_read() -> None:
    slots = [{"address": checksum(TO), "storageKeys": ["0x" + "11" * 32]}]
    tx = read(_signed({"type": 1, "gasPrice": 10**9, "accessList": slots}, {}))
    assert (tx.type, tx.sender, tx.access_list) == (1, SENDER, ((TO, (b"\x11" * 32,)),))
    assert tx.max_fee_wei == tx.max_tip_wei == 10**9
    other = PrivateKey(b"\x0b" * 32)
    wish = {"chainId": 0, "address": "0x" + "07" * 20, "nonce": 5}
    signed = Account.sign_authorization(wish, other.secret)
    raw = dynamic(type=4, authorizationList=[signed, {**signed.model_dump(by_alias=True), "s": 1}])
    first, second = read(raw).delegations
    assert (first.authority, first.account, first.nonce) == (other.address, b"\7" * 20, 5)
    assert (first.chain_id, first.r, first.s) == (0, signed.r, signed.s)
    assert second.authority != other.address


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b"\4\xf8" + tail))
def test_no_bytes_break_it(raw: bytes) -> None:
    with pytest.raises(BadTransaction):
        read(raw)
