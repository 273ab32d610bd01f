"""A payer of a scenario: its requests, signatures, transactions, orders, sessions and budget."""

import asyncio
import math
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from sys import intern
from typing import Any, Literal

import httpx
import msgspec
from msgspec.structs import replace

from x402sim.clock import Clock
from x402sim.events import ServiceName
from x402sim.http.exchange import Headers, retry_after_s
from x402sim.payer import core, signing
from x402sim.payer.core import Next, PaymentFailed, SpendingCapExceeded, next_step
from x402sim.payer.policies import Bill, Choose, ListedService, NewBlock, PayerPolicy
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol import abi, messages, routes, x402
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.header import Spelling, authorization_of, decode_header, spelled
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.routes import AGENTS, ORDER, QUOTE, SESSIONS
from x402sim.protocol.ways import object_in
from x402sim.rng import Stream, later
from x402sim.serving.control.messages import Sent
from x402sim.story.observing import newest_block
from x402sim.story.stages import Stage
from x402sim.text.words import as_given, described, unknown
from x402sim.world.link import PartClient


@dataclass(slots=True, eq=False)
class Signed:
    """An authorization that was signed: for how many tokens, and when it expires."""

    price: Decimal
    expires_s: float
    is_paid: bool = False
    """Whether an answer has reported it as paid."""


@dataclass(slots=True)
class Spending:
    """The signed payments of a payer, at all services, oldest first."""

    policy: PayerPolicy
    moments: "array[float]" = field(default_factory=lambda: array("d"))
    """The time of each, in Unix seconds; an array, as a crowd has many."""
    prices: list[Decimal] = field(default_factory=list)
    """The price of each, in tokens."""
    total: Decimal = Decimal()
    paid: Decimal = Decimal()
    """The amount that answers have reported as paid."""
    unsure: list[Signed] = field(default_factory=list)
    """The authorizations without a report of payment, and without expiry at the last look."""
    rng: Stream | None = None
    """The stream of the policies, the same at all services, once a policy draws."""

    def spend(self, price: Decimal, now_s: float, expires_s: float) -> Signed:
        """Count a price as signed for; raises `SpendingCapExceeded` if the budget forbids it."""

        def since(seconds: float) -> Decimal:
            signed = zip(reversed(self.moments), reversed(self.prices), strict=True)
            newest = takewhile(lambda each: each[0] > now_s - seconds, signed)
            return sum((price for _, price in newest), Decimal())

        self.unsure = [each for each in self.unsure if each.expires_s > now_s]
        unsure = sum((each.price for each in self.unsure), Decimal())
        budget = self.policy.budget
        bill = Bill(
            price=price, signed=self.total, signed_since=since, paid=self.paid, unsure=unsure
        )
        if not budget.allows(bill):
            raise SpendingCapExceeded(
                f"the 402 asks for {price}, {self.total} is signed for ({self.paid} of it paid, "
                f"{unsure} without an answer), and the budget is {as_given(budget)}; nothing was "
                "signed"
            )
        new = Signed(price, expires_s)
        self.moments.append(now_s)
        self.prices.append(price)
        self.unsure.append(new)
        self.total = self.total + price if self.total else price  # most payers pay once
        return new

    def note_paid(self, signed: Signed) -> None:
        """Count an authorization as paid, as an answer has reported."""
        if signed.is_paid:
            return
        signed.is_paid = True
        self.paid = self.paid + signed.price if self.paid else signed.price
        if signed in self.unsure:  # it may have expired before the answer came
            self.unsure.remove(signed)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the service; `status` is None if none came, and `error` says why.

    `body` is the answer's JSON object; empty if the answer is not one. `header` reads a header.
    """

    status: int | None
    body: dict[str, Any]
    exchange: int
    text: str = ""
    broken: str | None = None
    headers: Headers = field(default_factory=list, repr=False)

    def header(self, name: str) -> str | None:
        """Return a header of the answer by name, or None."""
        found: str | None = httpx.Headers(self.headers).get(name)
        return found

    @property
    def error(self) -> str | None:
        """The error's text, or the name of the exception that ended the exchange."""
        return self.broken or self.body.get("error")

    @property
    def reason(self) -> str:
        """The error's details; empty if there are none."""
        return str(self.body.get("reason", ""))

    @property
    def payment_id(self) -> str:
        """The payment id of a 402 or a receipt; raises `PaymentFailed` if there is none."""
        return str(self._field("paymentId", "payment id"))

    @property
    def requirements(self) -> dict[str, Any]:
        """The payment requirements of a 402, without the description (2.1).

        Raises `PaymentFailed` if the answer is not a 402.
        """
        wanted: dict[str, Any] = self._field("paymentRequirements", "402 to pay")
        return {name: value for name, value in wanted.items() if name != "description"}

    @property
    def price_base(self) -> int:
        """The price in a 402, in base units, of goods sold `upto` the maximum; raises
        `PaymentFailed` if it is not a 402.
        """
        if self.is_one_step_only:
            return int(x402.read_required(self.standard_offer or "").accepts[0].amount)
        return int(self.requirements["maxAmountRequired"])

    @property
    def is_one_step_only(self) -> bool:
        """Whether it is a 402 without a payment in two steps, as of goods sold `upto`."""
        return "paymentId" not in self.body and self.standard_offer is not None

    @property
    def settlement(self) -> x402.Settlement | None:
        """The receipt of a payment in one step; None without one."""
        found: x402.Settlement | None = x402.json_in(
            self.header(x402.RESPONSE_HEADERS[2]), x402.Settlement
        )
        return found

    def _field(self, name: str, meaning: str) -> Any:
        if name in self.body:
            return self.body[name]
        outcome = f"the answer was {self.status}" + (f" ({self.error})" if self.error else "")
        if self.status is None:
            outcome = f"the request was not answered ({self.broken})"
        raise PaymentFailed(f"no {meaning}: {outcome}")

    @property
    def standard_offer(self) -> str | None:
        """The header PAYMENT-REQUIRED of a 402: its offers in version 2 of the x402 standard."""
        return self.header(x402.REQUIRED_HEADER) if self.status == 402 else None


class Payer:
    """One payer at one service.

    `ask`, `sign` and `pay` are the steps of a purchase. `buy` takes them as the policy says, up to
    the receipt; `fetch` goes on until the quote is served, or spends a session. In one step the
    receipt comes with the quote.

    `http` is an httpx client, which pays automatically with an `auth`:
    `await alice.http.get("/api/perp/market", auth=PaymentAuth(alice.wallet, clock=world.clock))`.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        wallet: Wallet,
        spending: Spending,
        service: ServiceName = "service",
    ) -> None:
        self.stage, self.name, self.wallet = stage, name, wallet
        self._service = stage.known(service)
        self._client: PartClient | None = None
        self._is_client_shared = False
        """Whether the scenario has got the client, and may have set its cookies or headers."""
        self.skew_s = 0.0
        """Seconds by which the payer's clock is ahead of the true time."""
        self.network = stage.network_of(service)
        """The network whose token pays: the service's."""
        self._spending, self._bought = spending, Bought()
        self._at_services: dict[ServiceName, Payer] = {}
        """This payer at other services, by service; shared by all of them."""
        if self._service not in stage.local:
            self._own_client()

    @cached_property
    def _listing_order(self) -> Stream:
        return later(partial(self.stage.stream, f"shops of {self.name}"))

    @property
    def http(self) -> PartClient:
        """Its httpx client."""
        self._is_client_shared = True
        return self._own_client()

    def _own_client(self) -> PartClient:
        if self._client is None:
            self._client = self.stage.client(self.name, self._service)
            if self._spending.policy.timeout_s is not None:
                self._client.timeout = self._spending.policy.timeout_s
        return self._client

    def leave(self) -> None:
        """Drop the client until the next request, unless the scenario has it: clients are large."""
        for each in (self, *self._at_services.values()):
            client = each._client
            if client is not None and not each._is_client_shared and self.stage.forget(client):
                each._client = None

    @property
    def address(self) -> str:
        """The payer's address."""
        return self.wallet.address

    @property
    def clock(self) -> Clock:
        """The true time: `now()` in Unix seconds, and `await sleep(seconds)`."""
        return self.stage.clock

    def now_s(self) -> int:
        """Return the time by this payer's clock, in Unix seconds."""
        return int(self.stage.clock.now() + self.skew_s)

    # --- over HTTP -------------------------------------------------------------------

    async def send(
        self, method: str, path: str, *, json: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request to the service; return its answer, also if the exchange breaks."""
        if not isinstance(path, str):  # httpx would show a key given here
            raise ValueError(f"path: expected a text, got {as_given(path)}")
        named, body = {name.lower(): value for name, value in (headers or {}).items()}, b""
        if json is not None:
            body = json if isinstance(json, bytes) else messages.encode(json)
            named["content-type"] = "application/json"
        http = self._own_client()
        request = http.request_to(method, path, named, body)
        try:
            response = await http.ask(request)
        except httpx.TransportError as error:
            answer = Answer(None, {}, request.extensions["exchange"], broken=type(error).__name__)
        else:
            exchange = request.extensions["exchange"]
            fields, text = object_in(response.content) or {}, response.text
            answer = Answer(response.status, fields, exchange, text, headers=response.headers)
        self.stage.last_exchange = answer.exchange
        return answer

    async def ask(
        self,
        resource: str = QUOTE,
        *,
        payment_id: str | None = None,
        session_id: str | None = None,
        header: str | None = None,
        order: Any = None,
    ) -> Answer:
        """Request a protected resource, with or without a proof of payment.

        A `header` signed for one step, by this payer or another, is the payment.
        By default a `payment_id` is served as often as it is shown.
        """
        headers = core.proofs(payment_id, session_id)
        if header is not None:
            headers[x402.PAYMENT_HEADERS[2]] = header
        return await self.send("POST", resource, json=order or ORDER, headers=headers)

    async def ask_session(
        self, deposit: str, duration: int, *, payment_id: str | None = None
    ) -> Answer:
        """Request a session of `deposit` tokens and a `duration` in the service's unit, seconds."""
        body = {"maxSpend": deposit, "duration": duration}
        return await self.send("POST", SESSIONS, json=body, headers=core.proofs(payment_id))

    async def pay(
        self,
        required: Answer,
        header: str | None = None,
        *,
        payment_id: str | None = None,
        requirements: dict[str, Any] | None = None,
    ) -> Answer:
        """Settle a 402 at /api/pay, with a newly signed header unless one is given.

        `payment_id` and `requirements` (only the fields that differ) replace the 402's own; a
        field that is None is left out. Raises `PaymentFailed` if `required` is not a 402.
        """
        body = core.settlement(
            required.payment_id if payment_id is None else payment_id,
            self.sign(required) if header is None else header,
            required.requirements,
            requirements,
        )
        return await self.send("POST", routes.PAY, json=body)

    async def payment(self, payment_id: str) -> dict[str, Any]:
        """Return the service's record of a payment, or the error without a record."""
        return (await self.send("GET", routes.PAYMENTS + payment_id)).body

    async def session(self, session_id: str) -> dict[str, Any]:
        """Return the service's view of a session, or the error without a session."""
        return (await self.send("GET", routes.SESSION + session_id)).body

    # --- signing ---------------------------------------------------------------------

    def offer(self, required: Answer) -> signing.StandardOffer:
        """Return the offer taken in one step; raises `PaymentFailed` without one."""
        if required.standard_offer is None:
            raise PaymentFailed(f"no payment in one step is offered: {required.error}")
        offered = x402.read_required(required.standard_offer)
        return signing.choose(offered, self.network, permit2=True)

    def sign(
        self,
        required: Answer,
        *,
        steps: Literal[1, 2] = 2,
        spelling: Spelling = "hex",
        by: Wallet | None = None,
        network: Network | None = None,
        receive: bool = False,
        permit_nonce: int | None = None,
        **wrong: Any,
    ) -> str:
        """Return a payment header for a 402, signed by this payer's clock.

        It is for `pay`; with `steps=1` it is for `ask`, in version 2 of the x402 standard. For
        goods sold `upto` the maximum is signed, by Permit2; with `permit_nonce`, 0 for the payer's
        first, a permit (EIP-2612) goes along, by which the facilitator has Permit2 approved.

        `wrong` replaces fields of the authorization *before* signing: `to` (an address), `value`,
        `valid_after`, `valid_before` (integers), `nonce` (32 bytes). `by` signs instead; the
        authorization still names this payer. `network` replaces the network that is signed for and
        named in the header. `receive` signs a ReceiveWithAuthorization, which only the payee may
        submit. These two and `spelling` are for two steps only, `permit_nonce` for one. Raises
        `PaymentFailed` if `required` is no 402 to be paid so.
        """
        if steps == 1:
            if (spelling, network, receive) != ("hex", None, False):
                raise ValueError("spelling, network and receive are for steps=2")
            return signing.sign(
                self.offer(required),
                *(self.wallet, self.network, self.now_s()),
                by=by,
                changes=wrong,
                permit_nonce=permit_nonce,
            )[1]
        wanted: messages.PaymentRequirements = messages.decode(
            msgspec.json.encode(required.requirements), messages.PaymentRequirements
        )
        auth = core.changed(self.wallet.authorize(wanted, self.now_s()), wrong)
        return core.signed_header(
            auth,
            by or self.wallet,
            network or self.network,
            spelling,
            receive=receive,
        )

    def rewrite_header(
        self,
        header: str,
        *,
        spelling: Spelling = "hex",
        scheme: str | None = None,
        network: str | None = None,
        asset: str | None = None,
        **changed: Any,
    ) -> str:
        """Return a header that was changed *after* signing: in fields of `wrong` (see `sign`), or
        in its scheme, network or token, which no signature covers."""
        if changed:
            header = core.rewritten_header(header, self.network, **changed)
        old = decode_header(header)
        payload = replace(old.payload, asset=asset or old.payload.asset)
        scheme, network = scheme or old.scheme, network or old.network
        return spelled(replace(old, scheme=scheme, network=network, payload=payload), spelling)

    def window(self, header: str) -> tuple[int, int]:
        """Return validAfter and validBefore of a header, in Unix seconds (both exclusive)."""
        auth, _ = authorization_of(header)
        return auth.valid_after, auth.valid_before

    # --- on its network's chain, on its own account ----------------------------------

    async def balance(self) -> int:
        """Return this payer's balance on the chain, in base units."""
        return await self.stage.balance(self.address, self.stage.further(self.network))

    async def transfer(self, to: str, amount: str) -> Sent:
        """Send tokens in this payer's own transaction."""
        amount_base = to_base(amount, self.network.decimals)
        return await self._call(abi.transfer(parse_address(to), amount_base))

    async def approve(self, amount: str) -> Sent:
        """Let Permit2 take so many tokens in all, in this payer's own transaction."""
        amount_base = to_base(amount, self.network.decimals)
        return await self._call(abi.approve(PERMIT2, amount_base))

    async def cancel(self, header: str, *, by: Wallet | None = None) -> Sent:
        """Cancel the authorization of a header, on the chain."""
        auth, _ = authorization_of(header)
        signature = (by or self.wallet).sign_cancellation(auth.nonce, self.network.domain)
        return await self._call(abi.cancel_authorization(auth.from_, auth.nonce, signature))

    async def submit(self, header: str, *, receive: bool = False) -> Sent:
        """Submit a signed authorization to the chain, as anyone may: of `sign`, or in one step.

        Raises `BadMessage` for what is no payment header.
        """
        try:
            auth, signature = authorization_of(header)
        except messages.BadMessage:
            version = x402.version_in(
                (x402.json_in(header, dict[str, Any]) or {}).get("x402Version")
            )
            signed = x402.read_payment(version or 2, header).signed
            auth, signature = signed.authorization, signed.signature
        return await self._call(abi.transfer_with_authorization(auth, signature, receive=receive))

    async def _call(self, data: bytes) -> Sent:
        return await self.stage.transact(self.address, to_hex(data), self.network)

    # --- at other services -----------------------------------------------------------

    def at(self, service: ServiceName) -> "Payer":
        """Return this payer at another service of the world: `await alice.at(other).ask()`."""
        there = self._at_services.get(service)
        if there is None:
            there = Payer(self.stage, self.name, self.wallet, self._spending, service)
            there._at_services, there._listing_order = self._at_services, self._listing_order
            self._at_services[service] = there
        there.skew_s = self.skew_s
        return there

    async def services(self) -> list[ListedService]:
        """Ask each service for agents; return the sellers of quotes, in random order."""
        names = self.stage.services
        answers = await asyncio.gather(*(self.at(name).send("GET", AGENTS) for name in names))
        listed = []
        for name, answer in zip(names, answers, strict=True):
            found: messages.AgentList | None = messages.decoded(
                answer.text.encode(), messages.AgentList
            )
            agents = found.agents if found is not None and answer.status == 200 else ()
            agent = next((each for each in agents if each.resource == QUOTE), None)
            if agent is not None:
                listed.append(
                    ListedService(
                        name=name,
                        price_base=int(agent.price),
                        reputation=agent.reputation,
                        pay_to=agent.pay_to,
                    )
                )
        self._listing_order.shuffle(listed)  # a rule that takes the first of equals prefers none
        return listed

    async def choose(self, rule: Choose) -> "Payer":
        """Return this payer at the service that a rule chooses: `await alice.choose(cheapest)`.

        Raises `PaymentFailed` if no service lists an agent, `ValueError` for an unknown name.
        """
        services = await self.services()
        if not services:
            raise PaymentFailed("no service lists an agent that sells quotes")
        name = rule(services)
        known = [service.name for service in services]
        if name not in known:
            wrong = unknown("service", name, known)
            raise ValueError(f"the rule {as_given(rule)} chose no listed service: {wrong}")
        return self.at(name)

    # --- as its policy says ----------------------------------------------------------

    async def buy(self, resource: str = QUOTE) -> Answer:
        """Request a quote, pay as the policy says, and return the last answer to a payment.

        Another `resource` is asked by POST; of goods sold `upto` the maximum counts for the budget.
        Raises `PaymentFailed` without a 402, and `SpendingCapExceeded` beyond the budget.
        """
        shopper = Shopper(self, self._spending, self._bought, resource)
        return (await shopper.order(shopper.ask)).last

    async def fetch(self, resource: str = QUOTE) -> Answer:
        """Get one quote as the policy says; return the last answer, whose status is 200 if served.

        Another `resource` is as for `buy`. The payer pays and shows the payment id, or spends a
        session. Without a 402, or after a final refusal, the result is that answer. Raises
        `SpendingCapExceeded` beyond the budget.
        """
        return await Shopper(self, self._spending, self._bought, resource).fetch()

    async def open_session(self, deposit: str, duration: int) -> Answer:
        """Pay a deposit as the policy says, and return the answer that names the session.

        Raises as `buy`.
        """
        return await Shopper(self, self._spending, self._bought).deposit(deposit, duration)


Ask = Callable[[], Awaitable[Answer]]


class _RetriesEnded(Exception):
    """The payer's deadline ends an order; the order keeps the last answer."""


@lru_cache
def _tokens(amount_base: int, decimals: int) -> Decimal:
    """Return an amount in tokens, the same object each time: a crowd pays one price."""
    return Decimal(to_decimal(amount_base, decimals))


class _Tries:
    """What policies of retries and of sessions may use, until `until_s`, and the last answer."""

    last: Answer | None

    def __init__(self, payer: Payer, spending: Spending, resource: str, until_s: float) -> None:
        self._payer, self._spending = payer, spending
        self._resource, self._until_s = resource, until_s

    @property
    def rng(self) -> Stream:
        """The payer's random stream for its policies."""
        if self._spending.rng is None:
            self._spending.rng = self._payer.stage.stream(f"retries of {self._payer.name}")
        return self._spending.rng

    @property
    def retry_after_s(self) -> float | None:
        """The seconds in the Retry-After of the last answer, or None."""
        header = None if self.last is None else self.last.header("Retry-After")
        return retry_after_s(header, self._payer.clock.now())

    def _require_time(self, seconds: float) -> None:
        """Raise `_RetriesEnded` if the deadline is before the end of a wait."""
        now_s = self._payer.clock.now()
        if now_s + seconds > self._until_s or (seconds == 0 and now_s >= self._until_s):
            raise _RetriesEnded

    async def wait(self, seconds: float) -> None:
        """Let time pass, unless that would pass the deadline."""
        self._require_time(seconds)
        await self._payer.clock.sleep(seconds)


class Order(_Tries):
    """One 402 to be paid, as the policy `retry` decides."""

    last: Answer

    def __init__(
        self,
        payer: Payer,
        spending: Spending,
        resource: str,
        until_s: float,
        required: Answer,
        ask: Ask,
    ) -> None:
        super().__init__(payer, spending, resource, until_s)
        self._ask, self._was_sent = ask, False
        self._header: str | None = None
        self._signed: Signed | None = None
        self.required = self.last = required

    @property
    def is_paid(self) -> bool:
        """Whether the last answer reports the payment as made."""
        return self._next is Next.REPEAT

    @property
    def is_final(self) -> bool:
        """Whether the last answer rules this authorization out for good.

        In one step no answer reports that; an expired authorization can never pay.
        """
        if self.in_one_step and self._signed is not None:
            return not self.is_paid and self._payer.now_s() >= self._signed.expires_s
        return self._next is Next.SIGN

    @property
    def in_one_step(self) -> bool:
        """Whether the request itself pays, as the policy says, or the 402 offers nothing else."""
        if self._spending.policy.steps == 1:
            return self.required.standard_offer is not None
        return self.required.is_one_step_only

    @property
    def _next(self) -> Next:
        return next_step(self.last.status, self.last.body)

    async def pay(self) -> None:
        """Send the authorization; the first time, sign it. Raises `PaymentFailed`."""
        if self._was_sent:
            self._require_time(0.0)
        self._was_sent = True
        if self._header is None:
            await self.sign_again()
        if self.in_one_step:
            self.last = await self._payer.ask(self._resource, header=self._header)
        else:
            self.last = await self._payer.pay(self.required, self._header)
        if self.is_paid:
            self.note_paid()

    async def sign_again(self) -> None:
        """Sign another authorization for the same 402, or the first one."""
        payer, network = self._payer, self._payer.network
        if self.in_one_step:  # the budget counts the offer that is signed
            offer = payer.offer(self.required)
            price_base, allowed_s = offer.amount_base, offer.accepted.max_timeout_seconds
        else:
            price_base = self.required.price_base
            allowed_s = self.required.requirements.get("maxTimeoutSeconds", AFTER_SIGNING_S)
        price = _tokens(price_base, network.decimals)
        expires_s = payer.now_s() + min(AFTER_SIGNING_S, allowed_s)
        self._signed = self._spending.spend(price, payer.clock.now() + payer.skew_s, expires_s)
        self._header = payer.sign(self.required, steps=1 if self.in_one_step else 2)

    async def ask_again(self) -> None:
        """Ask for a new 402; if none comes, the old 402 stays."""
        required = await self._ask()
        if required.status == 402:
            self.required, self._header = required, None

    async def newest_block(self) -> NewBlock:
        """Return the chain's newest block."""
        return await newest_block(self._payer.stage)

    def note_paid(self) -> None:
        """Count the newest authorization, if any, as paid."""
        if self._signed is not None:
            self._spending.note_paid(self._signed)


@dataclass(slots=True)
class Bought:
    """The purchases of a payer at a service, for all requests there."""

    payment_id: str | None = None
    session_id: str | None = None
    payments: int = 0
    """How many payments were made, deposits included."""


class Shopper(_Tries):
    """A request of a payer at a service, bought as the policy `sessions` decides.

    Requests of a payer may overlap, so each has a deadline, a last answer and a payment id.
    """

    last: Answer | None = None

    def __init__(
        self, payer: Payer, spending: Spending, bought: Bought, resource: str = QUOTE
    ) -> None:
        within_s = spending.policy.within_s
        until_s = math.inf if within_s is None else payer.clock.now() + within_s
        super().__init__(payer, spending, resource, until_s)
        self._bought, self._payment_id = bought, bought.payment_id
        self.payments = bought.payments
        """The number of payments before this request, and for this request."""

    @property
    def is_served(self) -> bool:
        """Whether the last request was served."""
        return self.last is not None and self.last.status == 200

    async def fetch(self) -> Answer:
        """Get one quote; return the last answer."""
        sessions = self._spending.policy.sessions
        with suppress(_RetriesEnded):
            await sessions.fetch(self)
        if self.last is None:
            raise RuntimeError(f"{described(sessions)} has sent no request")
        return self.last

    async def ask(self, **proof: str) -> Answer:
        """Request the resource, perhaps with a proof of payment."""
        return await self._payer.ask(self._resource, **proof)

    async def order(self, ask: Ask, required: Answer | None = None) -> Order:
        """Ask, unless there is a 402, and pay; raises `PaymentFailed` without one."""
        first = required or await ask()
        order = Order(self._payer, self._spending, self._resource, self._until_s, first, ask)
        with suppress(_RetriesEnded):
            await self._spending.policy.retry.pay(order)
        self.payments += order.is_paid
        self._bought.payments += order.is_paid
        return order

    async def deposit(self, deposit: str, duration: int) -> Answer:
        """Pay for a session, and return the answer with the session's id."""
        payer = self._payer
        order = await self.order(lambda: payer.ask_session(deposit, duration))
        payment_id = order.required.payment_id
        return await payer.ask_session(deposit, duration, payment_id=payment_id)

    async def show_payment(self) -> None:
        """Send the request with the newest payment id, if any."""
        if self._payment_id is not None:
            self.last = await self.ask(payment_id=self._payment_id)

    async def show_session(self) -> None:
        """Send the request with the newest session, if any."""
        if self._bought.session_id is not None:
            self.last = await self.ask(session_id=self._bought.session_id)

    async def buy(self) -> None:
        """Pay for the request, and send the payment id with it unless the refusal is final."""
        self.last = required = await self.ask()
        if required.status != 402:
            return
        order = await self.order(self.ask, required)
        self.last = order.last
        if not order.is_final:
            if not order.required.is_one_step_only:
                # interned, as in the service's cache: a crowd has many ids, and each is there once
                self._payment_id = self._bought.payment_id = intern(order.required.payment_id)
            if not order.in_one_step:
                await self.show_payment()
            if self.is_served:
                order.note_paid()

    async def open_session(self, deposit: str, duration: int) -> None:
        """Pay a deposit for a session."""
        self.last = opened = await self.deposit(deposit, duration)
        self._bought.session_id = opened.body.get("sessionId")
