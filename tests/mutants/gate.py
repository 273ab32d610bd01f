"""Defects of the gate: who gets in without having paid, and who is kept out who has."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.mutants.change import around, edit, setting
from tests.mutants.mutant import Kind
from x402sim.service import app, payments
from x402sim.service import gate as gate_of_service
from x402sim.service import grant as granting
from x402sim.service.issue import QUOTE
from x402sim.service.store import Store

gate = Kind("gate")


def free_to_get(service: ASGIApp) -> ASGIApp:
    """Answer GET with the content."""

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["method"], scope["path"]) == ("GET", QUOTE):
            await JSONResponse({"quote": {"pair": "BTC-USD"}})(scope, receive, send)
        else:
            await service(scope, receive, send)

    return door


ROWS = (
    gate(
        "unpaid-is-served",
        "1/unpaid-402",
        "The content is served without any proof of payment.",
        edit(
            app.perp_quote,
            "granted = gate.ask(service, request.headers, QUOTE, price)",
            "granted = gate.Pass(QUOTE, price)",
        ),
    ),
    gate(
        "free-to-get",
        "kit/7/other-methods",
        "The gate stands before POST only: GET serves the content.",
        around(free_to_get),
    ),
    gate(
        "any-id-opens",
        "5/stored-records",
        "Whatever begins with pay_ is a proof of payment.",
        edit(
            gate_of_service.is_entitled,
            "return service.entitlements",
            'return payment_id.startswith("pay_") or service.entitlements',
        ),
        broad="whatever is refused is served all the same",
    ),
    gate(
        "issued-id-opens",
        "5/stored-records",
        "A payment id opens as soon as it is issued, paid or not.",
        edit(
            gate_of_service.is_entitled,
            "return service.entitlements",
            "return service.issuer.read(payment_id) is not None or service.entitlements",
        ),
        broad="whatever is refused is served all the same",
    ),
    gate(
        "pending-id-opens",
        "5/stored-records",
        "A payment opens while its settlement is still unknown.",
        edit(Store.grants, "AND status = 'settled'", "AND status != 'failed'"),
        needs="world",
    ),
    gate(
        "verified-id-opens",
        "4.1/order",
        "The entitlement is cached once the signature is verified, before any money moves.",
        edit(
            payments.verify,
            "    if not verdict.is_valid:",
            "    if verdict.is_valid:\n"
            "        from x402sim.service.entitlements import Entitlement\n"
            "        now_ms = service.clock.now_ms()\n"
            "        paid = Entitlement(request.payment_id, requirements.resource, '', now_ms)\n"
            "        service.entitlements.add(paid)\n"
            "    if not verdict.is_valid:",
        ),
        broad="whatever was verified and not settled is served",
    ),
    gate(
        "id-in-any-case",
        "5/stored-records",
        "Payment ids are compared without regard to upper and lower case.",
        edit(Store.grants, "payment_id = ?", "payment_id = ? COLLATE NOCASE"),
    ),
    gate(
        "beginning-of-an-id-opens",
        "5/stored-records",
        "The first letters of a paid id are enough.",
        edit(Store.grants, "payment_id = ?", "substr(payment_id, 1, 40) = substr(?, 1, 40)"),
    ),
    gate(
        "forgotten-after-a-day",
        "3/record-outlives-cache",
        "Only the cache is asked: after 24 hours, who has paid is kept out.",
        edit(
            gate_of_service.is_entitled,
            " or service.store.grants(\n        payment_id, resource\n    )",
            "",
        ),
        needs="clock",
    ),
    gate(
        "never-cached",
        "4.1/cache",
        "The entitlement is not cached: every request reads the database.",
        edit(granting.grant, "service.entitlements.add(", "("),
        needs="clock world",
    ),
    gate(
        "cached-for-a-month",
        "8/cache-lifetime 3/discarded-after-24h",
        "Cached entitlements live thirty days.",
        setting(entitlement_lifetime_s=30 * 86400),
        needs="clock world",
    ),
    gate(
        "cached-for-an-hour",
        "8/cache-lifetime",
        "Cached entitlements live one hour.",
        setting(entitlement_lifetime_s=3600),
        needs="clock world",
    ),
    gate(
        "swept-once-a-day",
        "8/cache-sweep",
        "Expired entitlements are cleared once a day.",
        setting(entitlement_sweep_s=86400),
        needs="clock world",
    ),
    gate(
        "session-header-is-not-read",
        "1/session-no-402",
        "X-Session-Id is ignored: who has a session gets a 402 all the same.",
        edit(gate_of_service.ask, 'headers.get("x-session-id")', "None"),
    ),
    gate(
        "any-session-opens",
        "5/session-condition",
        "A session that does not exist is served, as nothing can be found against it.",
        edit(gate_of_service.can_spend, "session is not None\n        and ", "session is None or "),
        edit(
            gate_of_service.spend,
            "if granted.session_id is None:",
            "if granted.session_id is None or not service.store.session(granted.session_id):",
        ),
    ),
)
