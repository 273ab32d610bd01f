"""Defects of sessions: the deposit, the budget, expiry and refund."""

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from tests.mutants.changes import (
    Change,
    Wrapper,
    all_of,
    altered,
    decision,
    into,
    overriding,
    settlement_rule,
)
from tests.mutants.messages import Answer, Request, Serve, answer
from tests.mutants.middleware import answers, at, middleware, replies, requests
from tests.mutants.mutant import Kind
from tests.mutants.payments import (
    ALREADY_SETTLED,
    INVALID_SIGNATURE,
    free,
    let_in,
    opening,
    unlocked,
)
from tests.mutants.required import dearer
from x402sim import World
from x402sim.protocol.crypto import checksum, keccak256, sign
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import PresentedPayment, encode_header, present
from x402sim.protocol.money import to_base
from x402sim.protocol.routes import MARKET, PAY, QUOTE, SESSIONS
from x402sim.service.state import Service


class Budgets(dict[str, dict[str, Any]]):
    """Sessions of middleware's own, as their holders see them, by id."""

    def open(self, session_id: str, amount_base: int) -> dict[str, Any]:
        """Let a session be spent as if so much were left of it; return what is shown of it."""
        amount = str(amount_base)
        self[session_id] = {
            "sessionId": session_id,
            "deposited": amount,
            "released": "0",
            "remaining": amount,
            "status": "active",
        }
        return self[session_id]

    def debit(self, session_id: str, amount_base: int) -> bool:
        """Take an amount from a budget, or give it back if it is negative; False if it cannot."""
        shown = self[session_id]
        remaining = int(shown["remaining"]) - amount_base
        if remaining >= 0:
            released = int(shown["deposited"]) - remaining
            shown |= {"remaining": str(remaining), "released": str(released)}
        return remaining >= 0


Claimed = Callable[[Service, Budgets, Request, Answer], Awaitable[Answer]]
"""Changes the answer to a request for a session; may open budgets."""


def sessions(claimed: Claimed) -> Change:
    """Change what requests for sessions with a payment id are answered."""

    def change(world: World) -> World:
        budgets = Budgets()

        async def claim(service: Service, request: Request, serve: Serve) -> Answer:
            session_id = request.path.rpartition("/")[2]
            if session_id in budgets:
                return answer(200, budgets[session_id])
            reply = await serve(request)
            has_proof = request.method == "POST" and "x-payment-id" in request.headers
            return await claimed(service, budgets, request, reply) if has_proof else reply

        async def spend(service: Service, request: Request, serve: Serve) -> Answer:
            session_id = request.session_id
            price_base = service.env.quote_price_base
            if session_id not in budgets or not budgets.debit(session_id, price_base):
                return await serve(request)
            reply = await serve(free(request))
            if reply.status != 200:
                budgets.debit(session_id, -price_base)
            return reply

        shown = middleware(claim, "/api/sessions")
        return all_of(unlocked, middleware(spend, QUOTE), shown)(world)

    return change


def is_session(reply: Answer) -> bool:
    body: Any = reply.json
    return reply.status in (200, 201) and "sessionId" in body


session = Kind("session")
TOKEN = 10**6
"""Base units of one token."""


# --- the deposit ---------------------------------------------------------------------


def deposit(change: Callable[[int], int]) -> Change:
    """Ask for another deposit than maxSpend says; both in base units."""

    def issue(it: Any, resource: str, amount_base: int, *of: Any) -> Any:
        amount = change(amount_base) if resource == SESSIONS else amount_base
        return it.inner.issue(resource, amount, *of)

    return overriding("issuer", issue=issue)


def two_digits(request: Request) -> Request:
    """Return a request for a session with maxSpend cut to two digits after the point."""
    max_spend = request.field("maxSpend")
    if "." not in max_spend:
        return request
    return request.sending({**request.json, "maxSpend": max_spend[: max_spend.find(".") + 3]})


# --- budgets -------------------------------------------------------------------------


def sess(change: Callable[[str], str]) -> Callable[[Request], Request]:
    """Return a change of the session id in a request's headers."""

    def changed(request: Request) -> Request:
        session_id = request.headers.get("x-session-id")
        return request if session_id is None else request.having(x_session_id=change(session_id))

    return changed


def of_the_market(it: Any, resource: str, amount_base: int, *of: Any) -> Any:
    """Ask five times the price of a quote for the market."""
    return it.inner.issue(resource, amount_base * (5 if resource == MARKET else 1), *of)


def for_the_market(it: Any, session_id: str, amount_base: int, resource: str, now_ms: int) -> Any:
    """Debit five times the price of a quote for the market."""
    price_base = amount_base * (5 if resource == MARKET else 1)
    return it.inner.debit(session_id, price_base, resource, now_ms)


a_dearer_market = all_of(
    overriding("issuer", issue=of_the_market), overriding("sessions", debit=for_the_market)
)
"""A second path that costs more than the first."""


# --- the end -------------------------------------------------------------------------


def has_expired(service: Service, request: Request) -> bool:
    found = service.store.sessions.get(request.session_id)
    return found is not None and found.expires_ms <= service.clock.now_ms()


class Refunds(Wrapper):
    """A facilitator for which refunds can be signed again, with other nonces or amounts."""

    def _signed(
        self, payment: PresentedPayment, nonce: bytes, value: int | None = None
    ) -> PresentedPayment | None:
        """Return a refund with another nonce, and another amount; None if it is no refund."""
        auth, setup = payment.authorization, self.service.env
        if auth is None or auth.from_ != setup.wallet:
            return None
        other = replace(auth, nonce=nonce, value=auth.value if value is None else value)
        signature = sign(transfer_digest(other, setup.network.domain), setup.key)
        return present(encode_header(other, signature, setup.network))


# --- the defects ---

session("budget-through-a-float", "4.4/max-spend",
    "maxSpend is multiplied as a float and cut: 8.20 loses a base unit.",
    deposit(lambda amount: int(amount / TOKEN * TOKEN)))  # fmt: skip
session("cents-through-a-float", "4.4/max-spend",
    "maxSpend is brought to cents as a float and cut: 0.29 loses a cent.",
    deposit(lambda amount: int(amount / TOKEN * 100) * 10**4))  # fmt: skip
session("third-digit-is-dropped", "kit/4.4/max-spend", "A maxSpend of 1.009 is taken for 1.00.",
    requests(SESSIONS, two_digits))  # fmt: skip
session("deposit-of-one-token", "4.4/max-spend", "The deposit is 1.00, whatever maxSpend says.",
    deposit(lambda amount: TOKEN))  # fmt: skip
session("deposit-may-be-less", "2.1/amount",
    "The amount of a deposit is not compared: one base unit pays for any budget.",
    settlement_rule("2.1/amount", lambda case: case.issued.resource == SESSIONS
        or case.requirements.max_amount_required == case.issued.max_amount_required))  # fmt: skip
session("message-of-a-quote", "2.2/body",
    "The message of a deposit's 402 states the price of a quote.",
    answers(402, SESSIONS, lambda it: it.update(message="Payment of 10000 base units is required")))  # fmt: skip


@session.defect("no-deposit", "4.4/deposit-402", partial(replies, SESSIONS))
def without_deposit(_: Request, reply: Answer) -> Answer:
    """A session is given without a deposit."""
    return answer(201, {"sessionId": "session_" + "0" * 40}) if reply.status == 402 else reply


@session.defect("budget-by-the-repeated-body", "5/session-debit", sessions)
async def budget_of_the_body(_: Service, budgets: Budgets, asked: Request, reply: Answer) -> Answer:
    """The budget is the maxSpend of the repeated request, not what was deposited."""
    if is_session(reply):
        amount_base = to_base(asked.field("maxSpend"), 6)
        if amount_base > int(reply.json["deposited"]):
            budgets.open(reply.json["sessionId"], amount_base)
        else:
            budgets.pop(reply.json["sessionId"], None)  # it is the service's again
    return reply


@session.defect("budget-of-fifty", "3/deposit-makes-session", sessions)
async def fifty_tokens(_: Service, budgets: Budgets, __: Request, reply: Answer) -> Answer:
    """Every session has 50.00, whatever was paid."""
    if is_session(reply) and reply.json["sessionId"] not in budgets:
        budgets.open(reply.json["sessionId"], 50 * TOKEN)
    return reply


@session.defect("a-session-each-time", "3/deposit-makes-session", sessions)
async def one_more(_: Service, budgets: Budgets, __: Request, reply: Answer) -> Answer:
    """Every repetition of the paid request opens one more session from the same deposit."""
    if not is_session(reply):
        return reply
    session_id = f"{reply.json['sessionId']}_{len(budgets)}"
    return answer(reply.status, budgets.open(session_id, int(reply.json["deposited"])))


@session.defect("any-payment-funds-a-session", "3/deposit-makes-session", sessions)
async def any_payment(service: Service, budgets: Budgets, asked: Request, reply: Answer) -> Answer:
    """The payment of a quote opens a session with the budget the body asks for."""
    stored = service.store.payments.get(asked.headers["x-payment-id"])
    if reply.status != 402 or stored is None or stored.status != "settled":
        return reply
    amount = reply.json["paymentRequirements"]["maxAmountRequired"]
    session_id = f"session_{len(budgets)}_{stored.payment_id}"
    return answer(201, budgets.open(session_id, int(amount)))


session("ids-are-called-sess", "2.6/id-prefix", "Session ids begin with sess_.",
    requests(QUOTE, sess(lambda it: it.replace("sess_", "session_", 1))),
    answers(None, SESSIONS, lambda it: it.update(
        {k: v.replace("session_", "sess_", 1) for k, v in it.items() if k == "sessionId"})))  # fmt: skip
session("remaining-is-the-deposit", "2.6/remaining",
    "The remaining budget that is shown never shrinks.",
    answers(None, "/api/sessions", lambda it:
        it.update(remaining=it["deposited"]) if "remaining" in it else None))  # fmt: skip


@session.defect(
    "last-unit-is-refused",
    "5/session-condition",
    into("sessions.debit"),
    broad="no session can be used up, which many checks do",
)
def last_unit_refused(it: Any, session_id: str, amount_base: int, *of: Any) -> Any:
    """A session needs more budget than the request costs."""
    found = it.inner.get(session_id)
    if found is None or found.remaining <= amount_base:
        return None
    return it.inner.debit(session_id, amount_base, *of)


@session.defect("budget-in-floats", "5/session-condition", into("sessions.debit"))
def in_floats(it: Any, session_id: str, amount_base: int, *of: Any) -> Any:
    """The requests that a budget is enough for are counted in floats."""
    found = it.inner.get(session_id)
    enough_for = int(found.deposited / 1e6 / (amount_base / 1e6)) if found else 0
    if found is None or enough_for <= found.released // amount_base:
        return None
    return it.inner.debit(session_id, amount_base, *of)


@session.defect("budget-without-end", "5/session-debit", opening(QUOTE))
async def without_end(service: Service, request: Request, serve: Serve) -> Answer:
    """A session is served however little is left of its budget."""
    reply = await serve(request)
    found = service.store.sessions.get(request.session_id)
    is_spent = reply.status == 402 and found is not None and found.status == "active"
    return await serve(free(request)) if is_spent else reply


@session.defect("never-debited", "5/session-debit", into("sessions.debit"))
def never_debits(it: Any, session_id: str, amount_base: int, _: str, now_ms: int) -> Any:
    """A served request does not raise released."""
    if not it.inner.has_budget(session_id, amount_base, now_ms):
        return None
    return it.inner.get(session_id).released


session("debited-twice", "5/session-condition",
    "A served request is debited twice.",
    overriding("sessions",
        debit=lambda it, *of: None if it.inner.debit(*of) is None else it.inner.debit(*of)),
    broad="every session is used up after half of its requests")  # fmt: skip


def debited_twice(when: Callable[[dict[str, Any]], bool]) -> Change:
    """Debit a session once more for some orders."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        reply, order = await serve(request), request.json
        if reply.status == 200 and request.session_id and isinstance(order, dict) and when(order):
            price_base, now_ms = service.env.quote_price_base, service.clock.now_ms()
            service.store.sessions.debit(request.session_id, price_base, QUOTE, now_ms)
        return reply

    return middleware(handler, QUOTE)


session("large-orders-are-debited-twice", "5/session-debit",
    "A session is debited twice for an order of more than 100,000 dollars.",
    debited_twice(lambda order: order.get("sizeUsd", 0) > 100_000))  # fmt: skip
session("leverage-of-twenty-is-debited-twice", "5/session-debit",
    "A session is debited twice for an order with a leverage of 20 and more.",
    debited_twice(lambda order: order.get("leverage", 0) >= 20))  # fmt: skip
session("short-is-debited-twice", "5/session-debit",
    'A session is debited twice for an order of the side "short".',
    debited_twice(lambda order: order.get("side") == "short"))  # fmt: skip


@session.defect("small-orders-are-not-debited", "5/session-debit", opening(QUOTE))
async def small_orders(service: Service, request: Request, serve: Serve) -> Answer:
    """A session is not debited for an order of less than 10 dollars."""
    order, session_id = request.json, request.session_id
    found = service.store.sessions.get(session_id)
    is_small = isinstance(order, dict) and order.get("sizeUsd", 10) in range(1, 10)
    is_open = found is not None and found.status == "active" and found.remaining > 0
    return await serve(free(request) if is_small and is_open else request)


@session.defect("another-path-is-not-debited", "5/session-debit", into("sessions.debit"))
def market_is_free(it: Any, session_id: str, amount_base: int, resource: str, now_ms: int) -> Any:
    """A session is not debited for the second path."""
    if resource != MARKET:
        return it.inner.debit(session_id, amount_base, resource, now_ms)
    if not it.inner.has_budget(session_id, amount_base, now_ms):
        return None
    return it.inner.get(session_id).released


@session.defect("what-cannot-be-paid-is-debited", "5/session-debit")
def debits_what_is_there(world: World) -> World:
    """A request that a session cannot pay for costs it as much as a quote."""

    def debit(it: Any, session_id: str, amount_base: int, resource: str, now_ms: int) -> Any:
        released = it.inner.debit(session_id, amount_base, resource, now_ms)
        if released is None and resource == MARKET:
            it.inner.inner.debit(session_id, amount_base, QUOTE, now_ms)
        return released

    return overriding("sessions", debit=debit)(a_dearer_market(world))


@session.defect("one-end-for-a-payer", "3/expiry-refund", into("sessions"))
class OneEndForAPayer(Wrapper):
    """When one session of a payer is over, none of that payer is served any more."""

    def debit(self, session_id: str, *of: Any) -> Any:
        payer, now_ms = self.inner.get(session_id).payer, self.service.clock.now_ms()
        sql = "SELECT 1 FROM sessions JOIN payments USING (payment_id) WHERE from_address = ? AND expires_ms < ?"
        is_over = self.service.store.execute(sql, payer, now_ms).fetchone() is not None
        return None if is_over else self.inner.debit(session_id, *of)


@session.defect("one-budget-a-payer", "5/session-debit", into("sessions"))
class OneBudgetAPayer(Wrapper):
    """Of the sessions of one payer, the one that came into use first is debited for all."""

    first: dict[str, str]

    def debit(self, session_id: str, *of: Any) -> Any:
        first = self.__dict__.setdefault("first", {})
        found = self.inner.get(session_id)
        return self.inner.debit(first.setdefault(found.payer, session_id), *of)


@session.defect("refused-deposit-is-paid-back", "3/expiry-refund", at(PAY))
async def paid_back(service: Service, request: Request, serve: Serve) -> Answer:
    """A deposit that was refused for its signature is paid back, though it was never paid."""
    reply = await serve(request)
    terms = service.issuer.read(request.field("paymentId"))
    asked = request.authorization
    if reply.error == INVALID_SIGNATURE and terms and asked and terms.resource == SESSIONS:
        setup, now_s = service.env, service.clock.now_s()
        auth = replace(
            asked,
            from_=setup.wallet,
            to=asked.from_,
            valid_after=now_s - 60,
            valid_before=now_s + 300,
        )
        signature = sign(transfer_digest(auth, setup.network.domain), setup.key)
        wanted = replace(
            service.issuer.requirements(SESSIONS, auth.value), pay_to=checksum(asked.from_)
        )
        payment = present(encode_header(auth, signature, setup.network))
        await service.facilitator.settle(payment, wanted)
    return reply


session("long-sessions-cost-more", "4.4/max-spend",
    "The deposit of a session of more than an hour is twice its budget.",
    dearer(SESSIONS, lambda asked: asked.get("duration", 0) > 3600))  # fmt: skip
session("deposit-in-32-bits", "4.4/deposit-flow",
    "A deposit of more than 2^32 base units is asked for, and cannot be settled.",
    requests(PAY, lambda request: request.sending(None) if is_large(request) else request))  # fmt: skip


def is_large(request: Request) -> bool:
    """Tell whether a settlement is of more base units than 32 bits hold."""
    auth = request.authorization
    return auth is not None and 2**32 < auth.value < 2**63


@session.defect("debited-before-the-body-is-read", "5/session-debit", at(QUOTE))
async def debited_at_once(service: Service, request: Request, serve: Serve) -> Answer:
    """A session is debited for a request whose body turns out to be invalid."""
    reply = await serve(request)
    session_id = request.headers.get("x-session-id")
    if reply.status == 400 and session_id is not None:
        price_base = service.env.quote_price_base
        service.store.sessions.debit(session_id, price_base, QUOTE, service.clock.now_ms())
    return reply


session("served-after-expiry", "3/expiry-refund",
    "A session is spent on after its time has passed.", let_in(QUOTE, has_expired))  # fmt: skip
session("expires-at-once", "3/expiry-refund",
    "The duration is taken for milliseconds, so a session ends before it is spent.",
    decision(duration_unit_s=0.001),
    broad="no session lives long enough for the checks of sessions")  # fmt: skip


@session.defect("comes-back-to-life", "3/refund-once", sessions)
async def back_to_life(_: Service, budgets: Budgets, __: Request, reply: Answer) -> Answer:
    """Repeating the paid request renews an expired session, although it was refunded."""
    if is_session(reply) and reply.json["status"] != "active":
        budgets.open(reply.json["sessionId"], int(reply.json["remaining"]))
    return reply


session("never-expires", "3/expiry-refund", "The duration is taken a thousand times too long.",
    decision(duration_unit_s=1000))  # fmt: skip
session("never-refunded", "3/expiry-refund",
    "An expired session's balance stays with the merchant.",
    overriding("sessions", refunds_due=lambda it, *of: []))  # fmt: skip
session("whole-deposit-refunded", "3/expiry-refund",
    "What was spent is refunded too.",
    overriding("sessions", refunds_due=lambda it, *of: [
        altered(due, amount=it.inner.get(due.session_id).deposited)
        for due in it.inner.refunds_due(*of)]))  # fmt: skip


@session.defect("one-refund-for-each-payer", "3/expiry-refund", into("sessions.refunds_due", dict))
def owes_each_payer_once(kept: dict[str, str], it: Any, *of: Any) -> list[Any]:
    """Refunds are kept by the payer's address: of two sessions of a payer, one is refunded."""
    return [
        each
        for each in it.inner.refunds_due(*of)
        if kept.setdefault(each.to_address, each.session_id) == each.session_id
    ]


@session.defect("refund-given-up", "3/refund-once", into("sessions.refunds_due", Counter))
def owes_until_it_has_failed(attempts: Counter[str], it: Any, *of: Any) -> list[Any]:
    """A refund that the facilitator has not made in five attempts is given up."""
    due = it.inner.refunds_due(*of)
    attempts.update(each.session_id for each in due)
    return [each for each in due if attempts[each.session_id] <= 5]


@session.defect("refunded-twice", "3/refund-once", into("facilitator"))
class RefundsTwice(Refunds):
    """A refund is sent twice, under two nonces, to be sure."""

    async def settle(self, payment: PresentedPayment, requirements: Any) -> Any:
        outcome = await self.inner.settle(payment, requirements)
        again = self._signed(payment, keccak256(payment.text.encode()))
        if again is not None:
            await self.inner.settle(again, requirements)
        return outcome


session("quotes-of-sessions-have-no-venue", "4.2/quote",
    "A quote that a session pays for has no bestVenue.",
    replies(QUOTE, lambda request, it: answer(200, {"quote": {**it.json["quote"], "bestVenue": None}})
        if it.status == 200 and "x-session-id" in request.headers else it))  # fmt: skip


@session.defect("second-deposit-gets-a-receipt", "7/payment-already-settled", at(PAY))
async def second_deposit(service: Service, request: Request, serve: Serve) -> Answer:
    """A second payment for a paid deposit is answered with a receipt, and nothing is paid."""
    reply, payment_id = await serve(request), request.field("paymentId")
    stored = service.store.payments.get(payment_id)
    if reply.error != ALREADY_SETTLED or stored is None or stored.resource_url != SESSIONS:
        return reply
    told = {"success": True, "paymentId": payment_id, "txHash": stored.tx_hash}
    return answer(200, {**told, "timestamp": stored.timestamp})
