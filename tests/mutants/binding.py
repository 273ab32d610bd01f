"""Defects of bindings: a payment that counts for something else than was asked for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from tests.mutants.change import Change, Service, freshness, leave_out, on_service, settlement_rule
from tests.mutants.middleware import Answer, Request, Serve, paths
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import AGENTS, PAY, QUOTE, SESSIONS, OtherIds, with_id
from tests.mutants.wrapper import Wrapper, collaborator
from x402sim.protocol.routes import MARKET
from x402sim.protocol.rules import Presented

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
    payment_id = request.headers.get("x-payment-id", "")
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
    """Tell whether two ids differ by one to six letters."""
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
binding("one-percent-less", "2.1/amount", "Amounts may differ by one percent.",
    amounts(lambda sent, issued: abs(sent / issued - 1) <= 0.01))  # fmt: skip
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
