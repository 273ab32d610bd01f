"""The payment gate: whether a request carries a valid proof of payment (section 5), and the 402.

`find_pass` looks for the proof and changes nothing. Then the endpoint validates the body and
prepares its answer. Last, the proof is spent: `spend` debits the session of a session id, and
`one_step.spend` settles an authorization. A payment id costs nothing more. In this order a request
that is not served costs nothing. `work_for` reserves the amount for an answer that costs work.
Clauses: 1/unpaid-402, 5/session-debit, 7/payment-required.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from x402sim import events
from x402sim.http import web
from x402sim.http.web import Connection
from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.offers import written
from x402sim.protocol.refusals import RequestError, SettlementRefused, Unpaid, status_of
from x402sim.protocol.x402 import PROOFS, REQUIRED_HEADER
from x402sim.service import one_step
from x402sim.service.policies import ServeSettled
from x402sim.service.proofs import served_id, session_has_budget
from x402sim.service.sessions import undo_debit
from x402sim.service.state import Service

Work = Callable[[], Awaitable[Response]]


class PaymentPass(msgspec.Struct, frozen=True):
    """A payment id that gives access; nothing more is spent."""

    payment_id: str


class SessionPass(msgspec.Struct, frozen=True):
    """A session id, whose session is debited."""

    session_id: str
    resource: str
    amount_base: int


def proof_headers(request: Request) -> dict[str, str]:
    """Return the headers that hold a proof, by name in lower case; of equal names the first."""
    return {
        name.decode(): value.decode("latin-1")
        for name, value in reversed(request.scope["headers"])
        if name in PROOFS
    }


async def find_pass(
    service: Service, headers: Mapping[str, str], resource: str, amount_base: int
) -> PaymentPass | SessionPass | one_step.OneStep:
    """Return the pass that the request's headers give; raises `Unpaid` without one (1/unpaid-402).

    X-Payment-Id has precedence over X-Session-Id (decision 5/precedence). Both have precedence over
    an authorization, because an authorization moves money. `one_step.find` looks for an
    authorization last, and raises `Unpaid` without one, or `Refused` 400 for an unreadable one. The
    names of `headers` are in lower case.
    """
    payment_id, session_id = headers.get("x-payment-id"), headers.get("x-session-id")
    if payment_id is not None:
        payment_id = await served_id(service, payment_id, resource)
    is_first = session_id is None or service.env.settings.decisions.payment_id_first
    if payment_id is not None and is_first:
        return PaymentPass(payment_id)
    if session_id is not None:
        # if there is no other proof, the debit itself finds out: that saves a SELECT
        is_alone = len(headers) == 1 and type(service.env.settings.policy.serve) is ServeSettled
        if is_alone or await session_has_budget(service, session_id, amount_base):
            return SessionPass(session_id, resource, amount_base)
    if payment_id is not None:
        return PaymentPass(payment_id)
    return one_step.find(service, headers, resource, amount_base)


async def spend(
    service: Service, session: SessionPass, content: Response, connection: Connection
) -> None:
    """Debit a session (5/session-debit); raises `Unpaid` if it cannot pay any more.

    Nothing is debited for a client that has hung up (`ClientDisconnect`). The client may leave
    while the database commits, so a debit whose answer was not written is undone.
    """
    await web.require_client(connection)
    amount_base, now_ms = session.amount_base, service.clock.now_ms()
    sessions, session_id = service.store.sessions, session.session_id
    released = sessions.debit(session_id, amount_base, session.resource, now_ms)
    if released is None:
        raise Unpaid
    debited = events.SessionDebited(
        session_id=session_id, amount_base=amount_base, released_base=released
    )
    service.record(debited)
    undo: Any = partial(_undo_unless_answered, service, session, connection)
    content.background = undo


async def work_for(
    service: Service, session: SessionPass, work: Work, connection: Connection
) -> Response:
    """Make an answer that costs work, and debit the session; raises as `spend` and `work`.

    The amount is reserved during the work, in memory: requests at once cause no more work than the
    session pays for, and a crash during the work costs nothing, as a debit before it would.
    """
    await web.require_client(connection)
    session_id, reserved = session.session_id, service.at_work
    wanted_base = reserved[session_id] = reserved.get(session_id, 0) + session.amount_base
    try:
        if not await session_has_budget(service, session_id, wanted_base):
            raise Unpaid
        answer = await work()
        if answer.status_code < 400:
            await spend(service, session, answer, connection)
        return answer
    finally:
        reserved[session_id] -= session.amount_base
        if not reserved[session_id]:
            del reserved[session_id]


async def _undo_unless_answered(
    service: Service, session: SessionPass, connection: Connection
) -> None:
    if not connection.is_answered():
        undo_debit(service, session.session_id, session.amount_base, session.resource)


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

    The 402 also offers both versions of the standard. If `why` is a payment that may still be
    settled, the answer is the one of POST /api/pay instead.
    """
    env, settings = service.env, service.env.settings
    if why.retryable is not None:
        return refused(service, why.retryable, why.headers)
    if settings.decisions.short_session_status != 402 and request.method != "HEAD":
        session = service.store.sessions.get(web.header(request, b"x-session-id") or "")
        if session is not None and session.state == "active":
            raise web.refused(RequestError.SESSION_CANNOT_PAY, decisions=settings.decisions)
    required = service.issuer.issue(resource, amount_base, service.clock.now_s())
    if not settings.one_step:
        return web.answer(required, 402)
    body, header = written(
        required,
        env.network,
        url=web.url_of(request),
        error=why.code,
        reason=why.summary,
        flow=settings.payment_flow,
        version=one_step.version_of(proof_headers(request)) if why.code else None,
    )
    return web.answer(msgspec.Raw(body), 402, {REQUIRED_HEADER: header, **why.headers})


def refused(
    service: Service, why: SettlementRefused, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the error that answers a payment that was not settled."""
    body = ErrorBody(error=why.refusal.text, reason=why.reason, final=why.final)
    return web.answer(body, status_of(why.refusal, service.env.settings.decisions), headers or {})
