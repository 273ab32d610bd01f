"""Services with one defect each: the law that must see it, and a small world that shows it."""

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.explore.case import (
    Act,
    Again,
    Buy,
    Case,
    Deposit,
    Reorganise,
    Strike,
    Submit,
)
from tests.explore.laws import Law
from tests.mutants.change import Change, Service, all_of, decision, on_app, setting
from tests.mutants.middleware import (
    Answer,
    Request,
    Serve,
    answers,
    middleware,
    replies,
    statuses,
)
from tests.mutants.session import RefundsTwice
from tests.mutants.wrapper import Wrapper, altered, collaborator, overriding
from x402sim import Fault
from x402sim.http import web
from x402sim.policies import (
    FailToServe,
    Forget,
    NeverRefund,
    ServeBeforeSettle,
    ServicePolicy,
)
from x402sim.protocol.header import present
from x402sim.protocol.messages import SettlementRequest
from x402sim.protocol.x402 import PAYMENT_HEADERS

PAY = "/api/pay"


def pays(request: Request) -> bool:
    """Tell whether a request pays in one step."""
    return any(name.lower() in request.headers for name in PAYMENT_HEADERS.values())


# --- payments ------------------------------------------------------------------------


async def never_used(it: Any, payer: Any, nonce: bytes) -> Any:
    """Look for the transaction that used a nonce, and find none."""
    return altered(await it.inner.nonce_state(payer, nonce), is_used=False, use=None)


class BlindBeforeTheClaim(Wrapper):
    """A node that does not see a use from before the claim."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._asked: set[bytes] = set()

    async def nonce_state(self, payer: Any, nonce: bytes) -> Any:
        if nonce in self._asked:
            return await self.inner.nonce_state(payer, nonce)
        self._asked.add(nonce)
        return await never_used(self, payer, nonce)


async def claims_dropped(service: Service, request: Request, serve: Serve) -> Answer:
    """Forget every claim when one has failed."""
    reply = await serve(request)
    if reply.status != 200:
        for each in service.store.payments.pending(math.inf, 10**6):
            service.store.payments.drop_claim(each.attempt)
    return reply


def final(_: Request, reply: Answer) -> Answer:
    """Say "nothing was charged" while the header is still valid."""
    body = reply.body if reply.status == 200 else msgspec.json.encode({**reply.json, "final": True})
    return replace(reply, body=body)


def nothing(it: Any, *args: Any, **more: Any) -> None:
    """Leave what the chain has undone as it is."""


def nobody(it: Any, *args: Any) -> list[Any]:
    """Remember no earlier header, or no pending payment."""
    return []


def under_the_old_name(it: Any, attempt: int, tx_hash: str, *args: Any, **more: Any) -> None:
    """Keep the transaction that the record was settled with."""
    it.inner.set_block(attempt, it.inner.attempt(attempt).record.tx_hash, *args, **more)


def for_any_resource(payments: Any, payment_id: str) -> bool:
    """Accept a settled payment id for every resource."""
    return any(each.record.status == "settled" for each in payments.attempts(payment_id))


def refused_at_first(service: Service, inner: ASGIApp) -> ASGIApp:
    """Do not know a payment id when it is shown for the first time."""
    shown: set[bytes] = set()
    paying = {name.lower().encode() for name in PAYMENT_HEADERS.values()}

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        payment_id = headers.get(b"x-payment-id")
        is_known = payment_id is None or payment_id in shown or paying & headers.keys()
        shown.add(payment_id or b"")
        await (inner if is_known else web.error(402, "unknown"))(scope, receive, send)

    return served


async def settled_anyway(service: Service, request: Request, serve: Serve) -> Answer:
    """Settle every header that is presented for a payment id which is settled already."""
    if for_any_resource(service.store.payments, request.field("paymentId")):
        asked = msgspec.json.decode(request.body, type=SettlementRequest)
        header = present(asked.payment_header)
        await service.facilitator.settle(header, asked.payment_requirements)
    return await serve(request)


# --- in one step ---------------------------------------------------------------------


def taken_for_paid(request: Request, reply: Answer) -> Answer:
    """Serve a payment in one step whose outcome is not known."""
    is_known = reply.status in (200, 402) or not pays(request)
    return reply if is_known else replace(reply, status=200, body=b'{"quote":{}}')


def never_served(request: Request, reply: Answer) -> Answer:
    """Refuse a payment in one step that was settled."""
    is_paid = pays(request) and reply.status == 200
    return replace(reply, status=402, body=b"{}") if is_paid else reply


# --- sessions ------------------------------------------------------------------------


def for_nothing(it: Any, session_id: str, *args: Any) -> int:
    """Serve a session, and do not debit it."""
    return int(it.inner.get(session_id).released)


def debited_twice(it: Any, *args: Any) -> int | None:
    """Debit a session twice for one request."""
    first: int | None = it.inner.debit(*args)
    return it.inner.debit(*args) or first


def debited_and_refused(it: Any, *args: Any) -> None:
    """Debit a session, and do not serve it."""
    it.inner.debit(*args)


def more(session: Any) -> Any:
    """Return a session that has more than was deposited."""
    return session and altered(session, deposited=session.deposited + 10_000)


def only_once(it: Any, session_id: str, *args: Any) -> int | None:
    """Serve a session once, whatever its budget."""
    session = it.inner.get(session_id)
    return None if session and session.released else it.inner.debit(session_id, *args)


def refunds(*, add: int = 0, **changes: Any) -> Change:
    """Return a service whose refunds are of another amount, or go to another account."""
    return overriding(
        "sessions",
        refunds_due=lambda it, *args: [
            altered(each, amount=each.amount + add, **changes)
            for each in it.inner.refunds_due(*args)
        ],
    )


# --- the process ---------------------------------------------------------------------


def hanging(service: Service, inner: ASGIApp) -> ASGIApp:
    """Never answer who asks with a session."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"x-session-id" for name, _ in scope["headers"]):
            await asyncio.Event().wait()
        await inner(scope, receive, send)

    return served


def spinning(service: Service, inner: ASGIApp) -> ASGIApp:
    """Ask the node again and again, in one instant."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            await service.clock.sleep(0)
            await service.rpc.height()

    return served


async def raises(_: Any, *args: Any) -> Any:
    """Raise what nobody expects."""
    raise ZeroDivisionError("in the background")


# --- the table -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, the law that sees it, and a small world that shows it."""

    law: Law
    change: Change
    case: Case


REFUSED = Strike(fault=Fault(victim="facilitator", does="refuse", times=None))
LOST = Strike(fault=Fault(victim="facilitator", does="lose answer", path="/settle"))
REVERTED = '{"jsonrpc":"2.0","id":1,"result":{"blockNumber":"0x1","status":"0x0","logs":[]}}'
LIES = Fault(victim="explorer", does="answer", status=200, times=None, body=REVERTED)
BOUGHT = Case(steps=(Buy(number=0),))
IN_ONE_STEP = Case(steps=(Buy(number=0, way="PAYMENT-SIGNATURE"),))
SPENT = Case(steps=(Deposit(number=0, duration_s=60, spends=3, spend_pause_s=1.0),))
SUBMITTED = Case(steps=(REFUSED, Buy(number=0), Submit(at_s=30.0, of=0)))
TWO_HEADERS = Case(steps=(Buy(number=0), Again(at_s=9.0, of=0, what="second header")))

MUTANTS: dict[str, Mutant] = {
    "a lost answer is forgotten": Mutant(
        Law.PAID_IS_SERVED,
        setting(policy=ServicePolicy(lost_answer=Forget())),
        Case(steps=(LOST, Buy(number=0))),
    ),
    "a claim is dropped": Mutant(Law.PAID_IS_SERVED, middleware(claims_dropped, PAY), SUBMITTED),
    "final, then charged": Mutant(
        Law.FINAL_IS_FINAL, all_of(middleware(claims_dropped, PAY), replies(PAY, final)), SUBMITTED
    ),
    "a second header is claimed": Mutant(
        Law.CHARGED_ONCE, overriding("payments", attempts=nobody), TWO_HEADERS
    ),
    "a second header is settled": Mutant(
        Law.CHARGED_ONCE, middleware(settled_anyway, PAY), TWO_HEADERS
    ),
    "one step is served again": Mutant(
        Law.SERVED_ONCE, decision(authorization_once=False), IN_ONE_STEP
    ),
    "one step is charged, and never served": Mutant(
        Law.SERVED_ONCE, replies("/", never_served), IN_ONE_STEP
    ),
    "one step is served before it settles": Mutant(
        Law.SERVED_AFTER_PAID,
        replies("/", taken_for_paid),
        Case(steps=(REFUSED, *IN_ONE_STEP.steps)),
    ),
    "a claim is served before it settles": Mutant(
        Law.SERVED_AFTER_PAID,
        setting(policy=ServicePolicy(serve=ServeBeforeSettle())),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "what the chain undid is kept": Mutant(
        Law.SERVED_IS_PAID,
        overriding("payments", undo=nothing, fail=nothing),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "the cache is kept": Mutant(
        Law.SERVED_IS_PAID,
        overriding("entitlements", remove=nothing),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "a payment opens every resource": Mutant(
        Law.ONLY_WHAT_WAS_BOUGHT,
        overriding(
            "payments", grants=lambda it, payment_id, _: for_any_resource(it.inner, payment_id)
        ),
        BOUGHT,
    ),
    "a receipt names another transaction": Mutant(
        Law.RECORD_NAMES_IT,
        answers(200, PAY, lambda it: it.update(txHash="0x" + "ab" * 32)),
        BOUGHT,
    ),
    "a record keeps an old transaction": Mutant(
        Law.RECORD_NAMES_IT,
        overriding("payments", set_block=under_the_old_name),
        Case(steps=(Act(does="force_revert"), Buy(number=0), Reorganise(at_s=30.0, depth=6))),
    ),
    "one payment buys at two deployments": Mutant(
        Law.ONE_TRANSFER_PAYS_ONCE,
        collaborator(rpc=BlindBeforeTheClaim),
        Case(services=2, steps=(Buy(number=0), Again(at_s=30.0, of=0, service="service 2"))),
    ),
    "a receipt is taken back": Mutant(
        Law.RECEIPT_STAYS,
        overriding("rpc", nonce_state=never_used),
        Case(
            steps=(Buy(number=0), Strike(at_s=1.0, fault=LIES), Act(at_s=2.0, does="run_indexer"))
        ),
    ),
    "a receipt is not served": Mutant(
        Law.RECEIPT_STAYS, setting(policy=ServicePolicy(serve=FailToServe(1))), BOUGHT
    ),
    "a receipt is refused at first": Mutant(Law.RECEIPT_STAYS, on_app(refused_at_first), BOUGHT),
    "a session has more than its deposit": Mutant(
        Law.SESSION_IS_DEPOSIT,
        overriding(
            "sessions",
            get=lambda it, of: more(it.inner.get(of)),
            paid_by=lambda it, of: more(it.inner.paid_by(of)),
        ),
        SPENT,
    ),
    "a session is served once": Mutant(
        Law.SESSION_SERVES, overriding("sessions", debit=only_once), SPENT
    ),
    "a session is debited twice": Mutant(
        Law.DEBITS_ARE_SERVED, overriding("sessions", debit=debited_twice), SPENT
    ),
    "a session is debited, and not served": Mutant(
        Law.DEBITS_ARE_SERVED, overriding("sessions", debit=debited_and_refused), SPENT
    ),
    "a session is served for nothing": Mutant(
        Law.DEBITS_ARE_SERVED, overriding("sessions", debit=for_nothing), SPENT
    ),
    "a session shows a wrong balance": Mutant(
        Law.DEBITS_ARE_SERVED,
        answers(
            200,
            "/api/sessions/session_",
            lambda it: it.update(released=str(int(it["released"]) + 1)),
        ),
        SPENT,
    ),
    "a refund is paid twice": Mutant(
        Law.REFUND_IS_THE_REST, collaborator(facilitator=RefundsTwice), SPENT
    ),
    "a refund is too much": Mutant(Law.REFUND_IS_THE_REST, refunds(add=1), SPENT),
    "a refund is too little": Mutant(Law.REFUND_IS_THE_REST, refunds(add=-1), SPENT),
    "a refund goes to somebody else": Mutant(
        Law.REFUND_IS_THE_REST, refunds(to_address="0x" + "0f" * 20), SPENT
    ),
    "no refund is paid": Mutant(
        Law.REFUND_IS_THE_REST, setting(policy=ServicePolicy(refund=NeverRefund())), SPENT
    ),
    "a refund that was undone stays": Mutant(
        Law.REFUND_IS_THE_REST,
        overriding("sessions", undo_refund=nothing),
        Case(
            steps=(
                Deposit(number=0, duration_s=60),
                Act(at_s=75.0, does="run_indexer"),
                Reorganise(at_s=85.0, depth=2, drop=True),
            )
        ),
    ),
    "pending for ever": Mutant(
        Law.RESOLVED,
        overriding("payments", pending=nobody),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "no answer, for ever": Mutant(Law.ANSWERED, on_app(hanging), SPENT),
    "a refusal is a 500": Mutant(
        Law.NO_SERVER_ERROR,
        all_of(*(statuses(PAY, each, 500) for each in (400, 402, 409, 502))),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "an exception in the background": Mutant(
        Law.NO_EXCEPTION, overriding("rpc", height=raises), BOUGHT
    ),
    "time stands still": Mutant(Law.TIME_PASSES, on_app(spinning), BOUGHT),
}
