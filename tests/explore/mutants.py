"""Services with one defect each: the law that must see it, and a small world that shows it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
from tests.mutants.change import Change, decision, on_app, on_service, setting
from tests.mutants.middleware import Answer, Request, Serve, middleware
from tests.mutants.wrapper import Wrapper, collaborator
from x402sim import Fault
from x402sim.http import web
from x402sim.policies import (
    FailToServe,
    Forget,
    NeverRefund,
    ServeBeforeSettle,
    ServicePolicy,
)
from x402sim.protocol.crypto import sign
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import authorization_of, decode_header, encode_header, present
from x402sim.protocol.messages import SettlementRequest
from x402sim.protocol.x402 import PAYMENT_HEADERS
from x402sim.service.state import Service


def with_methods(inner: Any, service: Service, methods: dict[str, Callable[..., Any]]) -> Any:
    """Return a collaborator with some methods replaced; a replacement gets the real one first."""
    wrapper = Wrapper(inner, service)
    for name, method in methods.items():
        setattr(wrapper, name, partial(method, inner))
    return wrapper


def replacing(**parts: dict[str, Callable[..., Any]]) -> Change:
    """Replace methods of a service's collaborators, or of its store's parts."""
    return collaborator(
        **{
            name: partial(lambda methods, *real: with_methods(*real, methods), methods)
            for name, methods in parts.items()
        }
    )


Edit = Callable[[Service, Request, int, bytes], tuple[int, bytes]]
"""Returns the status and the body to answer instead of those that were answered."""


def answering(edit: Edit) -> Change:
    """Let `edit` change every answer of a service."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        status, body = edit(service, request, reply.status, reply.body)
        return replace(reply, status=status, body=body)

    return middleware(handler)


def _pays(request: Request) -> bool:
    """Tell whether a request pays in one step."""
    return any(name.lower() in request.headers for name in PAYMENT_HEADERS.values())


# --- payments ------------------------------------------------------------------------


def blind_before_the_claim(service: Service) -> Service:
    """Return a service that does not see a use from before its claim."""
    asked: set[bytes] = set()

    async def nonce_state(rpc: Any, payer: Any, nonce: bytes) -> Any:
        if nonce in asked:
            return await rpc.nonce_state(payer, nonce)
        asked.add(nonce)
        return await never_used(rpc, payer, nonce)

    return replace(service, rpc=with_methods(service.rpc, service, {"nonce_state": nonce_state}))


async def never_used(rpc: Any, payer: Any, nonce: bytes) -> Any:
    """Look for the transaction that used a nonce, and find none."""
    state = await rpc.nonce_state(payer, nonce)
    return msgspec.structs.replace(state, is_used=False, use=None)


def claim_dropped(
    service: Service, request: Request, status: int, body: bytes
) -> tuple[int, bytes]:
    """Forget every claim when one has failed."""
    if request.path == "/api/pay" and status != 200:
        for each in service.store.payments.pending(math.inf, 10**6):
            service.store.payments.drop_claim(each.attempt)
    return status, body


def said_to_be_over(
    service: Service, request: Request, status: int, body: bytes
) -> tuple[int, bytes]:
    """Say "nothing was charged" while the header is still valid, and forget it."""
    claim_dropped(service, request, status, body)
    if request.path == "/api/pay" and status != 200:
        body = msgspec.json.encode(msgspec.json.decode(body) | {"final": True})
    return status, body


def kept(inner: Any, *args: Any, **more: Any) -> None:
    """Leave what the chain has undone as it is."""


def under_the_old_name(payments: Any, attempt: int, tx_hash: str, *args: Any, **more: Any) -> None:
    """Keep the transaction that the record was settled with."""
    payments.set_block(attempt, payments.attempt(attempt).record.tx_hash, *args, **more)


def misnamed(service: Service, request: Request, status: int, body: bytes) -> tuple[int, bytes]:
    """Name another transaction in a receipt."""
    if request.path == "/api/pay" and status == 200:
        body = msgspec.json.encode(msgspec.json.decode(body) | {"txHash": "0x" + "ab" * 32})
    return status, body


def for_any_resource(payments: Any, payment_id: str, resource: str) -> bool:
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


def no_attempts(payments: Any, payment_id: str) -> list[Any]:
    """Remember no earlier header of a payment id."""
    return []


async def settled_anyway(service: Service, request: Request, serve: Serve) -> Answer:
    """Settle every header that is presented for a payment id which is settled already."""
    payment_id = request.field("paymentId")
    if request.path == "/api/pay" and for_any_resource(service.store.payments, payment_id, ""):
        asked = msgspec.json.decode(request.body, type=SettlementRequest)
        header = present(asked.payment_header)
        await service.facilitator.settle(header, asked.payment_requirements)
    return await serve(request)


def nobody(payments: Any, *args: Any) -> list[Any]:
    """Forget pending payments."""
    return []


# --- in one step ---------------------------------------------------------------------


def taken_for_paid(
    service: Service, request: Request, status: int, body: bytes
) -> tuple[int, bytes]:
    """Serve a payment in one step whose outcome is not known."""
    return (status, body) if status in (200, 402) or not _pays(request) else (200, b'{"quote":{}}')


def never_served(service: Service, request: Request, status: int, body: bytes) -> tuple[int, bytes]:
    """Refuse a payment in one step that was settled."""
    return (402, b"{}") if _pays(request) and status == 200 else (status, body)


# --- sessions ------------------------------------------------------------------------


def for_nothing(sessions: Any, session_id: str, *args: Any) -> int:
    """Serve a session, and do not debit it."""
    return int(sessions.get(session_id).released)


def debited_twice(sessions: Any, *args: Any) -> int | None:
    """Debit a session twice for one request."""
    first: int | None = sessions.debit(*args)
    return sessions.debit(*args) or first


def debited_and_refused(sessions: Any, *args: Any) -> None:
    """Debit a session, and do not serve it."""
    sessions.debit(*args)


def shown_wrong(service: Service, request: Request, status: int, body: bytes) -> tuple[int, bytes]:
    """Show sessions that have released a unit more than they have."""
    said = msgspec.json.decode(body) if request.path.startswith("/api/sessions/session_") else {}
    if "released" in said:
        said["released"] = str(int(said["released"]) + 1)
        body = msgspec.json.encode(said)
    return status, body


def with_more(find: str) -> Callable[..., Any]:
    """Return a way to find a session that has more than was deposited."""

    def found(sessions: Any, name: str) -> Any:
        session = getattr(sessions, find)(name)
        return session and msgspec.structs.replace(session, deposited=session.deposited + 10_000)

    return found


def only_once(sessions: Any, session_id: str, *args: Any) -> bool:
    """Serve a session once, whatever its budget."""
    session = sessions.get(session_id)
    return session is not None and not session.released and sessions.can_pay(session_id, *args)


def refunds(**changes: Callable[[Any], Any]) -> Change:
    """Return a service whose refunds have other fields."""

    def due(sessions: Any, *args: Any) -> list[Any]:
        return [
            msgspec.structs.replace(each, **{name: new(each) for name, new in changes.items()})
            for each in sessions.refunds_due(*args)
        ]

    return replacing(sessions={"refunds_due": due})


def refunded_twice(service: Service) -> Service:
    """Sign each refund a second time, with another nonce."""

    async def settle(facilitator: Any, payment: Any, wanted: Any) -> Any:
        auth, _ = authorization_of(decode_header(payment.text))
        if auth.from_ == service.setup.wallet:
            again = msgspec.structs.replace(auth, nonce=bytes(reversed(auth.nonce)))
            network = service.setup.network
            signature = sign(transfer_digest(again, network.domain), service.setup.key)
            await facilitator.settle(present(encode_header(again, signature, network)), wanted)
        return await facilitator.settle(payment, wanted)

    return replace(
        service, facilitator=with_methods(service.facilitator, service, {"settle": settle})
    )


# --- the process ---------------------------------------------------------------------


def crashing(service: Service, request: Request, status: int, body: bytes) -> tuple[int, bytes]:
    """Answer 500 to every refusal of a payment."""
    return (500, body) if request.path == "/api/pay" and status != 200 else (status, body)


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
    "a claim is dropped": Mutant(Law.PAID_IS_SERVED, answering(claim_dropped), SUBMITTED),
    "final, then charged": Mutant(Law.FINAL_IS_FINAL, answering(said_to_be_over), SUBMITTED),
    "a second header is claimed": Mutant(
        Law.CHARGED_ONCE, replacing(payments={"attempts": no_attempts}), TWO_HEADERS
    ),
    "a second header is settled": Mutant(Law.CHARGED_ONCE, middleware(settled_anyway), TWO_HEADERS),
    "one step is served again": Mutant(
        Law.SERVED_ONCE, decision(authorization_once=False), IN_ONE_STEP
    ),
    "one step is charged, and never served": Mutant(
        Law.SERVED_ONCE, answering(never_served), IN_ONE_STEP
    ),
    "one step is served before it settles": Mutant(
        Law.SERVED_AFTER_PAID, answering(taken_for_paid), Case(steps=(REFUSED, *IN_ONE_STEP.steps))
    ),
    "a claim is served before it settles": Mutant(
        Law.SERVED_AFTER_PAID,
        setting(policy=ServicePolicy(serve=ServeBeforeSettle())),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "what the chain undid is kept": Mutant(
        Law.SERVED_IS_PAID,
        replacing(payments={"undo": kept, "fail": kept}),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "the cache is kept": Mutant(
        Law.SERVED_IS_PAID,
        replacing(entitlements={"remove": kept}),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "a payment opens every resource": Mutant(
        Law.ONLY_WHAT_WAS_BOUGHT, replacing(payments={"grants": for_any_resource}), BOUGHT
    ),
    "a receipt names another transaction": Mutant(Law.RECORD_NAMES_IT, answering(misnamed), BOUGHT),
    "a record keeps an old transaction": Mutant(
        Law.RECORD_NAMES_IT,
        replacing(payments={"set_block": under_the_old_name}),
        Case(steps=(Act(does="force_revert"), Buy(number=0), Reorganise(at_s=30.0, depth=6))),
    ),
    "one payment buys at two deployments": Mutant(
        Law.ONE_TRANSFER_PAYS_ONCE,
        on_service(blind_before_the_claim),
        Case(services=2, steps=(Buy(number=0), Again(at_s=30.0, of=0, service="service 2"))),
    ),
    "a receipt is taken back": Mutant(
        Law.RECEIPT_STAYS,
        replacing(rpc={"nonce_state": never_used}),
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
        replacing(sessions={name: with_more(name) for name in ("get", "paid_by")}),
        SPENT,
    ),
    "a session is served once": Mutant(
        Law.SESSION_SERVES, replacing(sessions={"can_pay": only_once}), SPENT
    ),
    "a session is debited twice": Mutant(
        Law.DEBITS_ARE_SERVED, replacing(sessions={"debit": debited_twice}), SPENT
    ),
    "a session is debited, and not served": Mutant(
        Law.DEBITS_ARE_SERVED, replacing(sessions={"debit": debited_and_refused}), SPENT
    ),
    "a session is served for nothing": Mutant(
        Law.DEBITS_ARE_SERVED, replacing(sessions={"debit": for_nothing}), SPENT
    ),
    "a session shows a wrong balance": Mutant(Law.DEBITS_ARE_SERVED, answering(shown_wrong), SPENT),
    "a refund is paid twice": Mutant(Law.REFUND_IS_THE_REST, on_service(refunded_twice), SPENT),
    "a refund is too much": Mutant(
        Law.REFUND_IS_THE_REST, refunds(amount=lambda due: due.amount + 1), SPENT
    ),
    "a refund is too little": Mutant(
        Law.REFUND_IS_THE_REST, refunds(amount=lambda due: due.amount - 1), SPENT
    ),
    "a refund goes to somebody else": Mutant(
        Law.REFUND_IS_THE_REST, refunds(to_address=lambda due: "0x" + "0f" * 20), SPENT
    ),
    "no refund is paid": Mutant(
        Law.REFUND_IS_THE_REST, setting(policy=ServicePolicy(refund=NeverRefund())), SPENT
    ),
    "a refund that was undone stays": Mutant(
        Law.REFUND_IS_THE_REST,
        replacing(sessions={"undo_refund": kept}),
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
        replacing(payments={"pending": nobody}),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "no answer, for ever": Mutant(Law.ANSWERED, on_app(hanging), SPENT),
    "a refusal is a 500": Mutant(
        Law.NO_SERVER_ERROR, answering(crashing), Case(steps=(REFUSED, Buy(number=0)))
    ),
    "an exception in the background": Mutant(
        Law.NO_EXCEPTION, replacing(rpc={"height": raises}), BOUGHT
    ),
    "time stands still": Mutant(Law.TIME_PASSES, on_app(spinning), BOUGHT),
}
