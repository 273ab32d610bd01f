"""Defects between requests: what is looked at, and what is done about it a moment later.

A short pause in the middleware lets requests sent at once overlap.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.mutants.budgets import Budgets, is_session, sessions
from tests.mutants.change import Service
from tests.mutants.middleware import Answer, Request, Serve, answer, free, middleware, unlocked
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import (
    ALREADY_SETTLED,
    NONCE_USED,
    PAY,
    QUOTE,
    OtherIds,
    authorization,
    with_id,
)
from tests.mutants.session import another
from x402sim import World

concurrency = Kind("concurrency")
PAUSE_S = 0.01


class AtWork:
    """Counts the requests at work by a key."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    @contextmanager
    def on(self, key: str) -> Iterator[bool]:
        """Be at work; yields whether another request with this key is, too."""
        is_second = self._count[key] > 0
        self._count[key] += 1
        try:
            yield is_second
        finally:
            self._count[key] -= 1


async def compared_too_early(service: Service, request: Request, serve: Serve) -> Answer:
    """Serve a session that had enough left a moment ago."""
    session_id, price_base = (
        request.headers.get("x-session-id", ""),
        service.env.quote_price_base,
    )
    if not service.store.sessions.can_pay(session_id, price_base, service.clock.now_ms()):
        return await serve(request)
    await service.clock.sleep(PAUSE_S)
    reply = await serve(request)
    return await serve(free(request)) if reply.status == 402 else reply


# --- the defects ---


@concurrency.defect(
    "one-id-settled-side-by-side", "7/payment-already-settled", at(PAY, AtWork, OtherIds)
)
async def ids_side_by_side(
    at_work: AtWork, ids: OtherIds, _: Service, request: Request, serve: Serve
) -> Answer:
    """Two authorizations for one payment id, sent at once, are both settled."""
    with at_work.on(request.field("paymentId")) as is_second:
        reply = await serve(request)
        if is_second and reply.error == ALREADY_SETTLED:
            return await ids.settled_anew(request, serve)
        return reply


@concurrency.defect(
    "one-authorization-side-by-side", "5/nonce-once", at("/", AtWork, OtherIds, dict)
)
async def authorizations_side_by_side(
    at_work: AtWork, ids: OtherIds, receipts: dict[str, Answer],
    service: Service, request: Request, serve: Serve,
) -> Answer:  # fmt: skip
    """An authorization sent at once for two payment ids pays for both."""
    auth = authorization(request.field("paymentHeader"))
    if request.path != PAY or auth is None:
        return await serve(ids.of(request))
    key = auth.from_.hex() + auth.nonce.hex()
    with at_work.on(key) as is_second:
        reply = await serve(request)
        if reply.status == 200:
            receipts[key] = reply
        await service.clock.sleep(PAUSE_S)
        if is_second and reply.error == NONCE_USED and key in receipts:
            ids[request.field("paymentId")] = receipts[key].json["paymentId"]
            return with_id(receipts[key], request.field("paymentId"))
        return reply


async def debits_overwrite(
    at_work: AtWork, service: Service, request: Request, serve: Serve
) -> Answer:
    """Debit one of the requests sent at once."""
    session_id = request.headers.get("x-session-id", "")
    if service.store.sessions.get(session_id) is None:
        return await serve(request)
    with at_work.on(session_id) as is_second:
        await service.clock.sleep(PAUSE_S)
        return await serve(free(request) if is_second else request)


concurrency("debits-overwrite-each-other", "5/session-debit",
    "Released is read, raised and written back: of requests sent at once one is debited.",
    unlocked, at(QUOTE, AtWork)(debits_overwrite))  # fmt: skip
concurrency("budget-asked-too-early", "5/session-debit",
    "The budget is compared first and debited later: requests sent at once overdraw it.", unlocked,
    middleware(compared_too_early, QUOTE))  # fmt: skip


@concurrency.defect("two-sessions-side-by-side", "3/deposit-makes-session")
def sessions_side_by_side(world: World) -> World:
    """A paid request sent several times at once opens a session each time."""
    made: list[str] = []

    async def claimed(
        service: Service, budgets: Budgets, request: Request, reply: Answer
    ) -> Answer:
        payment_id = request.headers["x-payment-id"]
        if not is_session(reply) or payment_id in made:
            return reply
        await service.clock.sleep(PAUSE_S)
        made.append(payment_id)
        return another(budgets, reply)

    return sessions(claimed)(world)


@concurrency.defect("receipts-are-mixed-up", "4.1/receipt", at(PAY, lambda: [""]))
async def mixed_up(last: list[str], service: Service, request: Request, serve: Serve) -> Answer:
    """The payment at work is a global variable: of payments sent at once, one gets the
    receipt of another."""
    last[0] = request.field("paymentId")
    reply = await serve(request)
    stored = service.store.payments.get(last[0])
    if reply.status != 200 or stored is None:
        return reply
    shown = {"paymentId": last[0], "txHash": str(stored.tx_hash)}
    return answer(200, {**reply.json, **shown})
