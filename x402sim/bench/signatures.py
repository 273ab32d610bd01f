"""What do the signatures of one lifecycle cost? The bare operations, and ours.

One lifecycle needs one signature (the payer's) and two recoveries (the facilitator's and the
token's). The limit is libsecp256k1 through coincurve, on an existing digest; everything else
in a lifecycle comes on top.
"""

import itertools

from coincurve import PrivateKey, PublicKey

from x402sim.protocol.crypto import address_of, recover, sign
from x402sim.protocol.eip3009 import Authorization, transfer_digest
from x402sim.protocol.networks import TESTNET
from x402sim.rng import Rng

_KEY = PrivateKey(Rng(0).secret("bench"))
_SIGNER = address_of(_KEY.public_key)
_AUTH = Authorization(_SIGNER, _SIGNER, 10_000, 0, 300, bytes(32))
_DIGEST = transfer_digest(_AUTH, TESTNET.domain)
_NUMBERS = itertools.count()
"""Every authorization is new, as in a real service."""


def raw(times: int) -> None:
    """Sign once and recover twice with coincurve alone: the limit."""
    for _ in range(times):
        signature = _KEY.sign_recoverable(_DIGEST, hasher=None)
        PublicKey.from_signature_and_message(signature, _DIGEST, hasher=None)
        PublicKey.from_signature_and_message(signature, _DIGEST, hasher=None)


def ours(times: int) -> None:
    """Do the same with x402sim's functions, including digests, addresses and checks.

    The second recovery of a signature comes from the cache, as in a real service.
    """
    for number in itertools.islice(_NUMBERS, times):
        auth = Authorization(_SIGNER, _SIGNER, 10_000, 0, 300, number.to_bytes(32))
        signature = sign(transfer_digest(auth, TESTNET.domain), _KEY)
        for _ in range(2):
            signer = recover(transfer_digest(auth, TESTNET.domain), signature)
            assert signer == _SIGNER
