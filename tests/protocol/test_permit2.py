"""Calldata and addresses; the digests are in the vectors, `tests/suite_vectors/permit2.py`."""

import pytest
from eth_abi.abi import encode
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
    separator,
)


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
    numbers = dict.fromkeys(("amount", "nonce", "deadline", "valid_after"), uint256)
    accounts = dict.fromkeys(("from_", "token", "spender", "to"), addresses)
    settles = addresses if upto else st.none()
    auth = data.draw(st.builds(Permit2Authorization, **numbers, **accounts, facilitator=settles))
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
