"""What tests draw from: keys, addresses, domains, authorizations, requirements."""

import string
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from x402sim.protocol.crypto import Address, PrivateKey
from x402sim.protocol.eip3009 import Authorization, Domain
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import TESTNET

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

uint256 = st.one_of(st.integers(0, 10**9), st.integers(0, MAX_UINT256))
bytes32 = st.binary(min_size=32, max_size=32)
addresses = st.binary(min_size=20, max_size=20).map(Address)
private_keys = st.integers(1, CURVE_ORDER - 1).map(lambda n: PrivateKey(n.to_bytes(32)))
words = st.text(string.ascii_letters + string.digits + " .()-é€", max_size=30)

domains = st.builds(
    Domain,
    name=words,
    version=words,
    chain_id=st.integers(0, MAX_UINT256),
    verifying_contract=addresses,
)
authorizations = st.builds(
    Authorization,
    from_=addresses,
    to=addresses,
    value=uint256,
    valid_after=uint256,
    valid_before=uint256,
    nonce=bytes32,
)
headers_authorizations = st.builds(
    replace, authorizations, valid_after=st.integers(0, 2**53), valid_before=st.integers(0, 2**53)
)
"""Authorizations whose times fit a JSON number exactly."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

PAY_TO = "0x" + "22" * 20


def requirements(**changes: object) -> PaymentRequirements:
    fields: dict[str, object] = {
        "scheme": "exact",
        "network": TESTNET.name,
        "pay_to": PAY_TO,
        "asset": "0x" + TESTNET.asset.hex(),
        "max_amount_required": "10000",
        "max_timeout_seconds": 300,
        "resource": "/api/perp/quote",
        "description": "A quote",
    }
    return PaymentRequirements(**(fields | changes))  # type: ignore[arg-type]


TERMS = [
    {"name": "from", "type": "address"},
    {"name": "to", "type": "address"},
    {"name": "value", "type": "uint256"},
    {"name": "validAfter", "type": "uint256"},
    {"name": "validBefore", "type": "uint256"},
    {"name": "nonce", "type": "bytes32"},
]


def domain_data(domain: Domain) -> dict[str, Any]:
    values = domain.name, domain.version, domain.chain_id, domain.verifying_contract
    return dict(zip(("name", "version", "chainId", "verifyingContract"), values, strict=True))


def message_data(auth: Authorization) -> dict[str, Any]:
    return dict(zip((term["name"] for term in TERMS), astuple(auth), strict=True))


def signed_elsewhere(auth: Authorization, domain: Domain, key: PrivateKey) -> bytes:
    """Return the signature that eth-account gives: none of our code has a hand in it."""
    from eth_account import Account  # most who draw need no signature, and it takes 0.5 s

    kinds = {"TransferWithAuthorization": TERMS}
    about, message = domain_data(domain), message_data(auth)
    return bytes(Account.sign_typed_data(key.secret, about, kinds, message).signature)
