"""What a service and a facilitator hear of an authorization, from anvil's own JSON-RPC and from ours."""

from collections.abc import Callable

import httpx
import pytest

from tests.chain.helpers import (
    ALICE,
    NOW_S,
    RELAYER,
    SHOP,
    authorization,
    cancel_call,
    nonce,
    signature_of,
    transfer_call,
)
from tests.evm.helpers import ChainDriver
from tests.strategies import requirements
from x402sim.chain.node.local_chain import LocalChain
from x402sim.chain.reverts import Cause
from x402sim.chain.rpc.app import rpc_app
from x402sim.facilitator.engine import Asked, Facilitator, NotTransferred, settle
from x402sim.http.exchange import OverClient
from x402sim.protocol.crypto import from_hex, to_hex
from x402sim.protocol.header import encode_header, read_header
from x402sim.protocol.networks import TESTNET
from x402sim.service.setup import Setup
from x402sim.service.upstream.rpc import NonceState


def state_of(driver: ChainDriver) -> NonceState:
    """Return what a service hears of Alice's nonce: over anvil's own JSON-RPC, or ours."""
    is_node = isinstance(driver.chain, LocalChain)
    setup = Setup(
        private_key=from_hex(SHOP.private_key, 32),
        facilitator_url="",
        explorer_url="",
        rpc_url=driver.chain.url if is_node else "http://rpc.test",
    )
    transport = None if is_node else httpx.ASGITransport(rpc_app(driver.chain))

    async def once() -> NonceState:
        async with httpx.AsyncClient(transport=transport, timeout=None) as http:
            return await setup.rpc(OverClient(http)).nonce_state(
                ALICE.address_bytes, nonce("first")
            )

    return driver.run(once())


def pay(value: int = 10_000, receive: bool = False) -> bytes:
    auth = authorization(value=value)
    return transfer_call(auth, signature_of(auth, receive=receive), receive=receive)


@pytest.mark.parametrize(
    ("how", "canceled", "transfers"),
    [(pay, False, 1), (lambda: cancel_call(nonce("first")), True, 0)],
    ids=["used", "cancelled"],
)
def test_both_nodes_report_the_same_state_of_a_nonce(
    either: ChainDriver, how: Callable[[], bytes], canceled: bool, transfers: int
):
    height = either.run(either.chain.height())
    assert state_of(either) == NonceState(height, NOW_S, is_used=False, use=None)
    either.town.now[0] += 30
    tx_hash = either.put(how())
    state = state_of(either)
    assert (state.is_used, state.head_s) == (True, NOW_S + 30)
    assert state.use is not None
    assert (state.use.tx_hash, state.use.canceled) == (to_hex(tx_hash), canceled)
    paid = (ALICE.address_bytes, SHOP.address_bytes, 10_000)
    assert state.use.transfers == (paid,) * transfers


# --- why the facilitator did not settle, on a node too ------------------------------------------

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
