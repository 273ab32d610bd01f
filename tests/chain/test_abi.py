import pytest
from eth_abi import encode
from hypothesis import given, settings, strategies as st

from tests.strategies import authorizations
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum

WORDS = ["address", "address", "uint256", "uint256", "uint256", "bytes32"]
SPLIT = ["uint8", "bytes32", "bytes32"]
CANCEL = abi.CANCEL_AUTHORIZATION, abi.CANCEL_AUTHORIZATION_BYTES
RECEIVE = abi.RECEIVE_WITH_AUTHORIZATION, abi.RECEIVE_WITH_AUTHORIZATION_BYTES
TRANSFER = abi.TRANSFER_WITH_AUTHORIZATION, abi.TRANSFER_WITH_AUTHORIZATION_BYTES


@settings(max_examples=40)
@given(value=st.text(max_size=100))
def test_text_is_an_abi_string(value):
    assert abi.text(value) == encode(["string"], [value])


def signed(functions: tuple[bytes, bytes], types: list, values: list, signature: bytes) -> bytes:
    """Return a call whose last argument is a signature: 65 bytes go as v, r, s, others as bytes."""
    if len(signature) == 65:
        parts = [signature[64], signature[:32], signature[32:64]]
        return functions[0] + encode(types + SPLIT, values + parts)
    return functions[1] + encode([*types, "bytes"], [*values, signature])


@pytest.mark.parametrize("receive", [False, True])
@given(
    auth=authorizations,
    signature=st.binary(min_size=65, max_size=65) | st.binary(max_size=100),
)
def test_a_payment_and_a_cancellation_are_abi_encoded(auth, signature, receive):
    payer, times = checksum(auth.from_), [auth.valid_after, auth.valid_before]
    terms = [payer, checksum(auth.to), auth.value, *times, auth.nonce]
    wanted = signed(RECEIVE if receive else TRANSFER, WORDS, terms, signature)
    assert abi.transfer_with_authorization(auth, signature, receive=receive) == wanted
    wanted = signed(CANCEL, ["address", "bytes32"], [payer, auth.nonce], signature)
    assert abi.cancel_authorization(auth.from_, auth.nonce, signature) == wanted
