import pytest
from eth_abi import encode as abi_encode
from hypothesis import given, settings, strategies as st

from tests.strategies import addresses, authorizations, bytes32
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum

WORDS = ["address", "address", "uint256", "uint256", "uint256", "bytes32"]
SPLIT = ["uint8", "bytes32", "bytes32"]


@settings(max_examples=40)
@given(value=st.text(max_size=100))
def test_text_is_an_abi_string(value):
    assert abi.text(value) == abi_encode(["string"], [value])


def encoded(functions: tuple[bytes, bytes], types: list, values: list, signature: bytes) -> bytes:
    """Return a call whose last argument is a signature: 65 bytes go as v, r, s, others as bytes."""
    split, whole = functions
    if len(signature) == 65:
        parts = [signature[64], signature[:32], signature[32:64]]
        return split + abi_encode(types + SPLIT, values + parts)
    return whole + abi_encode([*types, "bytes"], [*values, signature])


signatures = st.binary(min_size=65, max_size=65) | st.binary(max_size=100)
CANCEL = abi.CANCEL_AUTHORIZATION, abi.CANCEL_AUTHORIZATION_BYTES
RECEIVE = abi.RECEIVE_WITH_AUTHORIZATION, abi.RECEIVE_WITH_AUTHORIZATION_BYTES
TRANSFER = abi.TRANSFER_WITH_AUTHORIZATION, abi.TRANSFER_WITH_AUTHORIZATION_BYTES


@pytest.mark.parametrize("receive", [False, True])
@given(auth=authorizations, signature=signatures)
def test_a_payment_is_abi_encoded(auth, signature, receive):
    times = [auth.valid_after, auth.valid_before]
    terms = [checksum(auth.from_), checksum(auth.to), auth.value, *times, auth.nonce]
    wanted = encoded(RECEIVE if receive else TRANSFER, WORDS, terms, signature)
    assert abi.transfer_with_authorization(auth, signature, receive=receive) == wanted


@given(authorizer=addresses, nonce=bytes32, signature=signatures)
def test_a_cancellation_is_abi_encoded(authorizer, nonce, signature):
    given_ = [checksum(authorizer), nonce]
    wanted = encoded(CANCEL, ["address", "bytes32"], given_, signature)
    assert abi.cancel_authorization(authorizer, nonce, signature) == wanted
