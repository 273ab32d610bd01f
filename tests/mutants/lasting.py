"""Defects that one fixed order, one session, and a service that never restarts do not show.

Time shows them, a restart, or another payment of the same payer.

What was refused leaves a trace, and a good payment is refused for it. What comes often: what is
right for one payment is wrong for the twentieth.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from tests.mutants.changes import Change, Wrapper, all_of, collaborator, into, overriding
from tests.mutants.gate import gate
from tests.mutants.indexer import indexer
from tests.mutants.malformed import BALANCE, EXPIRED, REFUSALS, payload
from tests.mutants.messages import Answer, Request, Serve, answer
from tests.mutants.middleware import at, middleware
from tests.mutants.mutant import Kind
from tests.mutants.payments import ALREADY_SETTLED, INVALID_SIGNATURE, NONCE_USED
from tests.mutants.required import content, dearer, required, requirements
from tests.mutants.session import session
from tests.mutants.settlement import settlement
from x402sim import World
from x402sim.protocol.routes import PAY, QUOTE, SESSIONS
from x402sim.protocol.states import PaymentState
from x402sim.service.state import Service

LARGE_USD = 100_000
FORGETS_MS = 100_000
"""After this, a forgetful service knows nothing of a payment."""


def deposit_shows(**fields: str) -> Change:
    """Show other requirements in the 402 of a deposit, and take them back as they are meant."""

    def change(world: World) -> World:
        meant: dict[str, Any] = {}

        async def offer(_: Service, request: Request, serve: Serve) -> Answer:
            reply = await serve(request)
            body = reply.json
            if reply.status != 402:
                return reply
            meant[body["paymentId"]] = body["paymentRequirements"]
            shown = {**body["paymentRequirements"], **fields}
            network = fields.get("network", body["network"])
            return answer(402, {**body, "paymentRequirements": shown, "network": network})

        async def pay(_: Service, request: Request, serve: Serve) -> Answer:
            asked = request.json
            if request.field("paymentId") not in meant or not isinstance(
                asked.get("paymentRequirements"), dict
            ):
                return await serve(request)
            before = {name: meant[asked["paymentId"]][name] for name in fields}
            wanted = {**asked["paymentRequirements"], **before}
            return await serve(request.sending({**asked, "paymentRequirements": wanted}))

        return all_of(middleware(offer, SESSIONS), middleware(pay, PAY))(world)

    return change


class SessionsInMemory(Wrapper):
    """A store that knows the sessions only that were paid since it was opened."""

    def __init__(self, inner: Any, service: Service) -> None:
        super().__init__(inner, service)
        self._begun_ms = service.clock.now_ms()

    def has_budget(self, session_id: str, *of: Any) -> bool:
        return self._is_known(session_id) and bool(self.inner.has_budget(session_id, *of))

    def debit(self, session_id: str, *of: Any) -> Any:
        return self.inner.debit(session_id, *of) if self._is_known(session_id) else None

    def _is_known(self, session_id: str) -> bool:
        found = self.inner.get(session_id)
        deposit = found and self.service.store.payments.get(found.payment_id)
        return bool(deposit and deposit.timestamp > self._begun_ms)


class ForgetsTheEarlier(Wrapper):
    """A store whose indexer sees only what was paid since it was opened."""

    def unindexed(self, limit: int) -> Any:
        first = self.__dict__.setdefault("first", self.service.clock.now_ms())
        return [each for each in self.inner.unindexed(limit) if each.timestamp >= first]


class GrantsWhatIsPending(Wrapper):
    """A store whose records grant, whatever their status is."""

    def grants(self, payment_id: str, resource: str) -> bool:
        stored = self.inner.get(payment_id)
        return stored is not None and bool(stored.resource_url == resource)


def after_a_restart(**wrappers: Any) -> Change:
    """Wrap collaborators of the service once it has restarted."""

    def change(world: World) -> World:
        starts: list[Service] = []

        def made(wrapper: Any) -> Any:
            def wrap(inner: Any, service: Service) -> Any:
                starts.append(service)
                return wrapper(inner, service) if len(starts) > 1 else inner

            return wrap

        return collaborator(**{name: made(each) for name, each in wrappers.items()})(world)

    return change


# --- the defects ---

required("no-description", "2.1/description-shown", "A 402 has no description.",
    requirements(description=None))  # fmt: skip
required("deposit-on-another-network", "4.4/deposit-402", "The 402 of a deposit names the mainnet.",
    deposit_shows(network="cronos-mainnet"))  # fmt: skip
required("deposit-for-the-quote", "4.4/deposit-402",
    "The 402 of a deposit has the resource of a quote.", deposit_shows(resource=QUOTE))  # fmt: skip


@gate.defect("what-the-payer-has-paid-opens", "5/resource-binding", into("payments"))
class KnowsThePayer(Wrapper):
    """A payment opens whatever its payer has paid for with another one."""

    def mark_settled(self, attempt: int, *of: Any) -> bool:
        is_settled: bool = self.inner.mark_settled(attempt, *of)
        stored = self.inner.attempt(attempt)
        self.paid = {*self.paid, (stored.from_address, stored.resource_url)}
        return is_settled

    paid: set[tuple[str, str]] = set()

    def grants(self, payment_id: str, resource: str) -> bool:
        stored = self.inner.get(payment_id)
        is_settled = stored is not None and stored.state is PaymentState.SETTLED
        if is_settled and (stored.from_address, resource) in self.paid:
            return True
        return bool(self.inner.grants(payment_id, resource))


@gate.defect(
    "payments-are-forgotten",
    "5/stored-records",
    broad="whatever looks at a payment after minutes finds nothing",
)
def forgets(world: World) -> World:
    """Cached entitlement and record are dropped after a hundred seconds."""
    served_ms: dict[str, int] = {}

    def grants(it: Any, payment_id: str, *of: Any) -> bool:
        stored, now_ms = it.service.store.payments.get(payment_id), it.service.clock.now_ms()
        if stored is not None:
            served_ms.setdefault(payment_id, stored.timestamp)
        age_ms = now_ms - served_ms.get(payment_id, now_ms)
        return age_ms < FORGETS_MS and bool(it.inner.grants(payment_id, *of))

    both = [overriding(each, grants=grants) for each in ("entitlements", "payments")]
    return all_of(*both)(world)


@session.defect("ids-count-up-from-1000", "kit/2.6/session-ids")
def counting(world: World) -> World:
    """Session ids are session_1000, session_1001 and so on."""
    real: dict[str, str] = {}

    def shown(session_id: str) -> str:
        names = {it: name for name, it in real.items()}
        name = names.get(session_id, f"session_{1000 + len(real)}")
        real[name] = session_id
        return name

    async def rename(_: Service, request: Request, serve: Serve) -> Answer:
        named = request.headers.get("x-session-id")
        if named is not None:
            request = request.having(x_session_id=real.get(named, named))
        reply = await serve(request)
        body = reply.json
        if not isinstance(body, dict) or "sessionId" not in body:
            return reply
        return answer(reply.status, {**body, "sessionId": shown(body["sessionId"])})

    return all_of(middleware(rename, QUOTE), middleware(rename, SESSIONS))(world)


session("sessions-in-memory", "kit/5/session-survives-restart",
    "After a restart, no session is known.", after_a_restart(sessions=SessionsInMemory))  # fmt: skip
content("large-orders-cost-more", "4.2/price",
    "An order of more than 100,000 dollars costs twice as much.",
    dearer(QUOTE, lambda order: order.get("sizeUsd", 0) > LARGE_USD))  # fmt: skip


@content.defect("no-loss-without-leverage", "4.2/quote", at(QUOTE))
async def no_loss_without_leverage(_: Service, request: Request, serve: Serve) -> Answer:
    """The quote of an order with leverage 1 has no liquidation price."""
    reply, order = await serve(request), request.json
    if reply.status != 200 or not isinstance(order, dict) or order.get("leverage") != 1:
        return reply
    body = reply.json
    return answer(200, {**body, "quote": {**body["quote"], "liquidationPrice": None}})


@content.defect("remembers-the-first-quote", "4.2/quote", at(QUOTE, dict))
async def the_first_quote(
    first: dict[str, Answer], _: Service, request: Request, serve: Serve
) -> Answer:
    """A payment id gets the quote of its first order for every other order, too."""
    reply, payment_id = await serve(request), request.payment_id
    return first.setdefault(payment_id, reply) if reply.status == 200 else reply


@gate.defect("one-payment-a-payer", "5/stored-records", at("/", dict))
async def one_payment_a_payer(
    newest: dict[str, str], service: Service, request: Request, serve: Serve
) -> Answer:
    """A payer's second payment replaces the first, whose id grants nothing more."""
    payment_id = request.payment_id
    shown = service.store.payments.get(payment_id)
    if request.path == QUOTE and shown and newest.get(shown.from_address) != payment_id:
        return await serve(request.having(x_payment_id=None))
    reply = await serve(request)
    paid = service.store.payments.get(request.field("paymentId"))
    if request.path == PAY and reply.status == 200 and paid is not None:
        newest[paid.from_address] = paid.payment_id
    return reply


indexer("forgets-at-a-restart", "8/indexer-query",
    "After a restart, the indexer asks only for what is paid from then on.",
    after_a_restart(payments=ForgetsTheEarlier))  # fmt: skip


@gate.defect("bound-to-the-order", "5/cache-first", at(QUOTE, dict))
async def bound_to_the_order(
    orders: dict[str, bytes], _: Service, request: Request, serve: Serve
) -> Answer:
    """A payment id is taken for the order only that it was presented with first."""
    payment_id = request.payment_id
    reply = await serve(request)
    if reply.status != 200 or orders.setdefault(payment_id, request.body) == request.body:
        return reply
    return await serve(request.having(x_payment_id=None))


gate("pending-counts-after-a-restart", "5/stored-records",
    "After a restart, any stored payment grants access, whether it was settled or not.",
    after_a_restart(payments=GrantsWhatIsPending),
    broad="after the suite's restart, whatever was verified and not settled is served")  # fmt: skip


@session.defect("debits-the-newest-session", "5/session-debit", into("sessions"))
class DebitsTheNewest(Wrapper):
    """Released is raised in the session that came into use last, whichever is presented."""

    used: tuple[str, ...] = ()

    def debit(self, session_id: str, *of: Any) -> Any:
        if session_id not in self.used:
            self.used = (*self.used, session_id)
        return self.inner.debit(self.used[-1], *of)


# --- traces ----------------------------------------------------------------------------------


trace = Kind("trace")
TWENTY = 20


def by_id(request: Request) -> str:
    return request.field("paymentId")


def by_nonce(request: Request) -> str:
    """Return payer and nonce of a settlement; empty if its header cannot be read."""
    auth = request.authorization
    return f"{auth.from_.hex()} {auth.nonce.hex()}" if auth else ""


def by_payer(request: Request) -> str:
    """Return the payer of a settlement; empty if its header cannot be read."""
    auth = request.authorization
    return auth.from_.hex() if auth else ""


def remembering(
    key: Callable[[Request], str],
    refused: Callable[[Service, Request, Answer], bool],
    then: str,
) -> Change:
    """Refuse what has the same key as something that was refused, with the text `then`."""

    async def handler(seen: set[str], service: Service, request: Request, serve: Serve) -> Answer:
        its = key(request)
        if its and its in seen:
            return answer(400, {"error": then})
        reply = await serve(request)
        if its and reply.status >= 400 and refused(service, request, reply):
            seen.add(its)
        return reply

    return at(PAY, set)(handler)


def said(*texts: str) -> Callable[[Service, Request, Answer], bool]:
    """Return a condition: a settlement was refused with one of these texts."""
    return lambda _, __, reply: reply.error in texts


# --- the defects ---

trace("poor-for-ever", "7/insufficient-balance",
    "A payer whose wallet was empty once is refused, though it was funded since.",
    remembering(by_payer, said(BALANCE), BALANCE))  # fmt: skip
trace("expiry-voids-the-id", "7/authorization-expired",
    "A payment id for which an expired authorization came cannot be paid any more.",
    remembering(by_id, said(EXPIRED), ALREADY_SETTLED))  # fmt: skip
trace("replay-voids-the-id", "7/nonce-already-used",
    "A payment id for which a used nonce came cannot be paid any more.",
    remembering(by_id, said(NONCE_USED), ALREADY_SETTLED))  # fmt: skip
trace("second-payment-uses-its-nonce", "7/payment-already-settled",
    "The nonce of a payment that came for a paid id counts as used.",
    remembering(by_nonce, said(ALREADY_SETTLED), NONCE_USED))  # fmt: skip
trace("forgery-uses-the-nonce", "5/nonce-once",
    "The nonce of a payment with a false signature counts as used.",
    remembering(by_nonce, said(INVALID_SIGNATURE), NONCE_USED))  # fmt: skip
trace("another-amount-voids-the-id", "7/payment-already-settled",
    "A payment id for which another amount was signed cannot be paid any more.",
    remembering(by_id, lambda service, request, reply: is_other_amount(service, request),
        ALREADY_SETTLED))  # fmt: skip
trace("wrong-deposit-voids-the-id", "4.4/deposit-flow",
    "The deposit of a session for which another amount was signed cannot be paid any more.",
    remembering(by_id, lambda service, request, reply: is_other_amount(service, request)
        and service.issuer.read(by_id(request)).resource == SESSIONS, ALREADY_SETTLED))  # fmt: skip
trace("invented-id-uses-the-nonce", "2.2/payment-id",
    "The nonce of a payment for an id that was never issued counts as used.",
    remembering(by_nonce, lambda service, request, _:
        service.issuer.read(by_id(request)) is None, NONCE_USED))  # fmt: skip


def is_other_amount(service: Service, request: Request) -> bool:
    terms, auth = service.issuer.read(by_id(request)), request.authorization
    return terms is not None and auth is not None and auth.value != terms.amount_base


@trace.defect("id-belongs-to-its-first-payer", "7/payment-already-settled", at(PAY, dict))
async def first_payer(owners: dict[str, str], _: Service, request: Request, serve: Serve) -> Answer:
    """A payment id can be paid by the one only who tried it first."""
    owner = owners.setdefault(by_id(request), by_payer(request))
    if by_payer(request) and owner and owner != by_payer(request):
        reply = await serve(request)
        return answer(400, {"error": ALREADY_SETTLED}) if reply.status == 200 else reply
    return await serve(request)


@trace.defect("second-payment-closes-the-first", "7/payment-already-settled", at("/", set))
async def closes_the_first(closed: set[str], _: Service, request: Request, serve: Serve) -> Answer:
    """A second payment for a paid id is refused, and the id grants nothing any more."""
    if request.headers.get("x-payment-id") in closed:
        request = request.having(x_payment_id=None)
    reply = await serve(request)
    if request.path == PAY and reply.error == ALREADY_SETTLED:
        closed.add(by_id(request))
    return reply


@gate.defect("refused-id-stays-refused", "5/stored-records", at("/", set))
async def stays_refused(refused: set[str], _: Service, request: Request, serve: Serve) -> Answer:
    """A payment id that was presented before it was paid grants nothing afterwards either."""
    payment_id = request.payment_id
    if request.path != QUOTE or not payment_id:
        return await serve(request)
    reply = await serve(request.having(x_payment_id=None) if payment_id in refused else request)
    if reply.status == 402:
        refused.add(payment_id)
    return reply


@gate.defect("good-for-twenty-requests", "5/cache-first", at(QUOTE, Counter))
async def twenty_requests(
    served: Counter[str], _: Service, request: Request, serve: Serve
) -> Answer:
    """A payment opens its resource twenty times."""
    payment_id = request.payment_id
    used_up = served[payment_id] >= TWENTY
    reply = await serve(request.having(x_payment_id=None) if used_up else request)
    served[payment_id] += reply.status == 200
    return reply


@gate.defect("twenty-payments-a-payer", "5/stored-records", at("/", lambda: defaultdict(list)))
async def twenty_payments(
    kept: defaultdict[str, list[str]], _: Service, request: Request, serve: Serve
) -> Answer:
    """Of a payer's payments, the newest twenty grant access."""
    payment_id = request.payment_id
    if request.path == QUOTE and any(payment_id in every[:-TWENTY] for every in kept.values()):
        return await serve(request.having(x_payment_id=None))
    reply = await serve(request)
    if request.path == PAY and reply.status == 200:
        kept[by_payer(request)].append(by_id(request))
    return reply


@settlement.defect("record-of-the-last-who-tried", "2.4/record", at("/api/", dict))
async def last_who_tried(
    payers: dict[str, str], _: Service, request: Request, serve: Serve
) -> Answer:
    """The stored payer is the last one who tried to pay for the id, refused or not."""
    reply = await serve(request)
    name = payload(request).get("from")
    if request.path == PAY and reply.error in {*REFUSALS} and isinstance(name, str):
        payers[by_id(request)] = name
    body = reply.json
    if isinstance(body, dict) and body.get("payment_id") in payers:
        return answer(reply.status, {**body, "from_address": payers[body["payment_id"]]})
    return reply


@session.defect("claimed-too-early-is-never-opened", "4.4/deposit-flow", at(SESSIONS, set))
async def claimed_too_early(early: set[str], _: Service, request: Request, serve: Serve) -> Answer:
    """A session that was asked for before its deposit was paid is not opened afterwards."""
    payment_id = request.payment_id
    reply = await serve(request)
    if payment_id and reply.status == 402:
        early.add(payment_id)
    return answer(404, {"error": "No such session"}) if payment_id in early else reply
