"""How many payments per second, over which transport?

A lifecycle is the 402, the signature, the settlement through the facilitator on the ledger,
and the repeated request that is served. Every transport runs the same code of service,
facilitator and token, and moves the same money.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import httpx
import msgspec
from starlette.types import ASGIApp, Message

from x402sim.chain.base import LogFilter
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.clock import Clock
from x402sim.facilitator import engine
from x402sim.facilitator.engine import Asked, Facilitator
from x402sim.http import web
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import (
    PaymentRequired,
    PaymentRequirements,
    QuoteRequest,
    Receipt,
    RequiredPayment,
    SettlementRequest,
    decode,
    encode,
)
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.refusals import Refusal, Unpaid
from x402sim.rng import Rng
from x402sim.service import gate, payments, quotes
from x402sim.service.issue import QUOTE
from x402sim.service.upstream.dialect import Moved, NotMoved, Outcome, Verdict
from x402sim.service.upstream.facilitator import FacilitatorClient
from x402sim.world.assembly.parts import Parts, build
from x402sim.world.assembly.process import Process
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.loop import run_virtual
from x402sim.world.stages.stage import START_S
from x402sim.world.transport.link import Asgi
from x402sim.world.transport.middleware import faulty

SEED = 1
FUNDS_BASE = 10**15
"""A payer's balance: enough for 10^11 quotes."""
ORDER = QuoteRequest(pair="BTC-USD", side="long", leverage=10, size_usd=1000)
_ORDER = encode(ORDER)
Post = Callable[[str, bytes, dict[str, str]], Awaitable[tuple[int, bytes]]]
"""Sends one request to the service (path, body, headers): status and body of the answer."""


class Transport:
    """A world, a funded payer, and one transport between them; `live` pays and is served."""

    def __init__(self) -> None:
        self.parts: Parts = build(Recipe(network=TESTNET, seed=SEED), Clock(lambda: START_S))
        nonces = Rng(SEED).stream("nonces")
        key = Rng(SEED).secret("payer")
        self.payer = Wallet(key, nonces=lambda: nonces.randbytes(32))
        minting = self.parts.chain.minting
        assert minting is not None
        run_virtual(lambda: minting.fund(self.payer.address_bytes, FUNDS_BASE))

    async def live(self) -> None:
        """Run one lifecycle; raises `AssertionError` for an unexpected answer."""
        raise NotImplementedError

    def work(self, times: int) -> None:
        """Run this many lifecycles, one after the other, on a virtual loop."""

        async def main() -> None:
            for _ in range(times):
                await self.live()

        run_virtual(main)

    def close(self) -> None:
        """Close the world."""
        run_virtual(self.parts.http.aclose)
        self.parts.service.store.close()
        self.parts.chain.close()

    def settle(self, required: PaymentRequired) -> SettlementRequest:
        """Sign a 402; return the settlement request."""
        now_s = self.parts.clock.now_s()
        return SettlementRequest(
            payment_id=required.payment_id,
            payment_header=self.payer.payment_header(required.payment_requirements, now_s),
            payment_requirements=required.payment_requirements,
        )


class _Posting(Transport):
    """A payer that sends requests to the service; a subclass transports them."""

    post: Post

    async def live(self) -> None:
        """Ask, sign, pay, and be served."""
        status, body = await self.post(QUOTE, _ORDER, {})
        assert status == 402, body
        settlement = self.settle(decode(body, PaymentRequired))
        status, body = await self.post("/api/pay", encode(settlement), {})
        assert status == 200, body
        receipt: Receipt = decode(body, Receipt)
        status, body = await self.post(QUOTE, _ORDER, {"x-payment-id": receipt.payment_id})
        assert status == 200, body


class Httpx(_Posting):
    """Every request through httpx, as in a world."""

    def __init__(self) -> None:
        super().__init__()
        asgi = Asgi(self.parts.service_app)
        self._http = httpx.AsyncClient(transport=asgi, base_url="http://service", trust_env=False)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send a request with httpx."""
        response = await self._http.post(path, content=body, headers=headers)
        return response.status_code, response.content

    def close(self) -> None:
        """Close the client and the world."""
        run_virtual(self._http.aclose)
        super().close()


class PlainAsgi(_Posting):
    """Every request a direct ASGI call: the same applications and middleware, without httpx."""

    def __init__(self) -> None:
        super().__init__()
        parts = self.parts
        service = replace(parts.service, facilitator=_AsgiFacilitator(parts))
        middleware = faulty(Process(service), "service", parts.faults, parts.clock)
        self._app = web.recorded(middleware, "service", parts.journal, parts.clock)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Call the service's application."""
        return await _call(self._app, path, body, headers)


class Direct(Transport):
    """No HTTP: the service's functions call the facilitator's functions."""

    def __init__(self) -> None:
        super().__init__()
        self._service = replace(self.parts.service, facilitator=_DirectFacilitator(self.parts))

    async def live(self) -> None:
        """Ask, sign, pay, and be served, as `service.app` does it."""
        service, price = self._service, self._service.setup.quote_price_base
        with suppress(Unpaid):
            gate.find_pass(service, {}, QUOTE, price)
        required = service.issuer.issue(QUOTE, price, service.clock.now_s())
        receipt = await payments.pay(service, self.settle(required))
        granted = gate.find_pass(service, {"x-payment-id": receipt.payment_id}, QUOTE, price)
        quotes.quote(service.settings, ORDER)
        await gate.spend(service, granted, web.UNKNOWN)


TRANSPORTS: dict[str, type[Transport]] = {
    "httpx": Httpx,
    "plain ASGI": PlainAsgi,
    "direct": Direct,
}


class _AsgiFacilitator(FacilitatorClient):
    """The facilitator, one ASGI call away."""

    def __init__(self, parts: Parts) -> None:
        self._app = parts.facilitator_app
        self._dialect = parts.service.setup.dialect

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        """Ask the facilitator whether a payment is valid."""
        body = self._dialect.request(payment, requirements)
        status, answer = await _call(self._app, self._dialect.verify_path, body, {})
        assert status == 200, answer
        return self._dialect.read_verdict(answer)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        """Ask the facilitator to settle."""
        body = self._dialect.request(payment, requirements)
        status, answer = await _call(self._app, self._dialect.settle_path, body, {})
        assert status == 200, answer
        return self._dialect.read_outcome(answer)


class _DirectFacilitator(FacilitatorClient):
    """The facilitator, one function call away."""

    def __init__(self, parts: Parts) -> None:
        account = Wallet(Rng(SEED).secret("facilitator")).address_bytes
        self._facilitator = Facilitator(
            chain=parts.chain,
            clock=parts.clock,
            network=TESTNET,
            account=account,
            started_s=START_S,
        )

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        """Have the facilitator verify."""
        rejected = await engine.verify(self._facilitator, _asked(payment, requirements))
        return Verdict(is_valid=rejected is None, reason=rejected.why.value if rejected else None)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        """Have the facilitator settle."""
        result = await engine.settle(self._facilitator, _asked(payment, requirements))
        if isinstance(result, engine.PendingTransfer):
            raise TimeoutError(f"{to_hex(result.tx_hash)} is not mined yet")
        if not isinstance(result, engine.Transferred):
            return NotMoved(Refusal.FAILED, result.why.value)
        auth = result.authorization
        return Moved(
            to_hex(result.tx_hash),
            checksum(auth.from_),
            checksum(auth.to),
            str(auth.value),
            requirements.network,
        )


def _asked(payment: PresentedPayment, requirements: PaymentRequirements) -> Asked:
    wanted = msgspec.convert(requirements, RequiredPayment, from_attributes=True)
    return Asked(payment.signed, wanted)


async def _call(app: ASGIApp, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Call an ASGI application; return the status and the body of its answer."""
    status, parts = 0, []
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": sent, "server": ("service", 80), "client": ("payer", 1),
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts)


@dataclass(frozen=True, slots=True)
class Totals:
    """The result of a number of lifecycles: every transfer, and the merchant's balance."""

    transfers: tuple[str, ...]
    earned_base: int


def totals(transport: type[Transport], times: int) -> Totals:
    """Run this many lifecycles in a new world; return the totals."""
    world = transport()
    try:
        world.work(times)
        assert isinstance(world.parts.chain, LedgerChain)
        machine = world.parts.chain.machine
        paid_by = abi.word(world.payer.address_bytes)
        found = machine.logs(LogFilter(0, times + 1, (), ((abi.TRANSFER_EVENT,), (paid_by,))))
        pay_to = world.parts.service.setup.pay_to
        return Totals(
            tuple(to_hex(log.tx_hash) for log in found), machine.state.balances.get(pay_to, 0)
        )
    finally:
        world.close()


def same_totals(times: int = 5) -> Totals:
    """Return the totals of every transport; raises `AssertionError` if they differ."""
    found = {name: totals(transport, times) for name, transport in TRANSPORTS.items()}
    assert len(set(found.values())) == 1, f"the transports differ: {found}"
    return found["direct"]
