import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_utils import keccak
from hypothesis import given, strategies as st

from tests.strategies import (
    TERMS,
    addresses,
    authorizations,
    bytes32,
    domain_data,
    domains,
    message_data,
    private_keys,
    signed_elsewhere,
)
from x402sim.protocol.crypto import checksum, recover, sign
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    Authorization,
    Domain,
    cancel_digest,
    is_early,
    is_late,
    transfer_digest,
)

CANCEL = [{"name": "authorizer", "type": "address"}, {"name": "nonce", "type": "bytes32"}]


def typed(auth: Authorization, domain: Domain, primary: str = "TransferWithAuthorization"):
    return encode_typed_data(domain_data(domain), {primary: TERMS}, message_data(auth))


def digest_of(signable) -> bytes:
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


@given(domain=domains, authorizer=addresses, nonce=bytes32)
def test_cancel_digest_is_that_of_eth_account(domain, authorizer, nonce):
    message = {"authorizer": checksum(authorizer), "nonce": nonce}
    signable = encode_typed_data(domain_data(domain), {"CancelAuthorization": CANCEL}, message)
    assert cancel_digest(authorizer, nonce, domain) == digest_of(signable)


@pytest.mark.clause("5/signature-proves")
@given(key=private_keys, domain=domains, auth=authorizations)
def test_our_signature_is_eth_accounts_and_each_recovers_the_others(key, domain, auth):
    theirs = signed_elsewhere(auth, domain, key)
    digest = transfer_digest(auth, domain)
    ours = sign(digest, key)
    assert ours == theirs
    assert recover(digest, theirs) == key.address
    assert Account.recover_message(typed(auth, domain), signature=ours) == checksum(key.address)
    receive = digest_of(typed(auth, domain, "ReceiveWithAuthorization"))
    assert transfer_digest(auth, domain, RECEIVE_TYPEHASH) == receive != digest


@pytest.mark.clause("5/window")
@given(auth=authorizations, data=st.data())
def test_an_authorization_is_in_its_window_exactly_between_the_two_times(auth, data):
    edges = [end + by for end in (auth.valid_after, auth.valid_before) for by in (-1, 0, 1)]
    now_s = data.draw(st.sampled_from(edges) | st.integers(0, 2**256))
    inside = not is_early(auth, now_s) and not is_late(auth, now_s)
    assert inside == (auth.valid_after < now_s < auth.valid_before)
