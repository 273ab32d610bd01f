"""A paid request in one process: without HTTP, over ASGI, through httpx, in a world, and in a day of many payers.

It is the 402, the signature, the settlement through the facilitator on the ledger, and (not in a
world's `buy`) the repeated request that is served. Its limit is `sign_raw`.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import process_time

import httpx
import msgspec

from tests.bench.rounds import NotMeasured, Work, cpu, spent_s
from x402sim import World, events
from x402sim.clock import Clock
from x402sim.durations import DurationSpec
from x402sim.facilitator import engine
from x402sim.http.exchange import Request, Url
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.core import proofs
from x402sim.payer.session import SessionAuth
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import PrivateKey, to_hex
from x402sim.protocol.eip3009 import Authorization, transfer_digest
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import (
    PaymentRequired,
    PaymentRequirements,
    QuoteRequest,
    RequiredPayment,
    SettlementRequest,
    decode,
    encode,
)
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.routes import PAY, QUOTE
from x402sim.report.run import Run
from x402sim.rng import Rng
from x402sim.service import content, gate, payments
from x402sim.service.upstream.facilitator import FacilitatorClient, Moved, Outcome, Verdict
from x402sim.story.live import LiveWorld
from x402sim.story.payer import ORDER
from x402sim.story.stages import START_S
from x402sim.world.link import Asgi
from x402sim.world.loop import run_virtual
from x402sim.world.running_world import RunningWorld, build

FUNDS_BASE = 10**15
URL = "http://service.test"
JSON = {"content-type": "application/json"}
BODY = encode(msgspec.convert(ORDER, QuoteRequest))
Post = Callable[[str, bytes, dict[str, str]], Awaitable[tuple[int, bytes]]]
"""Sends the service one request (path, body, headers); returns status and body of the answer."""
PAYERS, PAUSE_S = 200, 7200
"""Of a day: how many payers, and the mean time between two requests of one."""
SPENDING_CAP = "100.00"
SESSION_SPEND, SESSION_S = "0.05", 21_600
LATENCY: dict[str, DurationSpec] = {
    "service": (0.04, 0.4),
    "facilitator": (0.08, 0.4),
    "explorer": (0.06, 0.4),
    "rpc": (0.03, 0.4),
}
"""Median seconds of one message in one direction, and the sigma of their lognormal distribution."""


def sign_raw(times: int) -> None:
    """Sign once and recover twice with libsecp256k1 alone: the limit of a paid request.

    The payer signs, facilitator and token recover. A yardstick does not change, so the binding is
    coincurve, whichever the product uses.
    """
    try:
        from coincurve import PrivateKey as Key, PublicKey
    except ModuleNotFoundError:
        raise NotMeasured("coincurve, the yardstick, has no wheel for this Python") from None

    signer = PrivateKey(Rng(0).secret("bench"))
    first = Authorization(signer.address, signer.address, 10_000, 0, 300, bytes(32))
    key, digest = Key(signer.secret), transfer_digest(first, TESTNET.domain)
    for _ in range(times):
        signature = key.sign_recoverable(digest, hasher=None)
        PublicKey.from_signature_and_message(signature, digest, hasher=None)
        PublicKey.from_signature_and_message(signature, digest, hasher=None)


class Place:
    """The parts of a world, on links without faults, latency and journal, and a funded payer."""

    def __init__(self) -> None:
        self.parts: RunningWorld = build(World(seed=1), Clock(lambda: START_S))
        nonces = Rng(1).stream("nonces")
        self.payer = Wallet(Rng(1).secret("payer"), nonces=lambda: nonces.randbytes(32))
        run_virtual(lambda: self.parts.chain.fund(self.payer.address_bytes, FUNDS_BASE))

    def direct(self) -> Work:
        """Call the service's functions, which call the facilitator's; only the node is asked by HTTP."""
        service = replace(self.parts.service, facilitator=_Direct(self.parts))
        order, price = decode(BODY, QuoteRequest), service.env.quote_price_base

        async def live() -> None:
            required = service.issuer.issue(QUOTE, price, service.clock.now_s())
            receipt = await payments.pay(service, self._sign(required))
            shown = {"x-payment-id": receipt.payment_id}
            await gate.find_pass(service, shown, QUOTE, price)
            content.quote(service.env.settings, order)

        return _repeated(live)

    def asgi(self) -> Work:
        asgi = Asgi(self.parts.process.app)
        urls = {at: Url.of(httpx.URL(URL + at)) for at in (PAY, QUOTE)}

        async def post(path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            answer = await asgi.send(Request("POST", urls[path], raw, body))
            return answer.status, answer.content

        return _repeated(lambda: self._live(post))

    def httpx(self) -> Work:
        asgi = Asgi(self.parts.process.app)
        client = httpx.AsyncClient(transport=asgi, base_url=URL, trust_env=False)

        async def post(path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            answer = await client.post(path, content=body, headers=headers)
            return answer.status_code, answer.content

        return _repeated(lambda: self._live(post))

    async def _live(self, post: Post) -> None:
        status, body = await post(QUOTE, BODY, JSON)
        assert status == 402, body
        settlement = self._sign(decode(body, PaymentRequired))
        status, body = await post(PAY, encode(settlement), JSON)
        assert status == 200, body
        status, body = await post(QUOTE, BODY, JSON | proofs(settlement.payment_id))
        assert status == 200, body

    def _sign(self, required: PaymentRequired) -> SettlementRequest:
        wanted = required.payment_requirements
        header = self.payer.payment_header(wanted, self.parts.clock.now_s())
        return SettlementRequest(required.payment_id, header, wanted)


class _Direct(FacilitatorClient):
    """The facilitator, one function call away."""

    def __init__(self, parts: RunningWorld) -> None:
        self._facilitator = engine.Facilitator(
            chain=parts.chain,
            clock=parts.clock,
            network=TESTNET,
            account=Wallet(Rng(1).secret("facilitator")).address_bytes,
            started_s=START_S,
        )

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        rejected = await engine.verify(self._facilitator, _requested(payment, requirements))
        return Verdict(is_valid=rejected is None)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        moved = await engine.settle(self._facilitator, _requested(payment, requirements))
        assert isinstance(moved, engine.Transferred), moved
        return Moved(to_hex(moved.tx_hash))


def _requested(payment: PresentedPayment, requirements: PaymentRequirements) -> engine.Requested:
    wanted = msgspec.convert(requirements, RequiredPayment, from_attributes=True)
    return engine.Requested(payment.signed, wanted)


def _repeated(live: Callable[[], Awaitable[None]]) -> Work:
    async def main(times: int) -> None:
        for _ in range(times):
            await live()

    return cpu(lambda times: run_virtual(lambda: main(times)))


def buy(times: int, payers: int = 1) -> float:
    """Pay so often in a new world, the payers in turn; return the CPU seconds once all have joined."""
    took_s = 0.0

    async def story(world: LiveWorld) -> None:
        nonlocal took_s
        known = [await world.payer(f"payer {n}", balance="100000.00") for n in range(payers)]
        gc.collect()  # what joining left, which would be a third of a thousand payments
        took_s -= process_time()
        for number in range(times):
            await known[number % payers].buy()
        took_s += process_time()

    run = World(seed=1).play(story)
    assert run.outcome == "passed", f"a check of the payments failed: {run.reason}"
    return took_s


def joined_bytes(payers: int) -> float:
    """Let so many payers join; return the memory that each of the later half takes."""
    held: list[int] = []

    async def story(world: LiveWorld) -> None:
        crowd = []
        for number in range(payers):
            if number == payers // 2:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            crowd.append(await world.payer(f"payer {number}", balance=SPENDING_CAP))
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        World(seed=1).play(story)
    finally:
        tracemalloc.stop()
    half, whole = held
    return (whole - half) / (payers - payers // 2)


def of_a_day(hours: float) -> float:
    """Simulate so many hours; return the CPU seconds of all, for each payment."""
    runs: list[Run] = []
    took_s = spent_s(lambda: runs.append(simulate(PAYERS, hours)))
    return took_s / sum(1 for _ in runs[0].journal.of(events.PaymentSettled))


def simulate(payers: int, hours: float) -> Run:
    """Simulate so many hours; every check must hold.

    Each payer sends requests at random times (a Poisson process). Every third one uses sessions,
    the others pay for each request. Every link has latency; the indexer, the sweeps and the miner
    run in the background; the invariants are checked after every event.
    """

    async def day(world: LiveWorld) -> None:
        ends_s = world.clock.now() + hours * 3600
        await asyncio.gather(*(_payer(world, number, ends_s) for number in range(payers)))
        await world.clock.sleep_until(ends_s)

    run = World(seed=1, latency=LATENCY).play(day)
    assert run.outcome == "passed", f"a check of the simulated day failed: {run.reason}"
    return run


async def _payer(world: LiveWorld, number: int, ends_s: float) -> None:
    """Request quotes until the day is over."""
    rng = world.rng(f"payer {number}")
    someone = await world.payer(f"payer {number}", balance=SPENDING_CAP)
    auth: PaymentAuth | SessionAuth
    if number % 3:
        auth = PaymentAuth(someone.wallet, max_total=SPENDING_CAP, reuse=False, clock=world.clock)
    else:
        auth = SessionAuth(
            someone.wallet,
            deposit=SESSION_SPEND,
            duration=SESSION_S,
            max_sessions=1000,
            clock=world.clock,
        )
    while (next_s := world.clock.now() + rng.expovariate(1 / PAUSE_S)) < ends_s:
        await world.clock.sleep_until(next_s)
        answer = await someone.http.post(QUOTE, json=ORDER, auth=auth)
        assert answer.status_code == 200, answer.text
