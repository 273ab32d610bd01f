import pytest
from eth_abi import encode as abi_encode
from hypothesis import given, strategies as st

from tests.strategies import addresses, authorizations, bytes32, uint256
from x402sim.protocol import abi, eip3009
from x402sim.protocol.crypto import checksum

TERMS = ["address", "address", "uint256", "uint256", "uint256", "bytes32"]
SPLIT = ["uint8", "bytes32", "bytes32"]


@given(number=uint256, address=addresses, nonce=bytes32)
def test_a_word_is_32_bytes_big_endian(number, address, nonce):
    assert abi.word(number) == abi_encode(["uint256"], [number])
    assert abi.word(address) == abi_encode(["address"], [checksum(address)])
    assert abi.word(nonce) == nonce


@given(value=st.text(max_size=100))
def test_text_is_an_abi_string(value):
    assert abi.text(value) == abi_encode(["string"], [value])


@given(account=addresses, nonce=bytes32, amount=uint256)
def test_plain_calls_are_abi_encoded(account, nonce, amount):
    who = checksum(account)
    to_amount = abi_encode(["address", "uint256"], [who, amount])
    assert abi.balance_of(account) == abi.BALANCE_OF + abi_encode(["address"], [who])
    assert abi.transfer(account, amount) == abi.TRANSFER + to_amount
    assert abi.mint(account, amount) == abi.MINT + to_amount
    assert abi.authorization_state(account, nonce) == abi.AUTHORIZATION_STATE + abi_encode(
        ["address", "bytes32"], [who, nonce]
    )
    assert abi.calldata(abi.PAUSE) == abi.PAUSE


def terms(auth: eip3009.Authorization) -> list:
    return [
        checksum(auth.from_),
        checksum(auth.to),
        auth.value,
        auth.valid_after,
        auth.valid_before,
        auth.nonce,
    ]


def split(signature: bytes) -> list:
    return [signature[64], signature[:32], signature[32:64]]


sixty_five = st.binary(min_size=65, max_size=65)
another_length = st.binary(max_size=100).filter(lambda signature: len(signature) != 65)


@pytest.mark.parametrize("receive", [False, True])
@given(auth=authorizations, signature=sixty_five)
def test_a_signature_of_65_bytes_goes_as_v_r_s(auth, signature, receive):
    function = abi.RECEIVE_WITH_AUTHORIZATION if receive else abi.TRANSFER_WITH_AUTHORIZATION
    expected = function + abi_encode(TERMS + SPLIT, terms(auth) + split(signature))
    assert abi.transfer_with_authorization(auth, signature, receive=receive) == expected


@pytest.mark.parametrize("receive", [False, True])
@given(auth=authorizations, signature=another_length)
def test_any_other_signature_goes_as_bytes(auth, signature, receive):
    function = (
        abi.RECEIVE_WITH_AUTHORIZATION_BYTES if receive else abi.TRANSFER_WITH_AUTHORIZATION_BYTES
    )
    expected = function + abi_encode([*TERMS, "bytes"], [*terms(auth), signature])
    assert abi.transfer_with_authorization(auth, signature, receive=receive) == expected


@given(authorizer=addresses, nonce=bytes32, signature=sixty_five | another_length)
def test_a_cancellation_is_abi_encoded(authorizer, nonce, signature):
    who = checksum(authorizer)
    if len(signature) == 65:
        expected = abi.CANCEL_AUTHORIZATION + abi_encode(
            ["address", "bytes32", *SPLIT], [who, nonce, *split(signature)]
        )
    else:
        expected = abi.CANCEL_AUTHORIZATION_BYTES + abi_encode(
            ["address", "bytes32", "bytes"], [who, nonce, signature]
        )
    assert abi.cancel_authorization(authorizer, nonce, signature) == expected
