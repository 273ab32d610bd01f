"""Defects against replay: what was used once, and is taken again, later or at once.

A short pause in the middleware lets requests sent at once overlap.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.mutants.changes import Change, overriding
from tests.mutants.messages import Answer, Request, Serve, answer
from tests.mutants.middleware import at
from tests.mutants.mutant import Kind
from tests.mutants.payments import (
    ALREADY_SETTLED,
    INVALID_SIGNATURE,
    NONCE_USED,
    OtherIds,
    authorization,
    free,
    opening,
    with_id,
)
from x402sim import World
from x402sim.protocol.crypto import checksum
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.routes import PAY, QUOTE, SESSIONS
from x402sim.service.state import Service
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import Moved

replay = Kind("replay")


@dataclass(slots=True)
class Seen:
    """An authorization that has paid: as which text, for which id, with which receipt."""

    header: str
    payment_id: str
    receipt: Answer


@dataclass(slots=True)
class Payments:
    """What middleware knows of the payments so far."""

    ids: OtherIds = field(default_factory=OtherIds)
    by_nonce: dict[tuple[bytes, bytes], Seen] = field(default_factory=dict)
    by_id: dict[str, Seen] = field(default_factory=dict)

    def note(self, request: Request, reply: Answer) -> None:
        """Remember a settled payment."""
        seen = Seen(request.field("paymentHeader"), request.field("paymentId"), reply)
        self.by_id[seen.payment_id] = seen
        auth = authorization(seen.header)
        if auth is not None:
            self.by_nonce[bytes(auth.from_), auth.nonce] = seen

    def paid_by(self, header: str) -> Seen | None:
        """Return what an authorization has paid for."""
        auth = authorization(header)
        return self.by_nonce.get((bytes(auth.from_), auth.nonce)) if auth else None

    def pay_for_another(self, seen: Seen, payment_id: str) -> Answer:
        """Let an authorization pay for one more id; return the receipt."""
        self.ids[payment_id] = seen.payment_id
        return with_id(seen.receipt, payment_id)


def used_authorizations_pay(
    when: Callable[[Request, Seen], bool], refused: str = NONCE_USED
) -> Change:
    """Let an authorization that has paid for one id pay for others too, in some cases.

    They would be `refused` with this text.
    """

    async def handler(payments: Payments, _: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(payments.ids.of(request))
        if request.path != PAY:
            return reply
        if reply.status == 200:
            payments.note(request, reply)
            return reply
        seen = payments.paid_by(request.field("paymentHeader"))
        if reply.error == refused and seen and when(request, seen):
            return payments.pay_for_another(seen, request.field("paymentId"))
        return reply

    return at("/", Payments)(handler)


# --- the defects ---


@replay.defect("facilitator-is-believed", "5/nonce-once", at("/", Payments))
async def facilitator_is_believed(
    payments: Payments, service: Service, request: Request, serve: Serve
) -> Answer:
    """A used authorization pays for another id if the facilitator says that it has settled it."""
    reply = await serve(payments.ids.of(request))
    if request.path == PAY and reply.status == 200:
        payments.note(request, reply)
    seen = payments.paid_by(request.field("paymentHeader"))
    terms = service.issuer.read(request.field("paymentId"))
    if request.path != PAY or reply.error != NONCE_USED or seen is None or terms is None:
        return reply
    wanted = service.issuer.requirements(terms.resource, terms.amount_base)
    try:
        outcome = await service.facilitator.settle(present(request.field("paymentHeader")), wanted)
    except (Unavailable, OutcomeUnknown):
        return reply
    is_settled = isinstance(outcome, Moved)
    return payments.pay_for_another(seen, request.field("paymentId")) if is_settled else reply


replay("authorization-pays-for-many", "7/nonce-already-used",
    "An authorization that has paid for one id is found on the chain, and pays for another.",
    used_authorizations_pay(lambda request, seen: True))  # fmt: skip
replay("authorization-by-its-text", "5/nonce-once",
    "Used authorizations are known by their header's text: another spelling passes.",
    used_authorizations_pay(lambda request, seen: request.field("paymentHeader") != seen.header))  # fmt: skip
replay("authorization-by-the-chain-alone", "5/nonce-once",
    "After any refusal the chain is asked for the authorization: with a broken signature, "
    "one that has paid for an id pays for another.",
    used_authorizations_pay(lambda request, seen: True, INVALID_SIGNATURE))  # fmt: skip


@replay.defect("lost-authorization-pays-for-two", "5/nonce-once")
def lost_authorization_pays_for_two(world: World) -> World:
    """A transfer whose settlement's answer was lost is found for each id that it was sent for."""
    lost: set[str] = set()

    async def settle(it: Any, payment: PresentedPayment, requirements: Any) -> Any:
        try:
            return await it.inner.settle(payment, requirements)
        except OutcomeUnknown:
            lost.add(payment.text)
            raise

    loses = overriding("facilitator", settle=settle)
    is_lost = used_authorizations_pay(lambda request, seen: seen.header in lost)
    return is_lost(loses(world))


@replay.defect("paid-id-is-paid-again", "7/payment-already-settled", at("/", Payments))
async def settles(payments: Payments, _: Service, request: Request, serve: Serve) -> Answer:
    """A second authorization for a paid id is settled too: the payer is charged twice."""
    reply = await serve(request)
    header = request.field("paymentHeader")
    if reply.error == ALREADY_SETTLED and payments.paid_by(header) is None:
        reply = await payments.ids.settled_anew(request, serve)
    if request.path == PAY and reply.status == 200:
        payments.note(request, reply)
    return reply


@replay.defect("paid-id-gets-its-receipt", "7/payment-already-settled", at(PAY, Payments))
async def has_a_receipt(payments: Payments, _: Service, request: Request, serve: Serve) -> Answer:
    """Settling a paid id once more is answered with its receipt."""
    reply = await serve(request)
    if reply.status == 200:
        payments.note(request, reply)
    seen = payments.by_id.get(request.field("paymentId"))
    return seen.receipt if reply.error == ALREADY_SETTLED and seen else reply


# --- at once ---------------------------------------------------------------------------------


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
    auth = request.authorization
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


@concurrency.defect("budget-asked-too-early", "5/session-debit", opening(QUOTE))
async def compared_too_early(service: Service, request: Request, serve: Serve) -> Answer:
    """The budget is compared first and debited later: requests sent at once overdraw it."""
    session_id, price_base = request.session_id, service.env.quote_price_base
    if not service.store.sessions.has_budget(session_id, price_base, service.clock.now_ms()):
        return await serve(request)
    await service.clock.sleep(PAUSE_S)
    reply = await serve(request)
    return await serve(free(request)) if reply.status == 402 else reply


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


@concurrency.defect("access-for-the-last-of-a-payer", "4.1/receipt", at("/", AtWork, dict, set))
async def access_for_the_last(
    at_work: AtWork, last: dict[bytes, str], lost: set[str],
    _: Service, request: Request, serve: Serve,
) -> Answer:  # fmt: skip
    """Of two payments of one payer that are settled at once, one grants access."""
    if request.headers.get("x-payment-id") in lost:
        request = request.having(x_payment_id=None)
    auth, payment_id = request.authorization, request.field("paymentId")
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
    payment_id = request.payment_id
    with at_work.on(payment_id) as is_second:
        await service.clock.sleep(PAUSE_S)
        is_kept_out = is_second and bool(payment_id)
        return await serve(request.having(x_payment_id=None) if is_kept_out else request)


async def the_last_body(
    last: list[bytes], service: Service, request: Request, serve: Serve
) -> Answer:
    """Serve a request with the body of the one that came last, in a moment."""
    last[0] = request.body
    await service.clock.sleep(PAUSE_S)
    other = replace(request, body=last[0])
    return await serve(other.having(content_length=str(len(other.body))))


@concurrency.defect("quotes-are-mixed-up", "4.2/quote", at(QUOTE, lambda: [b""]))
async def quotes_mixed_up(
    last: list[bytes], service: Service, request: Request, serve: Serve
) -> Answer:
    """The order at work is a global variable: of orders sent at once, one gets another's quote."""
    if "x-payment-id" not in request.headers:
        return await serve(request)
    return await the_last_body(last, service, request, serve)


@concurrency.defect("deposits-are-mixed-up", "4.4/max-spend", at(SESSIONS, lambda: [b""]))
async def deposits_mixed_up(
    last: list[bytes], service: Service, request: Request, serve: Serve
) -> Answer:
    """The budget requested is a global variable: of 402s sent at once, one is for another's."""
    if "x-payment-id" in request.headers or request.method != "POST":
        return await serve(request)
    return await the_last_body(last, service, request, serve)


@concurrency.defect("records-are-mixed-up", "2.4/record", at("/api/", AtWork, dict))
async def records_mixed_up(
    at_work: AtWork, payers: dict[str, str], _: Service, request: Request, serve: Serve
) -> Answer:
    """The payer at work is a global variable: of payments sent at once, all are of the last."""
    payment_id, auth = request.field("paymentId"), request.authorization
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
