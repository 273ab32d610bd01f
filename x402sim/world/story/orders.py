"""Orders and requests of a payer in a story, carried out as its policy decides.

The policies are in `x402sim.payer.policies`. A payer has a `Shopper` at each service, and one
`Spending` for all of them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import takewhile

from x402sim.payer.core import Next, SpendingCapExceeded, next_step
from x402sim.payer.policies import Bill, PayerPolicy
from x402sim.payer.wallet import AFTER_SIGNING_S
from x402sim.protocol.money import to_decimal
from x402sim.text.printable import described
from x402sim.world.story.answers import Answer
from x402sim.world.story.blocks import NewBlock, newest_block
from x402sim.world.story.payer_client import PayerClient

Ask = Callable[[], Awaitable[Answer]]


@dataclass(slots=True, eq=False)
class Signed:
    """An authorization that was signed: when, for how many tokens, and when it expires."""

    at_s: float
    price: Decimal
    expires_s: float


@dataclass(slots=True)
class Spending:
    """What one payer has signed for, at all services, oldest first."""

    policy: PayerPolicy
    signed: list[Signed] = field(default_factory=list)
    total: Decimal = Decimal()
    paid: Decimal = Decimal()
    """What an answer said is paid."""
    unsure: list[Signed] = field(default_factory=list)
    """What no answer said is paid, and had not expired at the last signature."""

    def spend(self, price: Decimal, now_s: float, expires_s: float) -> Signed:
        """Count a price as signed for; raises `SpendingCapExceeded` if the budget forbids it."""

        def since(seconds: float) -> Decimal:
            newest = takewhile(lambda each: each.at_s > now_s - seconds, reversed(self.signed))
            return sum((each.price for each in newest), Decimal())

        self.unsure = [each for each in self.unsure if each.expires_s > now_s]
        unsure = sum((each.price for each in self.unsure), Decimal())
        budget = self.policy.budget
        bill = Bill(
            price=price, signed=self.total, signed_since=since, paid=self.paid, unsure=unsure
        )
        if not budget.allows(bill):
            raise SpendingCapExceeded(
                f"the 402 asks for {price}, {self.total} is signed for ({self.paid} of it paid, "
                f"{unsure} without an answer), and the budget is {described(budget)}; nothing was "
                "signed"
            )
        new = Signed(now_s, price, expires_s)
        self.signed.append(new)
        self.unsure.append(new)
        self.total += price
        return new

    def note_paid(self, signed: Signed) -> None:
        """Count as paid what an answer said is paid."""
        if signed in self.unsure:
            self.unsure.remove(signed)
            self.paid += signed.price


class Order:
    """One 402 that is to be paid, in the hands of the policy `retry`."""

    def __init__(self, payer: PayerClient, spending: Spending, required: Answer, ask: Ask) -> None:
        self._payer, self._spending, self._ask = payer, spending, ask
        self._header: str | None = None
        self._signed: Signed | None = None
        self.required, self.last = required, required

    @property
    def is_paid(self) -> bool:
        """Whether the last answer says that the payment is made."""
        return self._next is Next.REPEAT

    @property
    def is_final(self) -> bool:
        """Whether the last answer says that this authorization never pays.

        In one step no answer says so, and it never pays once it has expired.
        """
        if self.in_one_step and self._signed is not None:
            return not self.is_paid and self._payer.now_s() >= self._signed.expires_s
        return self._next is Next.SIGN

    @property
    def in_one_step(self) -> bool:
        """Whether the request itself pays, as the policy says and the 402 offers."""
        return self._spending.policy.steps == 1 and self.required.standard_offer is not None

    @property
    def _next(self) -> Next:
        return next_step(self.last.status, self.last.body)

    async def pay(self) -> None:
        """Send the authorization; the first time, sign it. Raises `PaymentFailed`."""
        if self._header is None:
            await self.sign_again()
        if self.in_one_step:
            self.last = await self._payer.ask(header=self._header)
        else:
            self.last = await self._payer.pay(self.required, self._header)
        if self.is_paid:
            self.note_paid()

    async def sign_again(self) -> None:
        """Sign another authorization for the same 402, or the first one."""
        payer, network = self._payer, self._payer.network
        price = Decimal(to_decimal(self.required.price_base, network.decimals))
        allowed_s = self.required.requirements.get("maxTimeoutSeconds", AFTER_SIGNING_S)
        expires_s = payer.now_s() + min(AFTER_SIGNING_S, allowed_s)
        self._signed = self._spending.spend(price, payer.clock.now() + payer.skew_s, expires_s)
        self._header = payer.sign(self.required, steps=1 if self.in_one_step else 2)

    async def ask_again(self) -> None:
        """Ask for a new 402; without one, the old one stays."""
        required = await self._ask()
        if required.status == 402:
            self.required, self._header = required, None

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self._payer.clock.sleep(seconds)

    async def newest_block(self) -> NewBlock:
        """Return the chain's newest block."""
        return await newest_block(self._payer.stage)

    def note_paid(self) -> None:
        """Count the newest authorization as paid, if there is one."""
        if self._signed is not None:
            self._spending.note_paid(self._signed)


class Shopper:
    """A payer at one service, in the hands of the policy `sessions`."""

    def __init__(self, payer: PayerClient, spending: Spending) -> None:
        self._payer, self._spending = payer, spending
        self._payment_id: str | None = None
        self._session_id: str | None = None
        self._last: Answer | None = None
        """The last answer to the request that is being made."""
        self.payments = 0
        """How many payments were made, deposits included."""

    @property
    def is_served(self) -> bool:
        """Whether the last request was served."""
        return self._last is not None and self._last.status == 200

    async def fetch(self) -> Answer:
        """Get one quote; return the last answer."""
        sessions = self._spending.policy.sessions
        try:
            await sessions.fetch(self)
            if self._last is None:
                raise RuntimeError(f"{described(sessions)} has sent no request")
            return self._last
        finally:
            self._last = None  # a crowd keeps no answers

    async def order(self, ask: Ask, required: Answer | None = None) -> Order:
        """Ask, unless there is a 402, and pay; raises `PaymentFailed` without one."""
        order = Order(self._payer, self._spending, required or await ask(), ask)
        await self._spending.policy.retry.pay(order)
        self.payments += order.is_paid
        return order

    async def deposit(self, deposit: str, duration: int) -> Answer:
        """Pay for a session, and return the answer that names it."""
        payer = self._payer
        order = await self.order(lambda: payer.ask_session(deposit, duration))
        payment_id = order.required.payment_id
        return await payer.ask_session(deposit, duration, payment_id=payment_id)

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self._payer.clock.sleep(seconds)

    async def show_payment(self) -> None:
        """Request it with the newest payment id, if there is one."""
        if self._payment_id is not None:
            self._last = await self._payer.ask(payment_id=self._payment_id)

    async def show_session(self) -> None:
        """Request it with the newest session, if there is one."""
        if self._session_id is not None:
            self._last = await self._payer.ask(session_id=self._session_id)

    async def buy(self) -> None:
        """Pay for the request, and send it with that payment id unless the refusal is final."""
        self._last = required = await self._payer.ask()
        if required.status != 402:
            return
        order = await self.order(self._payer.ask, required)
        self._last = order.last
        if not order.is_final:
            self._payment_id = order.required.payment_id
            if not order.in_one_step:
                await self.show_payment()
            if self.is_served:
                order.note_paid()

    async def open_session(self, deposit: str, duration: int) -> None:
        """Pay a deposit for a session."""
        opened = await self.deposit(deposit, duration)
        self._last = opened
        self._session_id = opened.body.get("sessionId")
