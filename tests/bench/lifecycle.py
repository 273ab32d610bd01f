"""One paid request in a world, its signatures alone, and what the journal of it costs.

A lifecycle is the 402, the signature, the settlement through the facilitator on the ledger, and the
repeated request that is served; every request goes over a link of the world.
"""

import itertools

import msgspec

from x402sim.events import RequestSent
from x402sim.journal import Journal
from x402sim.protocol.crypto import PrivateKey, recover, sign
from x402sim.protocol.eip3009 import Authorization, transfer_digest
from x402sim.protocol.networks import TESTNET
from x402sim.report.run import Run
from x402sim.rng import Rng
from x402sim.world.assembly.parts import JOURNAL_LIMIT
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.world import World

SEED = 1
_KEY = PrivateKey(Rng(0).secret("bench"))
_SIGNER = _KEY.address
_FIRST = Authorization(_SIGNER, _SIGNER, 10_000, 0, 300, bytes(32))
_DIGEST = transfer_digest(_FIRST, TESTNET.domain)
_NUMBERS = itertools.count()
"""Every authorization is new, as in a real service."""


def pay(times: int) -> Run:
    """Pay for so many requests in a new world; every check must hold."""

    async def story(world: LiveWorld) -> None:
        payer = await world.payer("payer", balance="1000000.00")
        for _ in range(times):
            await payer.buy()

    run = World(seed=SEED).play(story)
    assert run.outcome == "passed", f"a check of the lifecycles failed: {run.reason}"
    return run


def sign_raw(times: int) -> None:
    """Sign once and recover twice with libsecp256k1 alone: the limit of a lifecycle.

    It needs the payer's signature, and the recoveries of the facilitator and of the token.
    """
    from coincurve import PrivateKey, PublicKey  # no wheel for Python 3.14 yet

    key = PrivateKey(_KEY.secret)
    for _ in range(times):
        signature = key.sign_recoverable(_DIGEST, hasher=None)
        PublicKey.from_signature_and_message(signature, _DIGEST, hasher=None)
        PublicKey.from_signature_and_message(signature, _DIGEST, hasher=None)


def sign_ours(times: int) -> None:
    """Do the same with x402sim's functions, including digests, addresses and checks.

    The second recovery of a signature comes from the cache, as in a real service.
    """
    for number in itertools.islice(_NUMBERS, times):
        auth = Authorization(_SIGNER, _SIGNER, 10_000, 0, 300, number.to_bytes(32))
        signature = sign(transfer_digest(auth, TESTNET.domain), _KEY)
        for _ in range(2):
            assert recover(transfer_digest(auth, TESTNET.domain), signature) == _SIGNER


class Recorder:
    """The journal's share: makes the events of a lifecycle from their fields, and records them."""

    def __init__(self) -> None:
        recorded = [entry.event for entry in pay(1).journal]
        first = [isinstance(event, RequestSent) for event in recorded].index(True)
        self.events = recorded[first:]
        self._made_of = [(type(event), msgspec.structs.asdict(event)) for event in self.events]

    def work(self, times: int) -> None:
        """Record the events of this many lifecycles in a new journal."""
        journal = Journal(JOURNAL_LIMIT)
        for at_ms in range(times):
            for kind, fields in self._made_of:
                journal.record(at_ms, kind(**fields))
