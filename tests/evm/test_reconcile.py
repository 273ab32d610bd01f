"""Why the facilitator did not settle, on a node as on the ledger."""

import pytest

from tests.chain.helpers import (
    NOW_S,
    RELAYER,
    SHOP,
    authorization,
    cancel_call,
    nonce,
    signature_of,
)
from tests.evm.helpers import ChainDriver
from tests.strategies import requirements
from x402sim.chain.reverts import Cause
from x402sim.facilitator.engine import Asked, Facilitator, NotTransferred, settle
from x402sim.protocol.header import encode_header, read_header
from x402sim.protocol.networks import TESTNET

SIGNED = {
    "first": authorization(),
    "later": authorization(valid_after=NOW_S + 100),
    "dear": authorization(value=10**12),
}


@pytest.mark.parametrize(
    ("name", "prepare", "cause"),
    [
        ("first", lambda b: b.send(cancel_call(nonce("first"))), Cause.NONCE),
        ("first", lambda b: b.town.now.__setitem__(0, NOW_S + 300), Cause.LATE),
        ("later", lambda b: None, Cause.EARLY),
        ("dear", lambda b: None, Cause.BALANCE),
    ],
    ids=["cancelled", "late", "early", "balance"],
)
def test_the_facilitator_says_why_as_for_any_token(
    either: ChainDriver, name: str, prepare, cause: Cause
):
    auth = SIGNED[name]
    prepare(either)
    facilitator = Facilitator(
        chain=either.chain,
        clock=either.town.clock,
        network=TESTNET,
        account=RELAYER.address_bytes,
        started_s=NOW_S,
    )
    asked = Asked(
        read_header(encode_header(auth, signature_of(auth), TESTNET)),
        requirements(pay_to=SHOP.address, max_amount_required=str(auth.value)),
    )
    answer = either.run(settle(facilitator, asked))
    assert answer == NotTransferred(cause)
