"""Defects that one fixed order, one session, or a service that never restarts does not show."""

from typing import Any

from tests.mutants.change import Change, Service
from tests.mutants.content import content
from tests.mutants.gate import gate
from tests.mutants.indexer import indexer
from tests.mutants.middleware import Answer, Request, Serve, answer, middleware
from tests.mutants.mutant import at, into
from tests.mutants.paying import PAY, QUOTE
from tests.mutants.session import session
from tests.mutants.wrapper import Wrapper, collaborator
from x402sim.world.assembly.recipe import Recipe

LARGE_USD = 100_000


class ForgetsTheEarlier(Wrapper):
    """A store whose indexer sees only what was paid since it was opened."""

    def unindexed(self, limit: int) -> Any:
        first = self.__dict__.setdefault("first", self.service.clock.now_ms())
        return [each for each in self.inner.unindexed(limit) if each.record.timestamp >= first]


class GrantsWhatIsPending(Wrapper):
    """A store whose records grant, whatever their status is."""

    def grants(self, payment_id: str, resource: str) -> bool:
        stored = self.inner.get(payment_id)
        return stored is not None and bool(stored.record.resource_url == resource)


def after_a_restart(**wrappers: Any) -> Change:
    """Wrap collaborators of the service once it has restarted."""

    def change(recipe: Recipe) -> Recipe:
        starts: list[Service] = []

        def made(wrapper: Any) -> Any:
            def wrap(inner: Any, service: Service) -> Any:
                starts.append(service)
                return wrapper(inner, service) if len(starts) > 1 else inner

            return wrap

        return collaborator(**{name: made(each) for name, each in wrappers.items()})(recipe)

    return change


# --- the defects ---


@content.defect("large-orders-cost-more", "4.2/price", at(QUOTE))
async def dearer_if_large(_: Service, request: Request, serve: Serve) -> Answer:
    """An order of more than 100,000 dollars costs twice as much."""
    reply, order = await serve(request), request.json
    is_large = isinstance(order, dict) and order.get("sizeUsd", 0) > LARGE_USD
    if reply.status != 402 or not is_large:
        return reply
    body = reply.json
    wanted = body["paymentRequirements"]
    amount = str(2 * int(wanted["maxAmountRequired"]))
    return answer(402, {**body, "paymentRequirements": {**wanted, "maxAmountRequired": amount}})


@content.defect("no-loss-without-leverage", "4.2/quote", at(QUOTE))
async def no_loss_without_leverage(_: Service, request: Request, serve: Serve) -> Answer:
    """The quote of an order with leverage 1 has no liquidation price."""
    reply, order = await serve(request), request.json
    if reply.status != 200 or not isinstance(order, dict) or order.get("leverage") != 1:
        return reply
    body = reply.json
    return answer(200, {**body, "quote": {**body["quote"], "liquidationPrice": None}})


@content.defect("remembers-the-first-quote", "4.2/quote")
def the_first_quote(recipe: Recipe) -> Recipe:
    """A payment id gets the quote of its first order for every other order, too."""
    first: dict[str, Answer] = {}

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply, payment_id = await serve(request), request.headers.get("x-payment-id", "")
        return first.setdefault(payment_id, reply) if reply.status == 200 else reply

    return middleware(handler, QUOTE)(recipe)


@gate.defect("one-payment-a-payer", "5/stored-records")
def one_payment_a_payer(recipe: Recipe) -> Recipe:
    """A payer's second payment replaces the first, whose id grants nothing more."""
    newest: dict[str, str] = {}

    async def note(service: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        stored = service.store.payments.get(request.field("paymentId"))
        if reply.status == 200 and stored is not None:
            newest[stored.record.from_address] = stored.record.payment_id
        return reply

    async def take(service: Service, request: Request, serve: Serve) -> Answer:
        payment_id = request.headers.get("x-payment-id", "")
        stored = service.store.payments.get(payment_id)
        if stored is None or newest.get(stored.record.from_address) == payment_id:
            return await serve(request)
        return await serve(request.having(x_payment_id=None))

    return middleware(take, QUOTE)(middleware(note, PAY)(recipe))


indexer("forgets-at-a-restart", "8/indexer-query",
    "After a restart, the indexer asks only for what is paid from then on.",
    after_a_restart(payments=ForgetsTheEarlier))  # fmt: skip


@gate.defect("bound-to-the-order", "5/cache-first")
def bound_to_the_order(recipe: Recipe) -> Recipe:
    """A payment id is taken for the order only that it was presented with first."""
    orders: dict[str, bytes] = {}

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        payment_id = request.headers.get("x-payment-id", "")
        reply = await serve(request)
        if reply.status != 200 or orders.setdefault(payment_id, request.body) == request.body:
            return reply
        return await serve(request.having(x_payment_id=None))

    return middleware(handler, QUOTE)(recipe)


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
