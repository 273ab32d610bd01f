"""The message, against eth-account: none of our code has a hand in its digest."""

import pytest
from eth_abi.abi import encode
from eth_account.messages import encode_typed_data
from eth_utils import keccak
from hypothesis import given, strategies as st

from tests.strategies import addresses, bytes32, uint256
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum
from x402sim.protocol.eip3009 import Permit
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
    separator,
)

PERMISSIONS = [{"name": "token", "type": "address"}, {"name": "amount", "type": "uint256"}]
TRANSFER = [
    {"name": "permitted", "type": "TokenPermissions"},
    {"name": "spender", "type": "address"},
    {"name": "nonce", "type": "uint256"},
    {"name": "deadline", "type": "uint256"},
    {"name": "witness", "type": "Witness"},
]
WITNESS = [{"name": "to", "type": "address"}, {"name": "validAfter", "type": "uint256"}]
METERED = [WITNESS[0], {"name": "facilitator", "type": "address"}, WITNESS[1]]


def authorizations(*, upto: bool | None = None) -> st.SearchStrategy[Permit2Authorization]:
    """Draw authorizations of both schemes, or of one."""
    of_upto = st.none() | addresses if upto is None else addresses if upto else st.none()
    return st.builds(
        Permit2Authorization,
        from_=addresses,
        token=addresses,
        amount=uint256,
        spender=addresses,
        nonce=uint256,
        deadline=uint256,
        to=addresses,
        valid_after=uint256,
        facilitator=of_upto,
    )


def typed(auth: Permit2Authorization, chain_id: int):
    """Return eth-account's form of an authorization."""
    witness = {"to": auth.to, "validAfter": auth.valid_after}
    if auth.facilitator is not None:
        witness["facilitator"] = auth.facilitator
    message = {
        "permitted": {"token": auth.token, "amount": auth.amount},
        "spender": auth.spender,
        "nonce": auth.nonce,
        "deadline": auth.deadline,
        "witness": witness,
    }
    kinds = {
        "PermitWitnessTransferFrom": TRANSFER,
        "TokenPermissions": PERMISSIONS,
        "Witness": WITNESS if auth.facilitator is None else METERED,
    }
    domain = {"name": "Permit2", "chainId": chain_id, "verifyingContract": checksum(PERMIT2)}
    return encode_typed_data(domain, kinds, message)


@given(auth=authorizations(), chain_id=st.integers(0, 2**64))
def test_the_digest_is_eth_accounts(auth, chain_id):
    signable = typed(auth, chain_id)
    expected = keccak(b"\x19" + signable.version + signable.header + signable.body)
    assert permit2_digest(auth, chain_id) == expected


def test_the_addresses_and_the_domain_of_ethereum_are_the_published_ones():
    assert checksum(PERMIT2) == "0x000000000022D473030F116dDEE9F6B43aC78BA3"
    assert checksum(EXACT_PROXY) == "0x402085c248EeA27D92E8b30b2C58ed07f9E20001"
    assert checksum(UPTO_PROXY) == "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002"
    published = "866a5aba21966af95d6c7ab78eb2b2fc913915c28be3b9aa07cc04ff903e3f28"
    assert separator(1).hex() == published


@pytest.mark.parametrize("upto", [False, True])
@pytest.mark.parametrize("sponsored", [False, True])
@given(data=st.data(), amount=uint256, signature=st.binary(max_size=100), r=bytes32, s=bytes32)
def test_the_calldata_of_settle_is_eth_abis(upto, sponsored, data, amount, signature, r, s):
    auth = data.draw(authorizations(upto=upto))
    kinds, values = ["((address,uint256),uint256,uint256)"], []
    values.append(((auth.token, auth.amount), auth.nonce, auth.deadline))
    if upto:
        kinds += ["uint256", "address", "(address,address,uint256)", "bytes"]
        witness = auth.to, auth.facilitator, auth.valid_after
        values += [amount, auth.from_, witness, signature]
    else:
        kinds += ["address", "(address,uint256)", "bytes"]
        values += [auth.from_, (auth.to, auth.valid_after), signature]
    permit, name = None, "settle"
    if sponsored:
        name = "settleWithPermit"
        permit = Permit(auth.from_, PERMIT2, auth.amount, 0, auth.deadline), r + s + b"\x1c"
        kinds.insert(0, "(uint256,uint256,bytes32,bytes32,uint8)")
        values.insert(0, (auth.amount, auth.deadline, r, s, 28))
    expected = keccak(f"{name}({','.join(kinds)})".encode())[:4] + encode(kinds, values)
    assert abi.settle(auth, amount, signature, permit) == expected
