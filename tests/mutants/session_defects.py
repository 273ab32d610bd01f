"""What the defects of sessions do, each by itself: deposits, budgets, and the end."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.mutants.budgets import Budgets, is_session
from tests.mutants.change import Change
from tests.mutants.middleware import (
    Answer,
    Request,
    Serve,
    answer,
    free,
)
from tests.mutants.wrapper import Wrapper, altered, collaborator
from x402sim.protocol.crypto import checksum, keccak256, sign
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import PresentedPayment, encode_header, present
from x402sim.protocol.money import to_base
from x402sim.service.issue import QUOTE, SESSIONS
from x402sim.service.state import Service

TOKEN = 10**6
"""Base units of one token."""


# --- the deposit ---------------------------------------------------------------------


def deposit(change: Callable[[int], int]) -> Change:
    """Ask for another deposit than maxSpend says; both in base units."""

    class OtherDeposit(Wrapper):
        """An issuer that computes deposits in this way."""

        def issue(self, resource: str, amount_base: int, *of: Any) -> Any:
            amount = change(amount_base) if resource == SESSIONS else amount_base
            return self.inner.issue(resource, amount, *of)

    return collaborator(issuer=OtherDeposit)


def two_digits(request: Request) -> Request:
    """Return a request for a session with maxSpend cut to two digits after the point."""
    max_spend = request.field("maxSpend")
    if "." not in max_spend:
        return request
    return request.sending({**request.json, "maxSpend": max_spend[: max_spend.find(".") + 3]})


def without_deposit(_: Request, reply: Answer) -> Answer:
    """Answer a request for a session with one, instead of a 402."""
    return answer(201, {"sessionId": "session_" + "0" * 40}) if reply.status == 402 else reply


# --- budgets -------------------------------------------------------------------------


async def budget_of_the_body(_: Service, budgets: Budgets, asked: Request, reply: Answer) -> Answer:
    """Let a session have the maxSpend of the repeated request."""
    if is_session(reply):
        amount_base = to_base(asked.field("maxSpend"), 6)
        if amount_base > int(reply.json["deposited"]):
            budgets.open(reply.json["sessionId"], amount_base)
        else:
            budgets.close(reply.json["sessionId"])
    return reply


async def one_more(_: Service, budgets: Budgets, __: Request, reply: Answer) -> Answer:
    """Open one more session from the same deposit."""
    return another(budgets, reply) if is_session(reply) else reply


def another(budgets: Budgets, reply: Answer) -> Answer:
    """Return a new session with the budget that the one in an answer had at first."""
    session_id = f"{reply.json['sessionId']}_{len(budgets)}"
    return answer(reply.status, budgets.open(session_id, int(reply.json["deposited"])))


async def any_payment(service: Service, budgets: Budgets, asked: Request, reply: Answer) -> Answer:
    """Open a session with the budget of the 402, if its payment id has paid for anything."""
    stored = service.store.payments.get(asked.headers["x-payment-id"])
    if reply.status != 402 or stored is None or stored.record.status != "settled":
        return reply
    amount = reply.json["paymentRequirements"]["maxAmountRequired"]
    session_id = f"session_{len(budgets)}_{stored.record.payment_id}"
    return answer(201, budgets.open(session_id, int(amount)))


async def back_to_life(_: Service, budgets: Budgets, __: Request, reply: Answer) -> Answer:
    """Let an expired session be spent again."""
    if is_session(reply) and reply.json["status"] != "active":
        budgets.open(reply.json["sessionId"], int(reply.json["remaining"]))
    return reply


def sess(change: Callable[[str], str]) -> Callable[[Request], Request]:
    """Return a change of the session id in a request's headers."""

    def changed(request: Request) -> Request:
        session_id = request.headers.get("x-session-id")
        return request if session_id is None else request.having(x_session_id=change(session_id))

    return changed


async def without_end(service: Service, request: Request, serve: Serve) -> Answer:
    """Serve a session once more although its budget is spent."""
    reply = await serve(request)
    found = service.store.sessions.get(request.headers.get("x-session-id", ""))
    is_spent = reply.status == 402 and found is not None and found.status == "active"
    return await serve(free(request)) if is_spent else reply


async def debited_at_once(service: Service, request: Request, serve: Serve) -> Answer:
    """Debit a session for a request that is answered 400."""
    reply = await serve(request)
    session_id = request.headers.get("x-session-id")
    if reply.status == 400 and session_id is not None:
        price_base = service.setup.quote_price_base
        service.store.sessions.debit(session_id, price_base, QUOTE, service.clock.now_ms())
    return reply


class LastUnitRefused(Wrapper):
    """A store that debits only if something is left afterwards."""

    def debit(self, session_id: str, amount_base: int, *of: Any) -> Any:
        found = self.inner.get(session_id)
        if found is None or found.remaining <= amount_base:
            return None
        return self.inner.debit(session_id, amount_base, *of)


class NeverDebits(Wrapper):
    """A store that does not raise released."""

    def debit(self, session_id: str, amount_base: int, _: str, now_ms: int) -> Any:
        if not self.inner.can_pay(session_id, amount_base, now_ms):
            return None
        return self.inner.get(session_id).released


class DebitsHalf(Wrapper):
    """A store that raises released by half of the price."""

    def debit(self, session_id: str, amount_base: int, resource: str, now_ms: int) -> Any:
        if not self.inner.can_pay(session_id, amount_base, now_ms):
            return None
        return self.inner.debit(session_id, amount_base // 2, resource, now_ms)


class DebitsTwice(Wrapper):
    """A store that raises released twice."""

    def debit(self, *of: Any) -> Any:
        return None if self.inner.debit(*of) is None else self.inner.debit(*of)


# --- the end -------------------------------------------------------------------------


def has_expired(service: Service, request: Request) -> bool:
    """Tell whether a request names a session whose time has passed."""
    found = service.store.sessions.get(request.headers.get("x-session-id", ""))
    return found is not None and found.expires_ms <= service.clock.now_ms()


class OwesNothing(Wrapper):
    """A store that knows of no refunds."""

    def refunds_due(self, *of: Any) -> list[Any]:
        return []


class OwesTheDeposit(Wrapper):
    """A store whose refunds are whole deposits."""

    def refunds_due(self, *of: Any) -> list[Any]:
        return [
            altered(due, amount=self.inner.get(due.session_id).deposited)
            for due in self.inner.refunds_due(*of)
        ]


class OwesTheMerchant(Wrapper):
    """A store whose refunds go to the server wallet."""

    def refunds_due(self, *of: Any) -> list[Any]:
        wallet = checksum(self.service.setup.wallet)
        return [altered(due, to_address=wallet) for due in self.inner.refunds_due(*of)]


class OwesEachPayerOnce(Wrapper):
    """A store that keeps what it has refunded by the payer: a second session is forgotten."""

    def __init__(self, inner: Any, service: Service) -> None:
        super().__init__(inner, service)
        self.first: dict[str, str] = {}

    def refunds_due(self) -> list[Any]:
        found = self.inner.refunds_due()
        return [it for it in found if self._is_first(it.to_address, it.session_id)]

    def _is_first(self, payer: str, session_id: str) -> bool:
        return self.first.setdefault(payer, session_id) == session_id


class Refunds(Wrapper):
    """A facilitator for which refunds can be signed again, with other nonces or amounts."""

    def _signed(
        self, payment: PresentedPayment, nonce: bytes, value: int | None = None
    ) -> PresentedPayment | None:
        """Return a refund with another nonce, and another amount; None if it is no refund."""
        auth, setup = payment.authorization, self.service.setup
        if auth is None or auth.from_ != setup.wallet:
            return None
        other = replace(auth, nonce=nonce, value=auth.value if value is None else value)
        signature = sign(transfer_digest(other, setup.network.domain), setup.key)
        return present(encode_header(other, signature, setup.network))


class RefundsTwice(Refunds):
    """Sends a refund a second time, to be sure."""

    async def settle(self, payment: PresentedPayment, requirements: Any) -> Any:
        outcome = await self.inner.settle(payment, requirements)
        again = self._signed(payment, keccak256(payment.text.encode()))
        if again is not None:
            await self.inner.settle(again, requirements)
        return outcome


class RefundsWithANewNonce(Refunds):
    """Signs a refund anew, with another nonce, whenever it is sent."""

    async def settle(self, payment: PresentedPayment, requirements: Any) -> Any:
        now = self.service.clock.now()
        signed = self._signed(payment, keccak256(f"{payment.text} {now}".encode()))
        return await self.inner.settle(signed or payment, requirements)
