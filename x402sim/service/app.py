"""The service's routes: each decodes a request, calls the service, and encodes the answer.

Clauses: 1/repeat-served, 4.2/price, 4.2/quote, 4.3/list, 4.4/deposit-402, 4.4/deposit-flow,
9/no-version-segment.
"""

import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import assert_never
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.http import web
from x402sim.protocol import routes
from x402sim.protocol.messages import (
    AgentList,
    ErrorBody,
    PaymentRecord,
    QuoteRequest,
    SessionRequest,
    SettlementRequest,
)
from x402sim.protocol.refusals import RequestError, SettlementRefused, Unpaid
from x402sim.protocol.routes import AGENTS, MARKET, PAY, QUOTE, SESSIONS
from x402sim.service import content, gate, metered, one_step, payments, proofs, sessions
from x402sim.service.docs.routes import WELL_KNOWN, documentation
from x402sim.service.goods import MAX_PATH, Found
from x402sim.service.policies import NoStore
from x402sim.service.state import Service
from x402sim.service.unsettled import record_refusal
from x402sim.service.upstream.api import Passed, plain_path

log = logging.getLogger("x402sim")
Handler = Callable[[Service, Request], Awaitable[Response]]
Work = gate.Work
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\xff]*")
_SLASH = re.compile("%2f", re.IGNORECASE)
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]


async def perp_quote(service: Service, request: Request) -> Response:
    """POST /api/perp/quote: 402, or the quote (4.2/price, 4.2/quote, 1/repeat-served)."""
    body = await web.read_body(request)

    async def quoted() -> Response:
        order: QuoteRequest = web.parse(body, QuoteRequest)
        return web.answer({"quote": content.quote(service.env.settings, order)})

    return await sell(service, request, QUOTE, quoted)


async def perp_market(service: Service, request: Request) -> Response:
    """GET /api/perp/market: 402, or a snapshot of the market, at the quote's price."""
    await web.read_body(request)  # one that is cut off or too long is not charged

    async def shown() -> Response:
        return web.answer(content.market())

    return await sell(service, request, MARKET, shown)


async def own_good(service: Service, built_in: Starlette, request: Request) -> Response | Starlette:
    """Any other path: a good of the user, for sale or free, or a path of every service."""
    path = plain_path(request)
    shop, as_name = service.env.shop, unquote(_SLASH.sub("_", path))
    if shop.price(resource := request.scope["path"]) != shop.price(as_name):
        reason = (
            "its encoded / would change the price, as some servers take it for a part of a name"
        )
        raise web.Refused(400, "Invalid path", reason)
    found = shop.at(resource, request.method)
    if found is None:
        return built_in
    whole = Request(request.scope, _again(await web.read_body(request), request.receive))
    if found.price_base is None:
        answer = await found.good.answer(whole)
        if answer.status_code == 404 and isinstance(answer, Passed) and _is_in(built_in, request):
            await answer.drop()  # the API behind comes first, and then our own pages
            return _Unread(built_in)
        return answer
    if len(path) > MAX_PATH:
        raise web.Refused(414, "Path too long", f"a path for sale has at most {MAX_PATH} bytes")

    async def made() -> Response:
        return _sendable(await found.good.answer(whole))

    if found.good.upto or (found.good.permit2 and metered.pays(request)):
        return await metered.sell(service, request, resource, found, made)
    answer = await sell(service, request, resource, made, own=found)
    return await metered.beside(service, found, answer) if found.good.permit2 else answer


def _sendable(answer: Response) -> Response:
    """Return an answer; raises `Refused`, before anybody pays, if no connection could send it."""
    for name, value in answer.raw_headers:
        if not _HEADER.fullmatch(b"%b: %b" % (name, value)):
            reason = f"the header {name.decode('latin-1')[:80]!r} is malformed"
            raise web.Refused(500, "Answer cannot be sent", reason)
    body, told = getattr(answer, "body", None), answer.headers.get("content-length")
    is_long = body is not None and told not in (None, str(len(body)))
    if is_long or "transfer-encoding" in answer.headers:  # copied from another server's answer
        raise web.Refused(500, "Answer cannot be sent", "its headers do not fit the body")
    return answer


class _Unread(Response):
    """The answer of an application to a GET whose body was read already."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _again(b"", receive), send)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, and then the end of the connection."""
    unread = [body]

    async def received() -> Message:
        return {"type": "http.request", "body": unread.pop()} if unread else await receive()

    return received


def _is_in(app: Starlette, request: Request) -> bool:
    """Tell whether an application has a path, for requests whose body nobody has read."""
    is_get = request.method == "GET"
    return is_get and any(each.matches(request.scope)[0] is Match.FULL for each in app.routes)


async def sell(
    service: Service, request: Request, resource: str, prepare: Work, own: Found | None = None
) -> Response:
    """Answer with what `prepare` makes, if the request pays for it, and with 402 otherwise.

    If `prepare` raises `Refused`, or makes an answer of status 400 or more, nothing is charged.
    `own` is a good of the user, which is made for payments only.
    """
    settings = service.env.settings
    price = (own and own.price_base) or service.env.quote_price_base
    if request.scope["method"] == "HEAD":  # sells nothing: it is answered as an unpaid GET
        return gate.payment_required(service, request, resource, price)
    # If decision 4.2/gate-before-body is switched, a bad body is refused before its payment
    # is read. A payment flow excludes that: there the endpoint works after its first step.
    is_later = settings.decisions.gate_before_body or settings.payment_flow is not None
    prepared = None if is_later or own else await prepare()
    if not (headers := gate.proof_headers(request)):
        return gate.payment_required(service, request, resource, price)

    async def answer_paid() -> Response:
        answer = prepared or await prepare()
        if not isinstance(settings.policy.cache, NoStore):  # every answer says no-store already
            del answer.headers["cache-control"]
            answer.headers.update(settings.policy.cache.headers())
        return answer

    try:
        match proof := await gate.find_pass(service, headers, resource, price):
            case gate.PaymentPass():
                answer = await answer_paid()
                if settings.reputation.counts_served and answer.status_code < 400:
                    service.store.served.mark(proof.payment_id, resource)
                return answer
            case gate.SessionPass():
                return await _sell_from_session(service, request, proof, answer_paid, own)
            case one_step.OneStep():
                return await _sell_in_one_step(service, request, proof, answer_paid, own)
            case _:
                assert_never(proof)
    except one_step.IdempotentReplay as replay:
        return replay.response
    except Unpaid as why:
        return gate.payment_required(service, request, resource, price, why)


async def _sell_from_session(
    service: Service,
    request: Request,
    session: gate.SessionPass,
    answer_paid: Work,
    own: Found | None,
) -> Response:
    """Make the answer and debit the session; raises `Unpaid` if it cannot pay."""
    if own and own.good.works:
        return await gate.work_for(service, session, answer_paid, web.connection(request))
    try:
        answer = await answer_paid()
    except web.Refused:  # only a payer who can pay sees it: decision 4.2/gate-before-body
        if await proofs.session_has_budget(service, session.session_id, session.amount_base):
            raise
        raise Unpaid from None
    if answer.status_code < 400:
        await gate.spend(service, session, answer, web.connection(request))
    return answer


async def _sell_in_one_step(
    service: Service, request: Request, paid: one_step.OneStep, answer_paid: Work, own: Found | None
) -> Response:
    """Sell to a payment in one step; work for one payment is done once at a time.

    Raises `Unpaid`.
    """
    if not (own and own.good.works):
        return await _make_and_settle(service, request, paid, answer_paid)
    async with service.locks.hold(f"work for {paid.settlement.payment_id}"):
        one_step.require_unserved(service, paid)
        return await _make_and_settle(service, request, paid, answer_paid)


async def _make_and_settle(
    service: Service, request: Request, paid: one_step.OneStep, answer_paid: Work
) -> Response:
    """Prepay if the payment flow says so, make the answer, settle, and answer once.

    If the payment is settled and the answer fails then, the error carries the receipt. Raises
    `Unpaid`.
    """
    receipt = await one_step.prepay(service, paid)
    try:
        answer = await answer_paid()
        if answer.status_code >= 400:
            answer.headers.update(receipt)
            return answer
        await one_step.spend(service, paid, answer, web.connection(request))
    except (Unpaid, ClientDisconnect, sqlite3.Error):
        raise
    except Exception as failed:
        if not receipt:
            raise
        return _failed(request, failed, receipt)
    return answer


def _failed(request: Request, failed: Exception, receipt: Mapping[str, str]) -> Response:
    """Return the error of an endpoint that has failed, with the receipt of what was paid."""
    match failed:
        case web.Refused():
            body, status = ErrorBody(failed.error, failed.reason), failed.status
        case HTTPException():
            body, status = ErrorBody(failed.detail), failed.status_code
        case _:
            log.error("%s %s failed", request.method, request.url.path, exc_info=failed)
            body, status = ErrorBody(RequestError.INTERNAL.text), 500
    return web.answer(body, status, receipt)


async def pay(service: Service, request: Request) -> Response:
    """POST /api/pay: settle a payment (4.1/receipt), or refuse it (section 7)."""
    sent: SettlementRequest = web.parse(await web.read_body(request), SettlementRequest)
    try:
        return web.answer(await payments.pay(service, sent))
    except SettlementRefused as refused:
        record_refusal(service, sent.payment_id, refused)
        return gate.refused(service, refused)
    except sqlite3.Error as failure:  # not final: it may have been paid, or be paid later
        return web.storage_unavailable(request, failure, final=False)


async def create_session(service: Service, request: Request) -> Response:
    """POST /api/sessions/create: 402 for the deposit, or the session that the deposit has opened.

    Clauses 4.4/deposit-402 and 4.4/deposit-flow.
    """
    body = await web.read_body(request)
    payment_id = web.header(request, b"x-payment-id")
    if payment_id is not None and await proofs.is_entitled(service, payment_id, SESSIONS):
        session = service.store.sessions.paid_by(payment_id)
        if session is not None:
            status = service.env.settings.decisions.session_created_status
            return web.answer(sessions.view(session), status)
    return web.answer(sessions.offer(service, web.parse(body, SessionRequest)), 402)


async def show_session(service: Service, request: Request) -> Response:
    """GET /api/sessions/{id}: a session's budget, for anyone who knows the id (2.6/remaining)."""
    session = service.store.sessions.get("session_" + request.path_params["rest"])
    if session is None:
        raise web.refused(RequestError.UNKNOWN_SESSION)
    return web.answer(sessions.view(session))


async def show_payment(service: Service, request: Request) -> Response:
    """GET /api/payments/{id}: the stored record (2.4/record)."""
    attempt = service.store.payments.find_for_client(request.path_params["payment_id"])
    if attempt is None:
        raise web.refused(RequestError.UNKNOWN_PAYMENT)
    return web.answer(msgspec.convert(attempt, PaymentRecord, from_attributes=True))


async def list_agents(service: Service, request: Request) -> Response:
    """GET /api/agents: the list of agents (4.3/list)."""
    await web.read_body(request)  # as `perp_market` does

    async def listed() -> Response:
        return web.answer(AgentList(agents=content.agents(service)))

    if service.env.settings.decisions.agents_free:
        return await listed()
    return await sell(service, request, AGENTS, listed)


async def health(service: Service, _: Request) -> Response:
    """GET /healthz: the service runs, on this network."""
    return web.answer({"status": "ok", "network": service.env.network.name})


def service_app(service: Service) -> Starlette:
    """Return the ASGI application of a service; no path has a version (9/no-version-segment)."""

    def route(path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, partial(handler, service), methods=[method])

    protocol = [
        route(PAY, pay, "POST"),
        route(SESSIONS, create_session, "POST"),
        route(routes.SESSION + "session_{rest}", show_session),
        route(routes.PAYMENTS + "{payment_id}", show_payment),
    ]
    built_in = [
        route(QUOTE, perp_quote, "POST"),
        route(MARKET, perp_market),
        *protocol,
        route(AGENTS, list_agents),
        route("/healthz", health),
        *documentation(service),
    ]
    if not service.env.shop:
        return web.Application(built_in)
    ours = web.Application(built_in)
    first = [*protocol, *(each for each in built_in if each.path == WELL_KNOWN)]
    own = Route("/{path:path}", partial(own_good, service, ours), methods=_METHODS)
    return web.Application([*first, own])
