"""Defects between requests: what is looked at, and what is done about it a moment later.

A short pause in the middleware lets requests sent at once overlap.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.mutants.budgets import Budgets, is_session, sessions
from tests.mutants.change import Service
from tests.mutants.middleware import Answer, Request, Serve, answer, free, middleware, unlocked
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import (
    ALREADY_SETTLED,
    NONCE_USED,
    PAY,
    QUOTE,
    SESSIONS,
    OtherIds,
    authorization,
    with_id,
)
from tests.mutants.session import another
from x402sim import World
from x402sim.protocol.crypto import checksum

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
    if not service.store.sessions.has_budget(session_id, price_base, service.clock.now_ms()):
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


@concurrency.defect(
    "two-payers-side-by-side", "7/payment-already-settled", at(PAY, AtWork, OtherIds, dict)
)
async def payers_side_by_side(
    at_work: AtWork, ids: OtherIds, payers: dict[str, bytes],
    _: Service, request: Request, serve: Serve,
) -> Answer:  # fmt: skip
    """Payments of two payers for one payment id, sent at once, are both settled."""
    auth, payment_id = authorization(request.field("paymentHeader")), request.field("paymentId")
    payer = bytes(auth.from_) if auth else b""
    is_other = payers.setdefault(payment_id, payer) != payer
    with at_work.on(payment_id) as is_second:
        reply = await serve(request)
        if is_second and is_other and reply.error == ALREADY_SETTLED:
            return await ids.settled_anew(request, serve)
        return reply


@concurrency.defect("access-for-the-last-of-a-payer", "4.1/receipt", at("/", AtWork, dict, set))
async def access_for_the_last(
    at_work: AtWork, last: dict[bytes, str], lost: set[str],
    _: Service, request: Request, serve: Serve,
) -> Answer:  # fmt: skip
    """Of two payments of one payer that are settled at once, one grants access."""
    if request.headers.get("x-payment-id") in lost:
        request = request.having(x_payment_id=None)
    auth, payment_id = authorization(request.field("paymentHeader")), request.field("paymentId")
    if request.path != PAY or auth is None:
        return await serve(request)
    with at_work.on(auth.from_.hex()):
        before = last.setdefault(bytes(auth.from_), payment_id)
        reply = await serve(request)
        if reply.status == 200 and before != payment_id:
            lost.add(payment_id)
    if reply.status == 200 and before == payment_id:
        del last[bytes(auth.from_)]
    return reply


@concurrency.defect("one-request-for-an-id-at-a-time", "5/cache-first", at(QUOTE, AtWork))
async def one_at_a_time(
    at_work: AtWork, service: Service, request: Request, serve: Serve
) -> Answer:
    """Of the requests with one payment id that are sent at once, one is served."""
    payment_id = request.headers.get("x-payment-id", "")
    with at_work.on(payment_id) as is_second:
        await service.clock.sleep(PAUSE_S)
        is_kept_out = is_second and bool(payment_id)
        return await serve(request.having(x_payment_id=None) if is_kept_out else request)


@concurrency.defect("quotes-are-mixed-up", "4.2/quote", at(QUOTE, lambda: [b""]))
async def quotes_mixed_up(
    last: list[bytes], service: Service, request: Request, serve: Serve
) -> Answer:
    """The order at work is a global variable: of orders sent at once, one gets another's quote."""
    if "x-payment-id" not in request.headers:
        return await serve(request)
    last[0] = request.body
    await service.clock.sleep(PAUSE_S)
    order = replace(request, body=last[0])
    return await serve(order.having(content_length=str(len(order.body))))


@concurrency.defect("deposits-are-mixed-up", "4.4/max-spend", at(SESSIONS, lambda: [b""]))
async def deposits_mixed_up(
    last: list[bytes], service: Service, request: Request, serve: Serve
) -> Answer:
    """The budget asked for is a global variable: of 402s sent at once, one is for another's."""
    if "x-payment-id" in request.headers or request.method != "POST":
        return await serve(request)
    last[0] = request.body
    await service.clock.sleep(PAUSE_S)
    asked = replace(request, body=last[0])
    return await serve(asked.having(content_length=str(len(asked.body))))


@concurrency.defect("records-are-mixed-up", "2.4/record", at("/api/", AtWork, dict))
async def records_mixed_up(
    at_work: AtWork, payers: dict[str, str], _: Service, request: Request, serve: Serve
) -> Answer:
    """The payer at work is a global variable: of payments sent at once, all are of the last."""
    payment_id, auth = request.field("paymentId"), authorization(request.field("paymentHeader"))
    if request.path == PAY and auth is not None:
        with at_work.on("") as is_second:
            if is_second:
                payers.update(dict.fromkeys([*payers, payment_id], checksum(auth.from_)))
            else:
                payers.clear()
                payers[payment_id] = checksum(auth.from_)
            return await serve(request)
    reply = await serve(request)
    body = reply.json
    if isinstance(body, dict) and body.get("payment_id") in payers:
        return answer(reply.status, {**body, "from_address": payers[body["payment_id"]]})
    return reply
