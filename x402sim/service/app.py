"""The service's routes: each decodes a request, calls the service, and encodes the answer.

Clauses: 1/repeat-served, 4.2/price, 4.2/quote, 4.3/list, 4.4/deposit-402, 4.4/deposit-flow,
9/no-version-segment.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.http import web
from x402sim.protocol.messages import (
    AgentList,
    ErrorBody,
    PaymentRecord,
    QuoteRequest,
    SessionRequest,
    SettlementRequest,
)
from x402sim.protocol.refusals import RequestError, SettlementRefused, Unpaid
from x402sim.service import gate, one_step, payments, proofs, quotes, sessions
from x402sim.service.agents import agents
from x402sim.service.docs.routes import documentation
from x402sim.service.issue import AGENTS, MARKET, PAY, QUOTE, SESSIONS
from x402sim.service.policies.serving import NoStore
from x402sim.service.state import Service
from x402sim.service.unsettled import record_refusal
from x402sim.service.x402_header import Repeated

Handler = Callable[[Service, Request], Awaitable[Response]]


async def perp_quote(service: Service, request: Request) -> Response:
    """POST /api/perp/quote: 402, or the quote (4.2/price, 4.2/quote, 1/repeat-served)."""
    body = await web.read_body(request)

    def quoted() -> Response:
        order: QuoteRequest = web.parse(body, QuoteRequest)
        return web.answer({"quote": quotes.quote(service.settings, order)})

    return await sell(service, request, QUOTE, quoted)


async def perp_market(service: Service, request: Request) -> Response:
    """GET /api/perp/market: 402, or a snapshot of the market, at the quote's price."""
    await web.read_body(request)
    return await sell(service, request, MARKET, lambda: web.answer(quotes.market()))


async def sell(
    service: Service, request: Request, resource: str, prepare: Callable[[], Response]
) -> Response:
    """Answer with a protected content, or with 402; a content that fails costs nothing."""
    price, settings = service.setup.quote_price_base, service.settings
    flow, receipt = settings.payment_flow, None
    is_head = request.method == "HEAD"  # sells nothing: it is answered as an unpaid GET
    before = None if flow or settings.decisions.gate_before_body or is_head else prepare()
    shown = {} if is_head else gate.shown(request)
    if not shown:
        return gate.payment_required(service, request, resource, price)
    try:
        granted = await gate.find_pass(service, shown, resource, price)
        if flow is not None and granted.paid is not None:
            receipt = await one_step.prepay(service, granted.paid)
        try:
            content = before or prepare()
        except web.Refused:  # told only to who can pay: decision 4.2/gate-before-body
            await gate.confirm(service, granted)
            raise
        told = settings.policy.cache
        if not isinstance(told, NoStore):  # which every answer says already
            del content.headers["cache-control"]
            content.headers.update(told.headers())
        await gate.spend(service, granted, content, web.connection(request))
    except Repeated as known:
        return known.answer
    except web.Refused as failed:
        if not receipt:
            raise
        return web.answer(ErrorBody(failed.error, failed.reason), failed.status, receipt)
    except Unpaid as why:
        return gate.payment_required(service, request, resource, price, why)
    return content


async def pay(service: Service, request: Request) -> Response:
    """POST /api/pay: settle a payment (4.1/receipt), or refuse it (section 7)."""
    asked: SettlementRequest = web.parse(await web.read_body(request), SettlementRequest)
    try:
        return web.answer(await payments.pay(service, asked))
    except SettlementRefused as refused:
        record_refusal(service, asked.payment_id, refused)
        return gate.refused(service, refused)
    except sqlite3.Error as failure:  # a claimed header may have been paid, any other may still be
        return web.storage_unavailable(request, failure, final=False)


async def create_session(service: Service, request: Request) -> Response:
    """POST /api/sessions/create: 402 for the deposit; once paid, the session it opened.

    Clauses 4.4/deposit-402 and 4.4/deposit-flow.
    """
    body = await web.read_body(request)
    payment_id = web.header(request, b"x-payment-id")
    if payment_id is not None and await proofs.is_entitled(service, payment_id, SESSIONS):
        session = service.store.sessions.paid_by(payment_id)
        if session is not None:
            status = service.settings.decisions.session_created_status
            return web.answer(sessions.view(session), status)
    return web.answer(sessions.offer(service, web.parse(body, SessionRequest)), 402)


async def show_session(service: Service, request: Request) -> Response:
    """GET /api/sessions/{id}: a session's budget, for anyone who has its id (2.6/remaining)."""
    session = service.store.sessions.get("session_" + request.path_params["rest"])
    if session is None:
        raise web.refused(RequestError.UNKNOWN_SESSION)
    return web.answer(sessions.view(session))


async def show_payment(service: Service, request: Request) -> Response:
    """GET /api/payments/{id}: the stored record (2.4/record)."""
    stored = service.store.payments.shown(request.path_params["payment_id"])
    if stored is None:
        raise web.refused(RequestError.UNKNOWN_PAYMENT)
    return web.answer(msgspec.convert(stored, PaymentRecord, from_attributes=True))


async def list_agents(service: Service, request: Request) -> Response:
    """GET /api/agents: the list of agents (4.3/list)."""
    await web.read_body(request)

    def listed() -> Response:
        return web.answer(AgentList(agents=agents(service)))

    if service.settings.decisions.agents_free:
        return listed()
    return await sell(service, request, AGENTS, listed)


async def health(service: Service, _: Request) -> Response:
    """GET /healthz: the service runs, on this network."""
    return web.answer({"status": "ok", "network": service.setup.network.name})


def service_app(service: Service) -> Starlette:
    """Return the ASGI application of a service; no path has a version (9/no-version-segment)."""

    def route(path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, partial(handler, service), methods=[method])

    return web.Application(
        [
            route(QUOTE, perp_quote, "POST"),
            route(MARKET, perp_market),
            route(PAY, pay, "POST"),
            route(SESSIONS, create_session, "POST"),
            route("/api/sessions/session_{rest}", show_session),
            route("/api/payments/{payment_id}", show_payment),
            route(AGENTS, list_agents),
            route("/healthz", health),
            *documentation(service),
        ]
    )
