import pytest
from eth_abi import decode as abi_decode
from eth_abi import encode as abi_encode
from eth_utils import function_signature_to_4byte_selector, keccak
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import addresses, authorizations, bytes32, uint256
from x402sim.protocol import abi, eip3009
from x402sim.protocol.crypto import checksum

TERMS = ["address", "address", "uint256", "uint256", "uint256", "bytes32"]
AUTH = ",".join(TERMS)
SPLIT = ["uint8", "bytes32", "bytes32"]

FUNCTIONS = {
    "TRANSFER": "transfer(address,uint256)",
    "MINT": "mint(address,uint256)",
    "PAUSE": "pause()",
    "BURN": "burn(uint256)",
    "CONFIGURE_MINTER": "configureMinter(address,uint256)",
    "REMOVE_MINTER": "removeMinter(address)",
    "MASTER_MINTER": "masterMinter()",
    "PAUSER": "pauser()",
    "BLACKLISTER": "blacklister()",
    "IS_MINTER": "isMinter(address)",
    "IS_VALID_SIGNATURE": "isValidSignature(bytes32,bytes)",
    "MINTER_ALLOWANCE": "minterAllowance(address)",
    "APPROVE": "approve(address,uint256)",
    "INCREASE_ALLOWANCE": "increaseAllowance(address,uint256)",
    "DECREASE_ALLOWANCE": "decreaseAllowance(address,uint256)",
    "TRANSFER_FROM": "transferFrom(address,address,uint256)",
    "PERMIT": "permit(address,address,uint256,uint256,uint8,bytes32,bytes32)",
    "PERMIT_BYTES": "permit(address,address,uint256,uint256,bytes)",
    "ALLOWANCE": "allowance(address,address)",
    "NONCES": "nonces(address)",
    "PERMIT_TYPEHASH": "PERMIT_TYPEHASH()",
    "UNPAUSE": "unpause()",
    "BLACKLIST": "blacklist(address)",
    "UNBLACKLIST": "unBlacklist(address)",
    "TRANSFER_WITH_AUTHORIZATION": f"transferWithAuthorization({AUTH},uint8,bytes32,bytes32)",
    "RECEIVE_WITH_AUTHORIZATION": f"receiveWithAuthorization({AUTH},uint8,bytes32,bytes32)",
    "CANCEL_AUTHORIZATION": "cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)",
    "TRANSFER_WITH_AUTHORIZATION_BYTES": f"transferWithAuthorization({AUTH},bytes)",
    "RECEIVE_WITH_AUTHORIZATION_BYTES": f"receiveWithAuthorization({AUTH},bytes)",
    "CANCEL_AUTHORIZATION_BYTES": "cancelAuthorization(address,bytes32,bytes)",
    "NAME": "name()",
    "SYMBOL": "symbol()",
    "DECIMALS": "decimals()",
    "VERSION": "version()",
    "TOTAL_SUPPLY": "totalSupply()",
    "OWNER": "owner()",
    "BALANCE_OF": "balanceOf(address)",
    "AUTHORIZATION_STATE": "authorizationState(address,bytes32)",
    "DOMAIN_SEPARATOR": "DOMAIN_SEPARATOR()",
    "PAUSED": "paused()",
    "IS_BLACKLISTED": "isBlacklisted(address)",
    "TRANSFER_TYPEHASH": "TRANSFER_WITH_AUTHORIZATION_TYPEHASH()",
    "RECEIVE_TYPEHASH": "RECEIVE_WITH_AUTHORIZATION_TYPEHASH()",
    "CANCEL_TYPEHASH": "CANCEL_AUTHORIZATION_TYPEHASH()",
}


@pytest.mark.parametrize(("name", "signature"), FUNCTIONS.items(), ids=FUNCTIONS)
def test_a_selector_is_that_of_the_solidity_function(name, signature):
    assert getattr(abi, name) == function_signature_to_4byte_selector(signature)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("TRANSFER", "a9059cbb"),
        ("BALANCE_OF", "70a08231"),
        ("TRANSFER_WITH_AUTHORIZATION", "e3ee160e"),
        ("RECEIVE_WITH_AUTHORIZATION", "ef55bec6"),
        ("CANCEL_AUTHORIZATION", "5a049a70"),
        ("TRANSFER_WITH_AUTHORIZATION_BYTES", "cf092995"),
        ("AUTHORIZATION_STATE", "e94a0102"),
    ],
)
def test_well_known_selectors(name, published):
    assert getattr(abi, name).hex() == published


def test_no_two_functions_share_a_selector():
    assert len({getattr(abi, name) for name in FUNCTIONS}) == len(FUNCTIONS)


def test_every_selector_of_the_module_is_written_down_here():
    selectors = {
        name
        for name, value in vars(abi).items()
        if name.isupper() and isinstance(value, bytes) and len(value) == 4 and name[0] != "_"
    }
    assert selectors == set(FUNCTIONS)


@pytest.mark.parametrize(
    ("ours", "signature"),
    [
        (abi.TRANSFER_EVENT, "Transfer(address,address,uint256)"),
        (abi.AUTHORIZATION_USED, "AuthorizationUsed(address,bytes32)"),
        (abi.AUTHORIZATION_CANCELED, "AuthorizationCanceled(address,bytes32)"),
        (abi.MINT_EVENT, "Mint(address,address,uint256)"),
        (abi.BURN_EVENT, "Burn(address,uint256)"),
        (abi.MINTER_CONFIGURED, "MinterConfigured(address,uint256)"),
        (abi.MINTER_REMOVED, "MinterRemoved(address)"),
    ],
)
def test_a_topic_is_the_hash_of_the_event(ours, signature):
    assert ours == keccak(text=signature)


def test_the_transfer_topic_is_the_well_known_one():
    known = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
    assert abi.TRANSFER_EVENT.hex() == known


@given(number=uint256, address=addresses, nonce=bytes32)
def test_a_word_is_32_bytes_big_endian(number, address, nonce):
    assert abi.word(number) == abi_encode(["uint256"], [number])
    assert abi.word(address) == abi_encode(["address"], [checksum(address)])
    assert abi.word(nonce) == nonce


@given(value=st.text(max_size=100))
def test_text_is_an_abi_string(value):
    assert abi.text(value) == abi_encode(["string"], [value])


@given(reason=st.text(max_size=100))
def test_revert_data_is_error_string(reason):
    expected = function_signature_to_4byte_selector("Error(string)")
    assert abi.revert_data(reason) == expected + abi_encode(["string"], [reason])


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


@given(auth=authorizations, signature=sixty_five)
def test_calldata_reads_back_as_what_was_signed(auth, signature):
    data = abi.transfer_with_authorization(auth, signature)
    *read, v, r, s = abi_decode(TERMS + SPLIT, data[4:])
    assert [str(value).lower() for value in read] == [str(value).lower() for value in terms(auth)]
    assert r + s + bytes([v]) == signature
