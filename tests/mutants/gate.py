"""Defects of the gate: who gets in without having paid, and who is kept out who has.

And of bindings: a payment that counts for something else than was paid for.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from tests.mutants.changes import (
    Change,
    Wrapper,
    all_of,
    collaborator,
    freshness,
    into,
    leave_out,
    on_service,
    overriding,
    setting,
    settlement_rule,
)
from tests.mutants.messages import Answer, Request, Serve, answer
from tests.mutants.middleware import at, instead, middleware, paths, requests
from tests.mutants.mutant import Kind
from tests.mutants.payments import OtherIds, let_in, with_id
from x402sim import World
from x402sim.protocol.routes import AGENTS, MARKET, PAY, QUOTE, SESSIONS
from x402sim.protocol.rules import Presented
from x402sim.protocol.states import PaymentState
from x402sim.service.state import Entitlement, Service

gate = Kind("gate")


def ids_open(when: Callable[[Service, str], bool]) -> Change:
    """Let some payment ids open every resource, besides those that are paid."""

    return overriding("entitlements", grants=lambda it, payment_id, *of: (
        when(it.service, payment_id) or it.inner.grants(payment_id, *of)
    ))  # fmt: skip


def ids_are_alike(key: Callable[[str], str]) -> Change:
    """Let a payment id open what another one has paid for, if a part of both is the same."""

    def change(world: World) -> World:
        known: dict[str, str] = {}  # it outlives a crash, as a database does

        def insert_pending(it: Any, claim: Any) -> Any:
            known[key(claim.payment_id)] = claim.payment_id
            return it.inner.insert_pending(claim)

        def grants(it: Any, payment_id: str, resource: str) -> bool:
            return bool(it.inner.grants(known.get(key(payment_id), payment_id), resource))

        return overriding("payments", insert_pending=insert_pending, grants=grants)(world)

    return change


def is_unknown(service: Service, request: Request) -> bool:
    session_id = request.headers.get("x-session-id")
    return session_id is not None and service.store.sessions.get(session_id) is None


# --- the defects ---

gate("unpaid-is-served", "1/unpaid-402", "The content is served without any proof of payment.",
    let_in(QUOTE, lambda service, request: True))  # fmt: skip
gate("a-header-of-the-standard-pays", "5/resource-binding",
    "Any X-PAYMENT is a proof of payment, whatever it holds.",
    let_in(QUOTE, lambda service, request: "x-payment" in request.headers))  # fmt: skip
gate("a-gateway-is-believed", "5/resource-binding", "X-Payment-Verified is believed of everybody.",
    let_in(QUOTE, lambda service, request: "x-payment-verified" in request.headers))  # fmt: skip
gate("free-to-get", "kit/7/other-methods", "The gate guards POST only: GET serves the content.",
    instead(QUOTE, answer(200, {"quote": {"pair": "BTC-USD"}}), lambda it: it.method == "GET"))  # fmt: skip


@gate.defect("open-without-the-facilitator", "1/unpaid-402")
def open_without_the_facilitator(world: World) -> World:
    """Once a payment could not be verified, everybody is served until one can be again."""
    is_down: set[bool] = set()

    async def notes(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        if reply.status >= 500:
            is_down.add(True)
        else:
            is_down.clear()
        return reply

    opens = let_in(QUOTE, lambda service, request: bool(is_down))
    return all_of(opens, middleware(notes, PAY))(world)


gate("any-id-opens", "5/stored-records", "Whatever begins with pay_ is a proof of payment.",
    ids_open(lambda service, payment_id: payment_id.startswith("pay_")),
    broad="whatever is refused is served all the same")  # fmt: skip
gate("issued-id-opens", "5/stored-records",
    "A payment id opens as soon as it is issued, paid or not.",
    ids_open(lambda service, payment_id: service.issuer.read(payment_id) is not None),
    broad="whatever is refused is served all the same")  # fmt: skip


@gate.defect("pending-id-opens", "5/stored-records", into("payments.grants"))
def pending_opens(it: Any, payment_id: str, resource: str) -> bool:
    """A payment opens while its settlement is still unknown."""
    stored = it.inner.get(payment_id)
    if stored is None or stored.resource_url != resource:
        return False
    is_unknown = stored.is_pending and stored.state is not PaymentState.NOT_SUBMITTED
    return is_unknown or stored.state is PaymentState.SETTLED


@gate.defect(
    "verified-id-opens",
    "4.1/order",
    into("payments.insert_pending"),
    broad="whatever was verified and not settled is served",
)
def claim_opens(it: Any, claim: Any) -> Any:
    """The entitlement is cached once the payment is claimed, before any money moves."""
    claimed = it.inner.insert_pending(claim)
    if claimed is not None:
        now_ms = it.service.clock.now_ms()
        paid = Entitlement(claim.payment_id, claim.resource_url, "", now_ms)
        it.service.entitlements.add(paid)
    return claimed


gate("id-in-any-case", "5/stored-records",
    "Payment ids are compared without regard to upper and lower case.",
    ids_are_alike(str.lower))  # fmt: skip
gate("beginning-of-an-id-opens", "5/stored-records", "The first letters of a paid id are enough.",
    ids_are_alike(lambda payment_id: payment_id[:40]))  # fmt: skip


@gate.defect("wildcards-in-an-id", "5/stored-records", into("payments.grants"))
def like_grants(it: Any, *asked: str) -> bool:
    """Payment ids are compared with LIKE: one with a percent sign is all that were paid."""
    sql = (
        "SELECT 1 FROM payments WHERE payment_id LIKE ? AND resource_url = ? AND status = 'settled'"
    )
    return it.service.store.execute(sql, *asked).fetchone() is not None


gate("forgotten-after-a-day", "3/record-outlives-cache",
    "Only the cache is asked: after 24 hours, who has paid is kept out.",
    overriding("payments", grants=lambda it, *_: False))  # fmt: skip
gate("never-cached", "4.1/cache",
    "The entitlement is not cached: every request reads the database.",
    overriding("entitlements", add=lambda it, _: None))  # fmt: skip
gate("cached-for-a-month", "8/cache-lifetime 3/discarded-after-24h",
    "Cached entitlements live thirty days.",
    setting(entitlement_lifetime_s=30 * 86400))  # fmt: skip
gate("cached-for-an-hour", "8/cache-lifetime", "Cached entitlements live one hour.",
    setting(entitlement_lifetime_s=3600))  # fmt: skip
gate("swept-once-a-day", "8/cache-sweep", "Expired entitlements are cleared once a day.",
    setting(entitlement_sweep_s=86400))  # fmt: skip
gate("session-header-is-not-read", "1/session-no-402",
    "X-Session-Id is ignored: who has a session gets a 402 all the same.",
    requests(QUOTE, lambda request: request.having(x_session_id=None)))  # fmt: skip
gate("any-session-opens", "5/session-condition", "A session that does not exist is served.",
    let_in(QUOTE, is_unknown))  # fmt: skip


@gate.defect("payment-is-good-once", "5/cache-first")
def good_once(world: World) -> World:
    """A payment opens its resource once."""
    used: set[str] = set()

    def grants(it: Any, payment_id: str, *of: Any) -> bool:
        return payment_id not in used and bool(it.inner.grants(payment_id, *of))

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        if reply.status == 200:
            used.add(request.payment_id)
        return reply

    unused = [overriding(each, grants=grants) for each in ("entitlements", "payments")]
    return all_of(*unused, middleware(handler, QUOTE))(world)


# --- bindings --------------------------------------------------------------------------------


binding = Kind("binding")


def amounts(fit: Callable[[int, int], bool]) -> Change:
    """Take requirements whose amount, as sent back, fits the one that was issued."""
    return settlement_rule("2.1/amount", lambda case: fit(
        int(case.requirements.max_amount_required), int(case.issued.max_amount_required)
    ))  # fmt: skip


def is_fresh_as_said(case: Presented) -> bool:
    """Tell whether the timeout that is sent back has not passed."""
    more_s = case.requirements.max_timeout_seconds - case.issued.max_timeout_seconds
    return case.now_s <= case.expires_s + more_s


async def opens_what_came_back(
    opens: dict[str, str], _: Service, request: Request, serve: Serve
) -> Answer:
    """Let a payment open the resource of the requirements that were sent with it, and no other."""
    payment_id = request.payment_id
    if opens.get(payment_id, request.path) != request.path:
        return await serve(request.having(x_payment_id=None))
    reply = await serve(request)
    body: Any = request.json
    if request.path == PAY and reply.status == 200:
        opens[body["paymentId"]] = body["paymentRequirements"]["resource"]
    return reply


class AnyResource(Wrapper):
    """A cache, or a store, that compares the payment id only."""

    def grants(self, payment_id: str, _: str, *now_ms: int) -> bool:
        resources = (QUOTE, SESSIONS, AGENTS)
        return any(self.inner.grants(payment_id, each, *now_ms) for each in resources)


class EitherPath(Wrapper):
    """A cache, or a store, in which the two paths with one price are one resource."""

    def grants(self, payment_id: str, resource: str, *now_ms: int) -> bool:
        resources = (QUOTE, MARKET) if resource in (QUOTE, MARKET) else (resource,)
        return any(self.inner.grants(payment_id, each, *now_ms) for each in resources)


def is_alike(one: str, other: str) -> bool:
    differences = sum(a != b for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and 0 < differences <= 6


# --- the defects ---

for name in ("scheme", "network", "pay-to", "asset", "amount"):
    does = f"Requirements are taken whatever their {name} is."
    binding(f"any-{name}", f"2.1/{name}", does, leave_out("settlement", f"2.1/{name}"))
binding("requirements-live-for-ever", "2.1/validity",
    "Requirements can be paid after maxTimeoutSeconds.",
    leave_out("freshness", "2.1/validity"))  # fmt: skip
binding("requirements-end-early", "2.1/validity",
    "Requirements that say 300 seconds can be paid for one minute.",
    freshness(lambda case: case.now_s <= case.expires_s - 240))  # fmt: skip
binding("less-is-enough", "2.1/amount",
    "Requirements with a smaller amount than was issued are taken.",
    amounts(lambda sent, issued: sent <= issued))  # fmt: skip
binding("more-is-welcome", "2.1/amount",
    "Requirements with a larger amount than was issued are taken.",
    amounts(lambda sent, issued: sent >= issued))  # fmt: skip
binding("payee-by-its-beginning", "2.1/pay-to", "Only the first letters of payTo are compared.",
    settlement_rule("2.1/pay-to", lambda case:
        case.requirements.pay_to.lower()[:10] == case.issued.pay_to.lower()[:10]))  # fmt: skip
binding("resource-is-believed", "2.1/resource", "A payment opens the resource that is sent back.",
    leave_out("settlement", "2.1/resource"), at("/", dict)(opens_what_came_back))  # fmt: skip
binding("timeout-is-believed", "2.1/timeout",
    "Requirements can be paid as long as the timeout that is sent back.",
    leave_out("settlement", "2.1/timeout"), freshness(is_fresh_as_said))  # fmt: skip
binding("requirements-are-believed", "2.1/amount 2.1/pay-to",
    "What the payer sends back is taken for what was issued.",
    on_service(lambda service: replace(service, settlement_rules=())))  # fmt: skip


@binding.defect("invented-ids-settle", "2.2/payment-id", at("/", OtherIds))
async def unknown_ids_settle(
    other: OtherIds, service: Service, request: Request, serve: Serve
) -> Answer:
    """A payment id that was never issued settles like any other."""
    payment_id = request.field("paymentId")
    is_payable = request.path == PAY and request.field("paymentHeader")
    if is_payable and payment_id.startswith("pay_") and not service.issuer.read(payment_id):
        return await other.settled_anew(request, serve)
    return await serve(other.of(request))


@binding.defect("altered-ids-settle", "2.2/payment-id", at("/", OtherIds, list))
async def altered_ids_settle(
    other: OtherIds, issued: list[str], _: Service, request: Request, serve: Serve
) -> Answer:
    """The seal of a payment id is not compared, so an altered one settles."""
    payment_id = request.field("paymentId")
    original = next((each for each in issued if is_alike(each, payment_id)), payment_id)
    if request.path != PAY or original == payment_id:
        reply = await serve(other.of(request))
        if reply.status == 402:
            issued.append(reply.json.get("paymentId", ""))
        return reply
    body: Any = request.json
    reply = await serve(request.sending({**body, "paymentId": original}))
    if reply.status != 200:
        return reply
    other[payment_id] = original
    return with_id(reply, payment_id)


binding("cache-forgets-the-resource", "5/resource-binding",
    "A cached entitlement opens every resource: a session's deposit also buys quotes.",
    collaborator(entitlements=AnyResource))  # fmt: skip
binding("records-forget-the-resource", "5/resource-binding",
    "A stored payment opens every resource.", collaborator(payments=AnyResource))  # fmt: skip
binding("one-path-for-the-other", "5/resource-binding",
    "What is paid for the market opens the quote, too, and the other way round.",
    collaborator(entitlements=EitherPath, payments=EitherPath))  # fmt: skip
binding("path-by-its-beginning", "5/resource-binding",
    "A payment also opens the paths that begin with the path paid for.",
    paths(lambda path: QUOTE if path.startswith(QUOTE) else path))  # fmt: skip
binding("path-in-any-case", "5/resource-binding", "A payment also opens the path in upper case.",
    paths(lambda path: QUOTE if path.lower() == QUOTE else path))  # fmt: skip
binding("path-decoded-twice", "5/resource-binding", "Percent signs in the path are decoded twice.",
    paths(unquote))  # fmt: skip
