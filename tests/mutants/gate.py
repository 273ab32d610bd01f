"""Defects of the gate: who gets in without having paid, and who is kept out who has."""

from collections.abc import Callable
from typing import Any

from tests.mutants.change import Change, Service, all_of, setting
from tests.mutants.middleware import Answer, Request, Serve, answer, let_in, middleware, requests
from tests.mutants.mutant import Kind, at, into
from tests.mutants.paying import PAY, QUOTE
from tests.mutants.wrapper import overriding
from x402sim import World
from x402sim.protocol.states import PaymentState
from x402sim.service.state import Entitlement

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
    """Tell whether a request names a session that does not exist."""
    session_id = request.headers.get("x-session-id")
    return session_id is not None and service.store.sessions.get(session_id) is None


# --- the defects ---

gate("unpaid-is-served", "1/unpaid-402", "The content is served without any proof of payment.",
    let_in(QUOTE, lambda service, request: True))  # fmt: skip


@gate.defect("free-to-get", "kit/7/other-methods", at("/"))
async def free_to_get(_: Service, request: Request, serve: Serve) -> Answer:
    """The gate guards POST only: GET serves the content."""
    if (request.method, request.path) == ("GET", QUOTE):
        return answer(200, {"quote": {"pair": "BTC-USD"}})
    return await serve(request)


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
    is_unknown = stored.status == "pending" and stored.state is not PaymentState.NOT_SUBMITTED
    return is_unknown or stored.status == "settled"


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
            used.add(request.headers.get("x-payment-id", ""))
        return reply

    unused = [overriding(each, grants=grants) for each in ("entitlements", "payments")]
    return all_of(*unused, middleware(handler, QUOTE))(world)
