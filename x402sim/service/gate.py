"""The payment gate: whether a request carries a valid proof of payment (section 5).

The policy `serve` decides which proofs are served; by default, what is settled.

`find_pass` looks for the proof and changes nothing; `spend` debits the session, if the proof is a
session id, and settles the payment, if it is an authorization. Between the two the endpoint
validates the body and prepares its answer, so that a request that is not served costs nothing.
Clauses: 5/cache-first, 5/stored-records, 5/resource-binding, 5/session-debit.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from x402sim import events
from x402sim.http.web import Connection
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import Refusal, SettlementRefused, Unpaid
from x402sim.service import attempts, confirmations, one_step, payments
from x402sim.service.one_step import OneStep
from x402sim.service.state import Service
from x402sim.service.store.answers import KeptAnswer

log = logging.getLogger("x402sim")


_PROOFS = frozenset({"x-payment-id", "x-session-id", *one_step.HEADERS.values()})
"""The headers that hold a proof, in lower case."""


class Pass(msgspec.Struct, frozen=True):
    """A proof of payment for one resource.

    Only one with a `session_id` is debited, and one that is `paid` in one step is settled.
    """

    resource: str
    amount_base: int
    session_id: str | None = None
    payment_id: str | None = None
    paid: OneStep | None = None


def find_pass(
    service: Service, headers: Mapping[str, str], resource: str, amount_base: int
) -> Pass:
    """Return the pass that the request's headers give; raises `Unpaid` without one (1/unpaid-402).

    X-Payment-Id has precedence over X-Session-Id (decision 5/precedence), and both over an
    authorization, which moves money: `one_step.find` looks for it last, and raises `Unpaid` if
    there is none, and `Refused` 400 for one that cannot be read. Headers have names in lower case.
    """
    if _PROOFS.isdisjoint(headers):
        raise Unpaid
    payment_id, session_id = headers.get("x-payment-id"), headers.get("x-session-id")

    def by_payment() -> Pass | None:
        if payment_id is None:
            return None
        if is_entitled(service, payment_id, resource):
            return Pass(resource, amount_base, payment_id=payment_id)
        answered = service.store.payments.answer_to(payment_id)
        if answered is None or not is_entitled(service, answered, resource):
            return None
        return Pass(resource, amount_base, payment_id=answered)

    def by_session() -> Pass | None:
        if session_id is None:
            return None
        proof = SessionProof(service, session_id, amount_base)
        is_served = service.settings.policy.serve.serves(proof)
        return Pass(resource, amount_base, session_id) if is_served else None

    if service.settings.decisions.payment_id_first:
        known = by_payment() or by_session()
    else:
        known = by_session() or by_payment()
    if known is not None:
        return known
    paid = one_step.find(service, headers, resource, amount_base)
    return Pass(resource, amount_base, paid=paid)


def is_entitled(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a payment id is served, for exactly this resource (5/resource-binding)."""
    return service.settings.policy.serve.serves(PaymentProof(service, payment_id, resource))


class PaymentProof(msgspec.Struct, frozen=True):
    """A payment id, shown for a resource."""

    service: Service
    payment_id: str
    resource: str

    def is_settled(self) -> bool:
        """Check the entitlement: the cache (5/cache-first), then the records (5/stored-records)."""
        service, shown = self.service, (self.payment_id, self.resource)
        is_cached = service.entitlements.grants(*shown, service.clock.now_ms())
        return is_cached or service.store.payments.grants(*shown)

    def is_claimed(self) -> bool:
        """Tell whether a header that can pay was presented, and may still be settled."""
        if self.service.presented.get(self.payment_id) == self.resource:
            return True
        return any(
            stored.can_pay
            and stored.record.status == "pending"
            and stored.record.resource_url == self.resource
            for stored in self.service.store.payments.attempts(self.payment_id)
        )

    @property
    def confirmations(self) -> int | None:
        """The blocks on top of its transfer (see `service.confirmations`)."""
        return _confirmations(self.service, self.payment_id)

    def draw(self, name: str) -> float:
        """Return a number in [0, 1) of this payment."""
        return self.service.draw(name, self.payment_id)


class SessionProof(msgspec.Struct, frozen=True):
    """A session id, shown for a request of this amount."""

    service: Service
    session_id: str
    amount_base: int

    def is_settled(self) -> bool:
        """Tell whether the session can pay (5/session-condition)."""
        sessions, now_ms = self.service.store.sessions, self.service.clock.now_ms()
        return sessions.can_pay(self.session_id, self.amount_base, now_ms)

    def is_claimed(self) -> bool:
        """Always False: a session opens only when its deposit is settled."""
        return False

    @property
    def confirmations(self) -> int | None:
        """The blocks on top of the transfer of its deposit."""
        session = self.service.store.sessions.get(self.session_id)
        return _confirmations(self.service, session.payment_id if session else "")

    def draw(self, name: str) -> float:
        """Return a number in [0, 1) of this session."""
        return self.service.draw(name, self.session_id)


def _confirmations(service: Service, payment_id: str) -> int | None:
    if not confirmations.are_counted(service):
        raise TypeError(
            "a policy that reads proof.confirmations says so: counts_confirmations = True"
        )
    return service.confirmations.get(payment_id)


class Answered(msgspec.Struct, frozen=True):
    """What the answer to a payment in one step says beside the content, and what follows it."""

    headers: Mapping[str, str]
    afterwards: BackgroundTask | None = None
    keep: Callable[[Response], None] | None = None

    def by(self, content: Response) -> Response:
        """Return the content with it."""
        content.headers.update(self.headers)
        content.background = self.afterwards
        if self.keep is not None:
            self.keep(content)
        return content


async def prepay(service: Service, granted: Pass) -> Mapping[str, str]:
    """Do what the payment flow does before the endpoint works: verify a payment, or settle it.

    Returns what an endpoint that fails then must tell: that the payment is settled. It stays good
    for one answer (decision 5/payment-flow), which names its payment id: an error does not, as who
    reads the chain can cause one. Raises `Unpaid`.
    """
    if granted.paid is None:
        return {}
    is_upfront = service.settings.payment_flow == "upfront"
    await _settle(service, granted, granted.paid, only_accepts=not is_upfront)
    return one_step.receipt(service, granted.paid) if is_upfront else {}


async def spend(service: Service, granted: Pass, connection: Connection) -> Answered | None:
    """Debit the session of a pass (5/session-debit), or settle its payment.

    A payment that is served is marked as such, if the reputation counts that. Nothing is spent for
    a client that has hung up; the answer must follow without a turn of the event loop. Raises
    `ClientDisconnect`, and `Unpaid` if the session cannot pay any more, or if the payment is not
    settled.
    """
    if granted.payment_id is not None:
        if service.settings.reputation.counts_served:
            service.store.served.mark(granted.payment_id, granted.resource)
        return None
    if granted.paid is not None:
        await _settle(service, granted, granted.paid)
    if connection.is_closed():
        raise ClientDisconnect
    if granted.paid is not None:
        return _answer_once(service, granted, granted.paid, connection)
    if granted.session_id is not None:
        _debit(service, granted, granted.session_id)
    return None


def _debit(service: Service, granted: Pass, session_id: str) -> None:
    """Debit a session (5/session-debit); raises `Unpaid` if it cannot pay any more."""
    released = service.store.sessions.debit(
        session_id, granted.amount_base, granted.resource, service.clock.now_ms()
    )
    if released is None:
        raise Unpaid
    service.record(
        events.SessionDebited(
            session_id=session_id,
            amount_base=granted.amount_base,
            released_base=released,
        )
    )


async def _settle(
    service: Service, granted: Pass, paid: OneStep, *, only_accepts: bool = False
) -> None:
    """Settle a payment in one step as POST /api/pay does, unless it is settled already.

    If it `only_accepts`, it verifies and claims it. Raises `Unpaid` if it does not give access
    then.
    """
    payment_id, refused = paid.settlement.payment_id, None
    try:
        if not is_entitled(service, payment_id, granted.resource):
            one_step.require_time(service, paid)
            if only_accepts or _serves_first(service):
                await payments.accept(service, paid.settlement, paid.offered_id)
                return
            is_due = service.settings.payment_flow is None
            await payments.pay(
                service, paid.settlement, offered_id=paid.offered_id, verifies=is_due
            )
    except SettlementRefused as why:  # it may be settled all the same, by another request
        payments.record_refusal(service, payment_id, why)
        refused = why
    if confirmations.are_counted(service):
        await confirmations.count(service, payment_id)
        if refused is not None and refused.refusal is Refusal.ALREADY_SETTLED:
            refused = None  # it is served later
    if not is_entitled(service, payment_id, granted.resource):
        unserved = SettlementRefused(Refusal.PENDING, "it is paid, and is not served yet")
        raise one_step.refused(service, paid, refused or unserved)


def _serves_first(service: Service) -> bool:
    """Tell whether a payment in one step is settled only after it was served."""
    return getattr(service.settings.policy.serve, "before_settlement", False)


async def _settle_afterwards(service: Service, paid: OneStep) -> None:
    """Settle a payment that was served before; nobody is told if that fails."""
    try:
        await payments.pay(service, paid.settlement, offered_id=paid.offered_id)
    except SettlementRefused as why:
        payments.record_refusal(service, paid.settlement.payment_id, why)


def _answer_once(
    service: Service, granted: Pass, paid: OneStep, connection: Connection
) -> Answered:
    """Take the one answer that a payment in one step buys (decision 5/authorization-once).

    What the chain has seen, anybody can send again, so it is served once: once means that the
    answer was written to a client that was still there. Raises `Unpaid` if it was served before.
    """
    payment_id, served = paid.settlement.payment_id, service.store.served
    told = one_step.receipt(service, paid)
    if not attempts.reserves(service):
        later = (
            BackgroundTask(_settle_afterwards, service, paid) if _serves_first(service) else None
        )
        return Answered(told, later)
    if payment_id in service.answering or not served.begin(payment_id):
        if not service.settings.decisions.authorization_once:
            return Answered(told)
        is_kept = paid.named is not None and service.store.answers.get(paid.named[0]) is not None
        if served.is_marked(payment_id) and not is_kept:  # who sends it again gets what is kept
            again = SettlementRefused(Refusal.ALREADY_SETTLED, "this authorization has been served")
        else:
            again = SettlementRefused(Refusal.PENDING, "another request with it is being answered")
        raise one_step.refused(service, paid, again)
    service.answering.add(payment_id)

    async def confirm() -> None:
        is_served = connection.is_answered()
        if not is_served:  # free in this process, also if that cannot be stored
            service.answering.discard(payment_id)
        try:
            served.end(payment_id, granted.resource, is_served=is_served)
            service.answering.discard(payment_id)
        except sqlite3.OperationalError as failure:  # if served, it stays in `answering`
            log.warning("%s: whether it was served is not stored: %s", granted.resource, failure)
        if _serves_first(service):
            await _settle_afterwards(service, paid)

    keep = partial(_keep, service, granted, paid) if paid.named else None
    return Answered({**told, "X-Payment-Id": payment_id}, BackgroundTask(confirm), keep)


def _keep(service: Service, granted: Pass, paid: OneStep, content: Response) -> None:
    """Keep an answer for the payer who named the payment (decision 5/payment-identifier)."""
    assert paid.named is not None
    identifier, digest = paid.named
    answer = KeptAnswer(digest, content.raw_headers, bytes(content.body))
    sold = paid.settlement.payment_id, granted.resource
    now_s = service.clock.now_s()
    until_s = max(min(paid.valid_before, MAX_STORED), now_s + service.settings.max_timeout_s)
    try:
        service.store.answers.keep(identifier, answer, sold, until_s, now_s)
    except sqlite3.OperationalError as failure:  # it can be served, and not asked for again
        log.warning("%s: the answer is not kept: %s", granted.resource, failure)
