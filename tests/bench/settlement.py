"""Settlements on anvil in real time: by the facilitator's engine, and by web3 alone.

Both send signed authorizations to one node and wait for the receipts. The facilitator verifies and
simulates before it sends; web3 asks for receipts every millisecond.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count

from web3 import HTTPProvider, Web3

from tests import npm
from tests.bench.rounds import NotMeasured, Work
from tests.chain.helpers import RELAYER, TOKEN, authorization, nonce, signature_of
from tests.evm import find
from tests.evm.helpers import Town
from x402sim.chain.base import GAS_LIMIT
from x402sim.facilitator import engine
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header, read_header
from x402sim.protocol.messages import RequiredPayment
from x402sim.protocol.networks import TESTNET

_NUMBERS = count()


@contextmanager
def settlements() -> Iterator[tuple[Work, Work]]:
    """Yield the work of settling, in real seconds: by the facilitator, and by web3."""
    try:
        program = find.anvil()
    except npm.NotInstalled as why:
        raise NotMeasured(str(why)) from None
    with closing(Town(program, "stablecoin")) as town:
        facilitator = engine.Facilitator(
            chain=town.anvil,
            clock=town.clock,
            network=TESTNET,
            account=RELAYER.address_bytes,
            started_s=town.clock.now(),
        )
        eth = Web3(HTTPProvider(town.node.url)).eth
        sender, token = checksum(RELAYER.address_bytes), checksum(TOKEN)

        def ours(times: int) -> float:
            requested = [_requested(*each) for each in _signed(times)]
            began = time.perf_counter()
            for each in requested:
                settled = town.run(engine.settle(facilitator, each))
                assert isinstance(settled, engine.Transferred), settled
            return time.perf_counter() - began

        def raw(times: int) -> float:
            calls = [abi.transfer_with_authorization(*each) for each in _signed(times)]
            began = time.perf_counter()
            for call in calls:
                fields = {"from": sender, "to": token, "data": call, "gas": GAS_LIMIT}
                sent = eth.send_transaction({**fields, "gasPrice": TESTNET.base_fee_wei})
                receipt = eth.wait_for_transaction_receipt(sent, poll_latency=0.001)
                assert receipt["status"] == 1, receipt
            return time.perf_counter() - began

        yield ours, raw


def _signed(times: int) -> list[tuple[Authorization, bytes]]:
    """Return so many new authorizations of one base unit, with their signatures."""
    auths = [authorization(value=1, nonce=nonce(next(_NUMBERS))) for _ in range(times)]
    return [(auth, signature_of(auth)) for auth in auths]


def _requested(auth: Authorization, signature: bytes) -> engine.Requested:
    payment = read_header(encode_header(auth, signature, TESTNET))
    parties = checksum(auth.to), checksum(TOKEN)
    wanted = RequiredPayment("exact", TESTNET.name, *parties, str(auth.value), 300)
    return engine.Requested(payment, wanted)
