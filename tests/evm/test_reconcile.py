"""A settlement whose answer was lost, on a real node: its events say used or cancelled.

The service talks to anvil's own JSON-RPC, and to ours over the ledger, and must come to
the same end.
"""

from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.chain.helpers import (
    ALICE,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    authorization,
    cancel_call,
    nonce,
    signature_of,
    transfer_call,
)
from tests.evm.helpers import ChainDriver
from x402sim.chain.node.local_chain import LocalChain
from x402sim.chain.reverts import Cause
from x402sim.chain.rpc.app import rpc_app
from x402sim.facilitator.engine import Asked, Facilitator, NotTransferred, settle
from x402sim.http.exchange import OverClient
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, from_hex, to_hex
from x402sim.protocol.header import encode_header, present, read_header
from x402sim.protocol.messages import PaymentRequirements, RequiredPayment
from x402sim.protocol.networks import TESTNET
from x402sim.rng import Rng
from x402sim.service.reconcile import reconcile
from x402sim.service.setup import Setup
from x402sim.service.state import connected
from x402sim.service.store import Store
from x402sim.service.store.payment_records import Claim
from x402sim.service.upstream.rpc import NonceState

QUOTE = "/api/perp/quote"


@dataclass
class Shop:
    """A service of the shop, with one payment of Alice whose outcome it does not know."""

    driver: ChainDriver

    def __post_init__(self) -> None:
        is_node = isinstance(self.driver.chain, LocalChain)
        self.rpc_url = self.driver.chain.url if is_node else "http://rpc.test"
        self.setup = Setup(
            private_key=from_hex(SHOP.private_key, 32),
            facilitator_url="http://facilitator.test",
            explorer_url="http://explorer.test",
            rpc_url=self.rpc_url,
        )
        self.transport = None if is_node else httpx.ASGITransport(rpc_app(self.driver.chain))
        self.store = Store()
        auth = authorization()
        assert self.store.payments.insert_pending(
            Claim(
                payment_id="pay_1",
                payment=present(encode_header(auth, signature_of(auth), TESTNET)),
                issued=PaymentRequirements(
                    scheme="exact",
                    network=TESTNET.name,
                    pay_to=SHOP.address,
                    asset=checksum(TESTNET.asset),
                    max_amount_required=str(auth.value),
                    max_timeout_seconds=300,
                    resource=QUOTE,
                ),
                can_pay=True,
                seen_unused=True,
                timestamp_ms=NOW_S * 1000,
                duration=0,
            )
        )

    @asynccontextmanager
    async def service(self):
        async with httpx.AsyncClient(transport=self.transport, timeout=None) as http:
            salts = Rng(1).stream("payment ids")
            yield connected(self.setup, self.store, OverClient(http), self.driver.town.clock, salts)

    def reconcile(self) -> tuple[int, str, str | None]:
        """Return how many payments a started service resolved, and what became of this one."""

        async def once() -> int:
            self.store.payments.look_now()
            async with self.service() as service:
                return await reconcile(service)

        resolved = self.driver.run(once())
        record = self.store.payments.get("pay_1").record
        return resolved, record.status, record.tx_hash

    def state(self) -> NonceState:
        async def once() -> NonceState:
            async with self.service() as service:
                return await service.rpc.nonce_state(ALICE.address_bytes, nonce("first"))

        return self.driver.run(once())


@pytest.fixture
def shop(either: ChainDriver):
    shop = Shop(either)
    yield shop
    shop.store.close()


def pay(value: int = 10_000, receive: bool = False) -> bytes:
    auth = authorization(value=value)
    return transfer_call(auth, signature_of(auth, receive=receive), receive=receive)


@pytest.mark.clause("3/pending-resolved", "5/nonce-once")
def test_a_nonce_that_was_used_paid(shop: Shop, either: ChainDriver):
    tx_hash = to_hex(either.put(pay()))
    assert shop.reconcile() == (1, "settled", tx_hash)
    assert shop.reconcile() == (0, "settled", tx_hash)


@pytest.mark.clause("3/pending-resolved", "5/nonce-once")
def test_a_nonce_that_was_cancelled_did_not_pay(shop: Shop, either: ChainDriver):
    """The token says "used" of it all the same."""
    assert either.send(cancel_call(nonce("first"))).succeeded
    assert either.is_used(ALICE, nonce("first"))
    assert shop.reconcile() == (1, "failed", None)
    assert either.balance(SHOP) == 0


@pytest.mark.clause("3/pending-resolved")
def test_a_nonce_cancelled_beside_the_same_payment_did_not_pay(shop: Shop, either: ChainDriver):
    """The money is the same, in the same block even, but another nonce moved it."""
    either.run(either.chain.mining.set_automine(False))
    other = authorization(nonce=nonce("other"))
    either.put(cancel_call(nonce("first")))
    either.put(transfer_call(other, signature_of(other)))
    either.run(either.chain.mining.mine())
    assert either.balance(SHOP) == 10_000
    assert shop.reconcile() == (1, "failed", None)


@pytest.mark.clause("3/pending-resolved")
def test_a_nonce_that_is_unused_may_pay_until_a_block_is_past_the_window(
    shop: Shop, either: ChainDriver
):
    assert shop.reconcile() == (0, "pending", None)
    either.town.now[0] += 1_000
    assert shop.reconcile() == (0, "pending", None)
    either.run(either.chain.mining.mine())
    assert shop.reconcile() == (1, "failed", None)


@pytest.mark.clause("3/pending-resolved")
def test_a_payment_that_waits_or_reverted_is_open(shop: Shop, either: ChainDriver):
    either.send(abi.transfer(RELAYER.address_bytes, either.balance(ALICE)), ALICE)
    assert not either.send(pay()).succeeded
    assert shop.reconcile() == (0, "pending", None)
    either.send(abi.mint(ALICE.address_bytes, 10_000), OWNER)
    either.run(either.chain.mining.set_automine(False))
    tx_hash = to_hex(either.put(pay()))
    assert shop.reconcile() == (0, "pending", None)
    either.run(either.chain.mining.mine())
    assert shop.reconcile() == (1, "settled", tx_hash)


@pytest.mark.parametrize(
    ("how", "canceled", "transfers"),
    [(pay, False, 1), (lambda: cancel_call(nonce("first")), True, 0)],
    ids=["used", "cancelled"],
)
def test_both_nodes_report_the_same_state_of_a_nonce(
    shop: Shop, either: ChainDriver, how: Callable[[], bytes], canceled: bool, transfers: int
):
    height = either.run(either.chain.height())
    assert shop.state() == NonceState(height, NOW_S, is_used=False, use=None)
    either.town.now[0] += 30
    tx_hash = either.put(how())
    state = shop.state()
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
        RequiredPayment(
            scheme="exact",
            network=TESTNET.name,
            pay_to=SHOP.address,
            asset=checksum(TESTNET.asset),
            max_amount_required=str(auth.value),
            max_timeout_seconds=300,
        ),
    )
    answer = either.run(settle(facilitator, asked))
    assert answer == NotTransferred(cause)
