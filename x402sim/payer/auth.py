"""Pay as httpx authentication: any httpx client, sync or async, can pay.

`PaymentAuth` answers a 402 by signing, settling and repeating the request. It signs no
more than its caps allow, and nothing for a resource while an earlier payment for it may still
be made or has bought nothing yet. Whether an authorization is sent again is decided by
`reading.read_settlement`, by the error that the server answered and by `purchases.EXPIRY_MARGIN_S`.
Clauses: 1/sign-settle-repeat.
"""

import threading
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import assert_never

import httpx
from msgspec import UNSET
from msgspec.structs import replace

from x402sim.bounded import MIB, Limits
from x402sim.clock import Clock
from x402sim.payer.errors import PaidNotServed, PaymentFailed, SpendingCapExceeded
from x402sim.payer.flow import Flow, Send, Step, Steps, drive, drive_async, send
from x402sim.payer.purchases import Payment, Purchases, bought_by
from x402sim.payer.reading import (
    UNKNOWN,
    AttemptOver,
    Made,
    read_offer,
    read_settlement,
    says_nothing,
)
from x402sim.payer.wallet import Wallet
from x402sim.protocol.header import Spelling
from x402sim.protocol.messages import PaymentRequired, Receipt, SettlementRequest, encode
from x402sim.protocol.money import parse_base, to_base, to_decimal
from x402sim.protocol.networks import TESTNET, Network

DEADLINE_S = 120.0
"""Seconds for a settlement: more than a service waits for its facilitator."""


Served = Callable[[httpx.Response], bool]


@dataclass(frozen=True, slots=True)
class _Errand:
    """One request of the caller, and what is bought for its resource already.

    `is_served` tells whether an answer is what was paid for.
    """

    ask: Send
    resource: str
    bought: Purchases
    is_served: Served


def _is_success(response: httpx.Response) -> bool:
    return response.is_success


class PaymentAuth(httpx.Auth):
    """402 -> sign -> POST /api/pay -> repeat with X-Payment-Id (1/sign-settle-repeat).

    `max_amount` caps one payment and `max_total` everything this object ever signs,
    both as decimal strings of the token ("0.10"): a signed authorization counts whether
    or not the server says it used it. A payment id is used again for the same resource
    unless `reuse` is False. A resource is a path of one server, its host and port; each session
    (`maxSpend` and `duration`) is one of its own, so that none is shown for another.

    When it is not known whether a payment was made, the next request for the resource sends the
    same authorization again and signs no other, while that may be used: until `EXPIRY_MARGIN_S`
    after its validBefore. Then another is signed if the server refuses the first once more, and
    its payment id, too; a 5xx or no answer ends nothing. A server that says that the nonce is used
    or the payment settled has been paid: it gets no other. What is not finished is known to this
    object only, and by host and port: a server that restarts on another port is paid anew.

    A server that takes a payment and answers 402 again gets no other for that resource: at most
    `max_unserved` payments (default 1) may have bought nothing yet. Requests for one resource
    therefore pay one after the other.

    Of a 402 or the answer to a settlement at most `max_answer_bytes` are read, and a settlement
    takes at most `deadline_s` seconds. Proofs of payment follow no redirect to another origin,
    and no more than three. With a sync client, and for the request itself, the client's own
    timeouts hold until the answer's head has arrived.

    One object may serve many requests at once, in threads or tasks. A payment id is proof of
    payment for anyone who has it. Raises `SpendingCapExceeded`, `PaidNotServed` and
    `PaymentFailed` out of the client's call.
    """

    def __init__(
        self,
        wallet: Wallet,
        *,
        max_amount: str = "0.10",
        max_total: str = "1.00",
        network: Network = TESTNET,
        reuse: bool = True,
        max_unserved: int = 1,
        pay_path: str = "/api/pay",
        spelling: Spelling = "hex",
        clock: Clock | None = None,
        max_answer_bytes: int = MIB,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        if not isinstance(wallet, Wallet):
            raise TypeError(f"wallet must be a Wallet, not {type(wallet).__name__}")
        self.wallet = wallet
        self.network = network
        self.max_amount_base = to_base(max_amount, network.decimals)
        self.max_total_base = to_base(max_total, network.decimals)
        self.max_unserved = max_unserved
        """How many payments for one resource may have bought nothing yet."""
        self.signed_base = 0
        """The amount signed for so far, in base units."""
        self.receipts: list[Receipt] = []
        self.limits = Limits(max_answer_bytes=max_answer_bytes, deadline_s=deadline_s)
        self.clock = clock or Clock()
        self._reuse = reuse
        self._pay_path = pay_path
        self._spelling = spelling
        self._purchases: dict[tuple[str, ...], Purchases] = {}
        """By what is bought: see `bought_by`."""
        self._lock = threading.Lock()

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Yield the requests of one paid exchange to a sync client."""
        return drive(self.exchange(request), request, self.limits)

    def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Yield the requests of one paid exchange to an async client."""
        return drive_async(self.exchange(request), request, self.limits, self.clock)

    def exchange(
        self, request: httpx.Request, *, ours: bool = False, is_served: Served = _is_success
    ) -> Flow:
        """Yield the steps of one paid exchange, and return its last answer.

        `is_served` tells whether an answer is what was paid for.
        """
        thing = bought_by(request)
        with self._lock:
            bought = self._purchases.setdefault(thing, Purchases())
        errand = _Errand(Send(request, ours), thing[0], bought, is_served)
        response, shown = None, bought.granted
        if shown is not None or not bought.unserved:
            response = yield from _show(errand, shown)
            if response.status_code != 402:
                return response
        yield bought.turn
        try:
            response = yield from self._catch_up(errand, response, shown)
            if response.status_code == 402:
                response = yield from self._buy(errand, response)
        finally:
            bought.turn.release()
        return response

    def _catch_up(
        self, errand: _Errand, response: httpx.Response | None, shown: str | None
    ) -> Flow:
        """Show what is paid for already; return the newest answer, by default `response`."""
        bought = errand.bought
        if bought.granted not in (None, shown):  # another request has paid meanwhile
            response = yield from _show(errand, bought.granted)
        elif bought.unserved:
            response = yield from self._show_unserved(errand)
        elif response is None:  # another request was served meanwhile
            response = yield from _show(errand, None)
        return response

    def _buy(self, errand: _Errand, response: httpx.Response) -> Flow:
        """Pay a 402, if no earlier payment for the resource forbids it; raises `PaymentFailed`."""
        bought = errand.bought
        bought.granted = None
        offer = read_offer(errand.ask.request, response, self.network)
        shown = yield from self._resend(errand)
        if shown is not None:
            return shown
        if not bought.unserved or bought.unserved[-1].was_refused:
            if len(bought.unserved) >= self.max_unserved:
                raise self._not_served(errand)
            payment = self._sign(offer)
            try:
                yield from self._settle(errand, payment)
            except AttemptOver as refused:
                raise PaymentFailed(str(refused)) from None
        response = yield from self._show_unserved(errand)
        if response.status_code == 402:
            raise self._not_served(errand)
        return response

    def _show_unserved(self, errand: _Errand) -> Flow:
        """Show the newest payment that bought nothing yet."""
        payment = errand.bought.unserved[-1]
        response = yield from _show(errand, payment.offer.payment_id)
        payment.was_refused = response.status_code == 402
        self._note_served(errand, payment, response)
        return response

    def _note_served(self, errand: _Errand, payment: Payment, response: httpx.Response) -> None:
        if errand.is_served(response):
            errand.bought.unserved.remove(payment)
            if self._reuse:
                errand.bought.granted = payment.offer.payment_id

    def _not_served(self, errand: _Errand) -> PaidNotServed:
        """Return the error of a server that took a payment and answers 402 again."""
        payment = errand.bought.unserved[-1]
        paid = f"{self._tokens(payment.amount_base)} with payment id {payment.shown_id}"
        if payment.receipt is not None:
            paid = f"was paid {paid} (transaction {payment.receipt.tx_hash[:80]})"
        else:
            paid = (
                f"seems to have been paid {paid} (the server answered {payment.hint}; the token "
                f"tells for certain: {payment.question})"
            )
        return PaidNotServed(
            f"{errand.resource} {paid}, and answers 402 again; nothing more was signed. "
            "Repeat the request: it shows the same payment again. To pay once more, raise "
            f"max_unserved (now {self.max_unserved})"
        )

    def _sign(self, offer: PaymentRequired) -> Payment:
        """Sign the payment that a 402 requires, within the caps; raises `PaymentFailed`."""
        requirements = offer.payment_requirements
        with self._lock:
            try:
                amount_base = parse_base(requirements.max_amount_required)
                self._check_caps(amount_base)
                header = self.wallet.payment_header(
                    requirements,
                    self.clock.now_s(),
                    network=self.network,
                    spelling=self._spelling,
                )
            except ValueError as error:
                raise PaymentFailed(f"the 402 cannot be paid: {error}") from error
            self.signed_base += amount_base
        return Payment(offer, header, amount_base)

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
        self, errand: _Errand
    ) -> Generator[Step, httpx.Response | None, httpx.Response | None]:
        """Send the payments again whose outcome is not known, until one is settled.

        One that is over is shown once, in case the server has it after all; returns the answer to
        that, unless it is a 402.
        """
        while errand.bought.unknown:
            payment = errand.bought.unknown.pop()
            try:
                yield from self._settle(errand, payment)
            except AttemptOver:
                shown = yield from self._show_last(errand, payment)
                if shown.status_code == 402:
                    continue
                return shown
            return None
        return None

    def _show_last(self, errand: _Errand, payment: Payment) -> Flow:
        """Show a payment that the server says was not made; it stays unless the answer tells."""
        bought = errand.bought
        bought.unknown.append(payment)
        response = yield from _show(errand, payment.offer.payment_id)
        if not says_nothing(response):
            bought.unknown.remove(payment)
            if response.status_code != 402:
                payment.hint = f"{response.status_code} when it was shown"
                bought.unserved.append(payment)
                self._note_served(errand, payment, response)
        return response

    def _settle(self, errand: _Errand, payment: Payment) -> Steps:
        """Send a payment to /api/pay; raises `PaymentFailed` unless it is settled.

        The payment is kept and sent again later unless the answer is final. That includes a
        connection that breaks: httpx then closes this generator.
        """
        bought, sent = errand.bought, payment.sent(self.clock.now_s())
        payment.is_sent, is_clear = True, False
        try:
            response = yield from send(Send(self._settlement(errand.ask.request, payment), True))
            answer = read_settlement(response, sent)
            is_clear = True
        except httpx.HTTPError as error:
            raise PaymentFailed(f"{UNKNOWN}: {error}. {sent.again}") from error
        except AttemptOver:
            is_clear = True
            raise
        finally:
            if not is_clear:
                bought.unknown.append(payment)
        bought.unserved.append(payment)
        match answer:
            case Receipt():
                payment.receipt = answer
                self.receipts.append(answer)
            case Made(seen=seen):
                payment.hint = seen
            case _:
                assert_never(answer)

    def _settlement(self, request: httpx.Request, payment: Payment) -> httpx.Request:
        body = SettlementRequest(
            payment_id=payment.offer.payment_id,
            payment_header=payment.header,
            payment_requirements=replace(payment.offer.payment_requirements, description=UNSET),
        )
        return httpx.Request(
            "POST",
            request.url.copy_with(path=self._pay_path, query=None, fragment=None),
            content=encode(body),
            headers={"Content-Type": "application/json"},
            extensions=request.extensions,
        )


def _show(errand: _Errand, payment_id: str | None) -> Flow:
    """Send the caller's request, with a payment id if there is one."""
    request = errand.ask.request
    if payment_id is not None:
        request.headers["X-Payment-Id"] = payment_id
    try:
        response = yield from send(errand.ask)
    except httpx.HTTPError as error:
        raise PaymentFailed(
            f"the answer cannot be read: {error}. Nothing more was signed"
        ) from error
    return response
