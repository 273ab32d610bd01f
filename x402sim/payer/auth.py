"""Pay as httpx authentication: any httpx client, sync or async, can pay.

`PaymentAuth` answers a 402 by signing, settling and repeating the request. It signs no
more than its caps allow. When it is not known whether a payment was made, it sends the
same authorization again and signs no other. Whether it is sent again is decided by
`reading.read_settlement`, and by the `Row.resend` of the error that the server answered.
Clauses: 1/sign-settle-repeat.
"""

import threading
from collections.abc import Generator
from dataclasses import dataclass

import httpx
from msgspec import UNSET
from msgspec.structs import replace

from x402sim.clock import Clock
from x402sim.payer.errors import PaymentFailed, SpendingCapExceeded
from x402sim.payer.reading import AttemptOver, origin_of, read_offer, read_settlement
from x402sim.payer.wallet import Wallet
from x402sim.protocol.header import Spelling
from x402sim.protocol.messages import (
    PaymentRequired,
    PaymentRequirements,
    Receipt,
    SettlementRequest,
    encode,
)
from x402sim.protocol.money import parse_base, to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network

Flow = Generator[httpx.Request, httpx.Response, httpx.Response]


@dataclass(frozen=True, slots=True)
class _Signed:
    """A signed payment of unknown outcome."""

    payment_id: str
    header: str
    requirements: PaymentRequirements


class PaymentAuth(httpx.Auth):
    """402 -> sign -> POST /api/pay -> repeat with X-Payment-Id (1/sign-settle-repeat).

    `max_amount` caps one payment and `max_total` everything this object ever signs,
    both as decimal strings of the token ("0.10"): a signed authorization counts whether
    or not the server says it used it. A payment id is used again for the same resource
    unless `reuse` is False. When it is not known whether a payment was made, the next
    request for the resource sends the same authorization again and signs no other.

    One object may serve many requests at once, in threads or tasks. A payment id is proof of
    payment for anyone who has it: do not let the client follow redirects to other hosts. Raises
    `SpendingCapExceeded` and `PaymentFailed` out of the client's call.
    """

    requires_response_body = True

    def __init__(
        self,
        wallet: Wallet,
        *,
        max_amount: str = "0.10",
        max_total: str = "1.00",
        network: Network = TESTNET,
        reuse: bool = True,
        pay_path: str = "/api/pay",
        spelling: Spelling = "hex",
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(wallet, Wallet):
            raise TypeError(f"wallet must be a Wallet, not {type(wallet).__name__}")
        self.wallet = wallet
        self.network = network
        self.max_amount_base = to_base(max_amount, network.decimals)
        self.max_total_base = to_base(max_total, network.decimals)
        self.signed_base = 0
        """The amount signed for so far, in base units."""
        self.receipts: list[Receipt] = []
        self._reuse = reuse
        self._pay_path = pay_path
        self._spelling = spelling
        self._clock = clock or Clock()
        self._granted: dict[str, str] = {}
        self._ids_to_show: dict[str, list[str]] = {}
        """Payment ids that were shown and got no answer, by resource."""
        self._payments_to_resend: dict[str, list[_Signed]] = {}
        """Signed payments whose settlement is not known, by resource."""
        self._lock = threading.Lock()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield the requests of one paid exchange; httpx sends them."""
        yield from self.exchange(request)

    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the requests of one paid exchange, and return its last response."""
        resource = origin_of(request) + request.url.path
        known = self._proof_for(resource)
        response = yield from self._show(request, resource, known)
        if response.status_code != 402:
            return response
        if known and self._granted.get(resource) == known:
            self._granted.pop(resource, None)
        offer = read_offer(request, response, self.network)
        signed = yield from self._resend(request, resource)
        if signed is None:
            signed = self._sign(offer)
            try:
                yield from self._settle(request, resource, signed)
            except AttemptOver as refused:
                raise PaymentFailed(str(refused)) from None
        if self._reuse:
            self._granted[resource] = signed.payment_id
        response = yield from self._show(request, resource, signed.payment_id)
        return response

    def _proof_for(self, resource: str) -> str | None:
        """Return a payment id to send at once: one whose answer was lost, or one to reuse."""
        with self._lock:
            to_show = self._ids_to_show.get(resource)
            return to_show.pop() if to_show else self._granted.get(resource)

    def _show(self, request: httpx.Request, resource: str, payment_id: str | None) -> Flow:
        """Send the request with a payment id; if no answer arrives, the next request sends it."""
        if payment_id is not None:
            request.headers["X-Payment-Id"] = payment_id
        is_answered = False
        try:
            response = yield request
            is_answered = True
            return response
        finally:
            if payment_id is not None and not is_answered:
                with self._lock:
                    self._ids_to_show.setdefault(resource, []).append(payment_id)

    def _sign(self, offer: PaymentRequired) -> _Signed:
        """Sign the payment that a 402 requires, within the caps; raises `PaymentFailed`."""
        requirements = offer.payment_requirements
        with self._lock:
            try:
                amount_base = parse_base(requirements.max_amount_required)
                self._check_caps(amount_base)
                header = self.wallet.payment_header(
                    requirements,
                    self._clock.now_s(),
                    network=self.network,
                    spelling=self._spelling,
                )
            except ValueError as error:
                raise PaymentFailed(f"the 402 cannot be paid: {error}") from error
            self.signed_base += amount_base
        return _Signed(offer.payment_id, header, requirements)

    def _check_caps(self, amount_base: int) -> None:
        """Raise `SpendingCapExceeded` if this amount is more than is allowed."""
        left_base = self.max_total_base - self.signed_base
        if amount_base > self.max_amount_base:
            cap = "max_amount"
            allowed = f"{cap} allows {self._tokens(self.max_amount_base)} for one payment"
        elif amount_base > left_base:
            cap = "max_total"
            total = self._tokens(self.max_total_base)
            allowed = f"{self._tokens(left_base)} is left of {cap} {total}"
        else:
            return
        asked = self._tokens(amount_base)
        raise SpendingCapExceeded(f"the 402 asks for {asked}; {allowed}. Raise {cap} to pay it.")

    def _tokens(self, amount_base: int) -> str:
        return f"{to_decimal(amount_base, self.network.decimals)} {self.network.token_symbol}"

    def _resend(
        self, request: httpx.Request, resource: str
    ) -> Generator[httpx.Request, httpx.Response, _Signed | None]:
        """Send the payments again whose outcome is not known; None if none was settled."""
        while True:
            with self._lock:
                to_resend = self._payments_to_resend.get(resource)
                signed = to_resend.pop() if to_resend else None
            if signed is None:
                return None
            try:
                yield from self._settle(request, resource, signed)
            except AttemptOver:
                continue
            return signed

    def _settle(
        self, request: httpx.Request, resource: str, signed: _Signed
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a payment to /api/pay; raises `PaymentFailed` unless it is settled.

        The payment is kept and sent again later unless the answer is final. That includes a
        connection that breaks: httpx then closes this generator.
        """
        is_clear = False
        try:
            response = yield self._settlement(request, signed)
            receipt = read_settlement(response)
            is_clear = True
            if receipt is not None:
                self.receipts.append(receipt)
        except AttemptOver:
            is_clear = True
            raise
        finally:
            if not is_clear:
                with self._lock:
                    self._payments_to_resend.setdefault(resource, []).append(signed)

    def _settlement(self, request: httpx.Request, signed: _Signed) -> httpx.Request:
        body = SettlementRequest(
            payment_id=signed.payment_id,
            payment_header=signed.header,
            payment_requirements=replace(signed.requirements, description=UNSET),
        )
        return httpx.Request(
            "POST",
            request.url.copy_with(path=self._pay_path, query=None, fragment=None),
            content=encode(body),
            headers={"Content-Type": "application/json"},
            extensions=request.extensions,
        )
