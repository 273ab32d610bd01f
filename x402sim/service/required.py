"""Writes the answers to who has not paid: the 402, and the refusal of a settlement (section 7).

Clauses: 1/unpaid-402, 7/payment-required.
"""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from x402sim.http import web
from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.offers import written
from x402sim.protocol.refusals import RequestError, SettlementRefused, Unpaid, status_of
from x402sim.protocol.x402 import REQUIRED_HEADER
from x402sim.service.state import Service

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
    if settings.decisions.short_session_status != 402:
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
    )
    return web.answer(msgspec.Raw(body), 402, {REQUIRED_HEADER: header, **why.headers})


def refused(
    service: Service, why: SettlementRefused, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the error that answers a payment that was not settled."""
    told = ErrorBody(error=why.refusal.text, reason=why.reason, final=why.final)
    return web.answer(told, status_of(why.refusal, service.settings.decisions), headers or {})
