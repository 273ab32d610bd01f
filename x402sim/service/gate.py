"""The payment gate: whether a request carries a valid proof of payment (section 5), and the 402.

`find_pass` looks for the proof and changes nothing; `spend` debits the session, if the proof is a
session id, and settles the payment, if it is an authorization. Between the two the endpoint
validates the body and prepares its answer, so that a request that is not served costs nothing.
Clauses: 1/unpaid-402, 5/session-debit, 7/payment-required.
"""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from x402sim import events
from x402sim.http import web
from x402sim.http.web import Connection
from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.offers import written
from x402sim.protocol.refusals import RequestError, SettlementRefused, Unpaid, status_of
from x402sim.protocol.x402 import REQUIRED_HEADER
from x402sim.service import one_step, x402_header
from x402sim.service.policies.serving import ServeSettled
from x402sim.service.proofs import can_pay, served_id
from x402sim.service.state import Service

log = logging.getLogger("x402sim")

_PROOFS = frozenset(
    {b"x-payment-id", b"x-session-id", *map(str.encode, x402_header.HEADERS.values())}
)
"""The headers that hold a proof, in lower case."""


class Pass(msgspec.Struct, frozen=True):
    """A proof of payment for one resource: exactly one of three.

    A session is debited, and what is `paid` in one step is settled.
    """

    resource: str
    amount_base: int
    payment_id: str | None = None
    session_id: str | None = None
    paid: x402_header.OneStep | None = None


def shown(request: Request) -> dict[str, str]:
    """Return the headers that hold a proof, by names in lower case; of equal ones the first."""
    return {
        name.decode(): value.decode("latin-1")
        for name, value in reversed(request.scope["headers"])
        if name in _PROOFS
    }


async def find_pass(
    service: Service, headers: Mapping[str, str], resource: str, amount_base: int
) -> Pass:
    """Return the pass that the request's headers give; raises `Unpaid` without one (1/unpaid-402).

    X-Payment-Id has precedence over X-Session-Id (decision 5/precedence), and both over an
    authorization, which moves money: `x402_header.find` looks for it last, and raises `Unpaid` if
    there is none, and `Refused` 400 for one that cannot be read. Headers have names in lower case.
    """
    payment_id, session_id = headers.get("x-payment-id"), headers.get("x-session-id")
    serve = service.settings.policy.serve
    if session_id is not None and len(headers) == 1 and type(serve) is ServeSettled:
        return Pass(resource, amount_base, session_id=session_id)  # its debit asks whether it can
    if payment_id is not None:
        payment_id = await served_id(service, payment_id, resource)
    is_first = session_id is None or service.settings.decisions.payment_id_first
    if payment_id is not None and is_first:
        return Pass(resource, amount_base, payment_id=payment_id)
    if session_id is not None and await can_pay(service, session_id, amount_base):
        return Pass(resource, amount_base, session_id=session_id)
    if payment_id is not None:
        return Pass(resource, amount_base, payment_id=payment_id)
    paid = x402_header.find(service, headers, resource, amount_base)
    return Pass(resource, amount_base, paid=paid)


async def confirm(service: Service, granted: Pass) -> None:
    """Look up a session, which only its debit may have tried; raises `Unpaid` if it cannot pay."""
    session_id = granted.session_id
    if session_id is not None and not await can_pay(service, session_id, granted.amount_base):
        raise Unpaid


async def spend(service: Service, granted: Pass, content: Response, connection: Connection) -> None:
    """Debit the session of a pass (5/session-debit), or settle its payment.

    A payment that is served is marked as such, if the reputation counts that. Nothing is spent for
    a client that has hung up, and what was spent for an answer that was not written is given back:
    the client may leave while the database commits. From the look on there is no turn of the event
    loop until the answer is written. Raises `ClientDisconnect`, and `Unpaid` if the session cannot
    pay any more, or if the payment is not settled.
    """
    if granted.payment_id is not None:
        if service.settings.reputation.counts_served:
            service.store.served.mark(granted.payment_id, granted.resource)
        return
    if granted.paid is not None:
        await one_step.settle(service, granted.paid)
    await connection.drained()
    if connection.is_closed():
        raise ClientDisconnect
    conclude: Conclude | None = None
    if granted.paid is not None:
        conclude = one_step.answer_once(service, granted.paid, content)
    if granted.session_id is not None:
        conclude = _debit(service, granted, granted.session_id)
    if conclude is not None:
        content.background = cast(Any, partial(_concluded, conclude, connection))


Conclude = Callable[[bool], Awaitable[None]]
"""Told whether the answer was written: what was spent for it is kept, or given back."""


async def _concluded(conclude: Conclude, connection: Connection) -> None:
    """Conclude what was spent, once the answer was sent."""
    await conclude(connection.is_answered())


def _debit(service: Service, granted: Pass, session_id: str) -> Conclude:
    """Debit a session (5/session-debit); raises `Unpaid` if it cannot pay any more."""
    amount_base, now_ms = granted.amount_base, service.clock.now_ms()
    released = service.store.sessions.debit(session_id, amount_base, granted.resource, now_ms)
    if released is None:
        raise Unpaid
    debited = events.SessionDebited(
        session_id=session_id, amount_base=amount_base, released_base=released
    )
    service.record(debited)
    return partial(_credit_unless, service, granted, session_id)


async def _credit_unless(
    service: Service, granted: Pass, session_id: str, is_answered: bool
) -> None:
    """Undo a debit whose answer was not written."""
    if is_answered:
        return
    amount_base, resource = granted.amount_base, granted.resource
    try:
        released = service.store.sessions.undo_debit(session_id, amount_base, resource)
    except sqlite3.OperationalError as failure:
        log.warning("%s: a debit without an answer is not undone: %s", resource, failure)
        return
    if released is not None:
        service.record(
            events.DebitUndone(
                session_id=session_id, amount_base=amount_base, released_base=released
            )
        )


# --- what answers who has not paid -------------------------------------------------------

_NOTHING_SHOWN = Unpaid()


def payment_required(
    service: Service,
    request: Request,
    resource: str,
    amount_base: int,
    why: Unpaid = _NOTHING_SHOWN,
) -> Response:
    """Return the 402 with new payment requirements (1/unpaid-402, 7/payment-required).

    It offers both versions of the standard, too. A payment that may still be settled is answered
    as by POST /api/pay.
    """
    setup, settings = service.setup, service.settings
    if why.retryable is not None:
        return refused(service, why.retryable, why.headers)
    if settings.decisions.short_session_status != 402 and request.method != "HEAD":
        session = service.store.sessions.get(web.header(request, b"x-session-id") or "")
        if session is not None and session.state == "active":  # so it is short of budget
            raise web.refused(RequestError.SESSION_CANNOT_PAY, decisions=settings.decisions)
    required = service.issuer.issue(resource, amount_base, service.clock.now_s())
    if not settings.one_step:
        return web.answer(required, 402)
    body, header = written(
        required,
        setup.network,
        url=web.url_of(request),
        error=why.code,
        reason=why.told,
        flow=settings.payment_flow,
        version=x402_header.version_of(shown(request)) if why.code else None,
    )
    return web.answer(msgspec.Raw(body), 402, {REQUIRED_HEADER: header, **why.headers})


def refused(
    service: Service, why: SettlementRefused, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the error that answers a payment that was not settled."""
    told = ErrorBody(error=why.refusal.text, reason=why.reason, final=why.final)
    return web.answer(told, status_of(why.refusal, service.settings.decisions), headers or {})
