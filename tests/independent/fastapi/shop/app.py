"""The HTTP interface."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from . import jobs, quotes
from .chain import Facilitator, Node
from .config import QUOTE_PRICE, bug, on, settings
from .models import (
    ApiError,
    PaymentRequired,
    PayRequest,
    QuoteRequest,
    SessionRequest,
    base_units,
)
from .payments import Payments
from .sessions import Sessions, hand_over, view
from .store import Budget, Offer, Payment, Reputation, Store

QUOTE_PATH, DEPOSIT_PATH, AGENTS_PATH = "/api/perp/quote", "/api/sessions/create", "/api/agents"
DESCRIPTIONS = {QUOTE_PATH: "Perpetual futures quote", AGENTS_PATH: "List of agents"}
INDEX = """# Pay-per-request perp quotes

> Quotes for perpetual positions, paid per request with x402, or out of a session budget.

## Documentation

- [Reference](/docs): all endpoints, interactive
- [Reference, printable](/redoc): all endpoints
- [OpenAPI](/openapi.json): machine-readable description
"""


@dataclass
class Shop:
    store: Store
    payments: Payments
    sessions: Sessions


def get_shop(request: Request) -> Shop:
    return request.app.state.shop


ShopDep = Annotated[Shop, Depends(get_shop)]


def fold(identifier: str | None) -> str | None:
    return identifier.lower() if identifier and on("ids_any_case") else identifier


# Proof of payment


@dataclass
class Access:
    """A request that may be served; a session pays for it at the moment it is."""

    shop: Shop
    resource: str
    session_id: str | None = None

    async def charge(self) -> None:
        if self.session_id and not await self.shop.sessions.deduct(self.session_id, QUOTE_PRICE):
            raise refusal(self.shop, self.resource, poor=True)


def refusal(shop: Shop, resource: str, *, poor: bool = False) -> Exception:
    if poor and on("budget_403"):
        return ApiError(403, "Insufficient session budget")
    price = 1000 if bug("price_1000") else QUOTE_PRICE
    return shop.payments.required(
        resource, price, DESCRIPTIONS.get(resource, "Perpetual futures quote")
    )


PaymentId = Annotated[str | None, Header(alias="X-Payment-Id")]
SessionId = Annotated[str | None, Header(alias="X-Session-Id")]


async def proof_of_payment(
    request: Request, shop: ShopDep, x_payment_id: PaymentId = None, x_session_id: SessionId = None
) -> Access:
    resource = request.url.path
    if bug("resource_full_url"):
        resource = str(request.url.replace(query=""))
    elif bug("resource_keeps_query") and request.url.query:
        resource += f"?{request.url.query}"
    payment_id, session_id = fold(x_payment_id), fold(x_session_id)
    if payment_id and session_id and on("both_headers_refused"):
        raise ApiError(400, "Send either X-Payment-Id or X-Session-Id")
    poor = False

    def by_payment() -> Access | None:
        paid = payment_id is not None and shop.payments.entitled(payment_id, resource)
        return Access(shop, resource) if paid else None

    def by_session() -> Access | None:
        nonlocal poor
        budget = shop.sessions.find(session_id) if session_id else None
        if budget is None:
            return None
        poor = not shop.sessions.covers(budget, QUOTE_PRICE)
        return None if poor else Access(shop, resource, session_id)

    for check in (by_session, by_payment) if on("session_first") else (by_payment, by_session):
        if access := check():
            if bug("charges_refused_requests"):
                await access.charge()
                access.session_id = None
            return access
    if bug("bad_proof_403") and (payment_id or session_id):
        raise ApiError(403, "Payment not found")
    raise refusal(shop, resource, poor=poor)


def json_only(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if on("strict_content_type") and not (kind == "application/json" or kind.endswith("+json")):
        raise ApiError(415, "The body must be application/json")


AccessDep = Annotated[Access, Depends(proof_of_payment)]
JsonDep = Depends(json_only)


class PaidRoute(APIRoute):
    """A body that cannot be read is reported only to those who paid; the others get their 402."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError:
                proofs = map(request.headers.get, ("x-payment-id", "x-session-id"))
                await proof_of_payment(request, get_shop(request), *proofs)
                json_only(request)
                raise

        return guarded


paid = APIRouter(route_class=PaidRoute)
free = APIRouter()


@paid.post(QUOTE_PATH)
async def perp_quote(
    access: AccessDep, _: Annotated[None, JsonDep], body: QuoteRequest
) -> dict[str, Any]:
    await access.charge()
    return {"quote": quotes.quote(body)}


@free.post("/api/pay", dependencies=[JsonDep])
async def pay(body: PayRequest, shop: ShopDep, response: Response) -> dict[str, Any]:
    answer = await shop.payments.pay(body)
    if budget := shop.payments.session_of(answer["paymentId"]):
        hand_over(budget, answer, response, receipt=True)
    return answer


@free.get("/api/payments/{payment_id}")
async def payment_record(payment_id: str, shop: ShopDep) -> dict[str, Any]:
    record = None if on("no_records") else shop.store.get(Payment, fold(payment_id) or "")
    if record is None:
        raise ApiError(404, "Not Found")
    told = record.model_dump()
    if not on("records_in_ms"):
        told["timestamp"] = datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat()
    return told


@free.post(DEPOSIT_PATH, dependencies=[JsonDep])
async def create_session(
    body: SessionRequest, shop: ShopDep, response: Response, x_payment_id: PaymentId = None
) -> dict[str, Any]:
    deposit = shop.store.get(Offer, fold(x_payment_id) or "")
    budget = shop.payments.session_of(deposit.payment_id) if deposit else None
    # The repeated request of a paid deposit gets its session; any other request is for a new one.
    asked = (base_units(body.maxSpend), body.seconds, "open")
    if deposit and budget and (budget.deposited, deposit.duration, budget.state) == asked:
        answer = {"deposited": str(budget.deposited), "paymentId": budget.payment_id}
        hand_over(budget, answer, response, receipt=False)
        return answer
    resource = QUOTE_PATH if bug("deposit_names_quote") else DEPOSIT_PATH
    told = f"Session deposit for {body.seconds} seconds"
    raise shop.payments.required(resource, base_units(body.maxSpend), told, body.seconds)


@free.get("/api/sessions/claim/{payment_id}")
async def claim_session(payment_id: str, shop: ShopDep) -> dict[str, Any]:
    budget = shop.payments.session_of(fold(payment_id) or "") if on("session_claim") else None
    if budget is None:
        raise ApiError(404, "Not Found")
    return view(budget)


@free.get("/api/sessions/{session_id}")
async def read_session(session_id: str, shop: ShopDep) -> dict[str, Any]:
    budget = None if on("no_session_view") else shop.store.get(Budget, fold(session_id) or "")
    if budget is None:
        raise ApiError(404, "Not Found")
    return view(budget)


async def list_agents(shop: ShopDep) -> Any:
    known = shop.store.get(Reputation, QUOTE_PATH) or Reputation(resource=QUOTE_PATH)
    agent = {"id": "perp-quote", "name": "Perp quote agent", "resource": QUOTE_PATH}
    agents = [agent | {"price": str(QUOTE_PRICE), "reputation": known.matched}]
    return agents if on("agents_bare_list") else {"agents": agents}


async def list_agents_paid(access: AccessDep) -> Any:
    await access.charge()
    return await list_agents(access.shop)


async def probe(access: AccessDep) -> None:
    raise HTTPException(405, "Method Not Allowed", {"Allow": "POST"})


@free.get("/llms.txt", response_class=JSONResponse if bug("quoted_llms") else PlainTextResponse)
async def llms() -> str:
    return INDEX


# Errors


def problem(status: int, text: str, details: Any = None, headers: Any = None) -> JSONResponse:
    extra = {} if details is None else {"errors": jsonable_encoder(details)}
    if on("problem_json"):
        body = {"type": "about:blank", "title": text, "status": status, **extra}
        return JSONResponse(body, status, headers, media_type="application/problem+json")
    if on("error_field"):
        return JSONResponse({"success": False, "error": text, **extra}, status, headers)
    return JSONResponse({"detail": extra.get("errors", text)}, status, headers)


async def on_payment_required(_: Request, error: Exception) -> Response:
    assert isinstance(error, PaymentRequired)
    return JSONResponse(error.body, 402, {"Cache-Control": "no-store"})


async def on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if bug("unvalidated_pay") and request.url.path == "/api/pay":
        return PlainTextResponse("Internal Server Error", 500)
    details = [{key: item[key] for key in ("type", "loc", "msg")} for item in error.errors()]
    return problem(400 if on("bad_request_400") else 422, "Invalid request", details)


# The application


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    store = Store(settings().state)
    async with httpx.AsyncClient() as http:
        facilitator, node = Facilitator(http), Node(http)
        payments, sessions = Payments(store, facilitator, node), Sessions(store, facilitator, node)
        app.state.shop = Shop(store, payments, sessions)
        background = jobs.start(store, http, payments, sessions)
        try:
            yield
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
    store.close()


def create_app() -> FastAPI:
    app = FastAPI(
        title="Pay-per-request perp quotes",
        version="1.0",
        lifespan=lifespan,
        redirect_slashes=False,
        strict_content_type=False,
    )
    if on("agents_paid"):
        paid.add_api_route(AGENTS_PATH, list_agents_paid, methods=["GET"])
    else:
        free.add_api_route(AGENTS_PATH, list_agents, methods=["GET"])
    if on("probe_with_get"):
        paid.add_api_route(QUOTE_PATH, probe, methods=["GET", "HEAD"], include_in_schema=False)
    app.include_router(paid)
    app.include_router(free)
    app.add_exception_handler(PaymentRequired, on_payment_required)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid)

    if on("collapse_slashes"):

        @app.middleware("http")
        async def collapse(
            request: Request, call_next: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            path = request.scope["path"]
            while "//" in path:
                path = path.replace("//", "/")
            if path != request.scope["path"]:
                query = f"?{request.url.query}" if request.url.query else ""
                return RedirectResponse(path + query, 308)
            return await call_next(request)

    return app
