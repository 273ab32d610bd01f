"""Services with one defect each: the law that must see it, and a small world that shows it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
from x402sim import Fault
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
from x402sim.spec.decisions import Decisions
from x402sim.world.assembly.hooks import Hooks


class Instead:
    """An object with some attributes replaced."""

    def __init__(self, inner: object, replaced: dict[str, Any]) -> None:
        self._inner, self._replaced = inner, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._inner, name)


def with_methods(inner: object, methods: dict[str, Callable[..., Any]]) -> Any:
    """Return an object with some methods replaced; a replacement gets the object first."""
    return Instead(inner, {name: partial(method, inner) for name, method in methods.items()})


def with_service(**parts: dict[str, Callable[..., Any]]) -> Hooks:
    """Return hooks that replace methods of a service's collaborators, or of its store's parts."""

    def changed(service: Service) -> Service:
        store = Instead(service.store, {})
        others: dict[str, Any] = {"store": store}
        for name, methods in parts.items():
            if name in ("payments", "sessions"):
                store._replaced[name] = with_methods(getattr(service.store, name), methods)
            else:
                others[name] = with_methods(getattr(service, name), methods)
        return replace(service, **others)

    return Hooks(service=changed)


def with_policy(policy: ServicePolicy) -> Hooks:
    """Return hooks that give a service a policy."""
    return Hooks(
        setup=lambda setup: replace(setup, settings=replace(setup.settings, policy=policy))
    )


def with_decisions(**chosen: Any) -> Hooks:
    """Return hooks that give a service other decisions."""
    made = Decisions(**chosen)
    return Hooks(
        setup=lambda setup: replace(setup, settings=replace(setup.settings, decisions=made))
    )


Change = Callable[[Service, Scope, int, bytes], tuple[int, bytes]]
"""Returns the status and the body to answer instead of those that were answered."""


def answering(change: Change) -> Hooks:
    """Return hooks with which `change` edits every answer of a service."""

    def app(service: Service, inner: ASGIApp) -> ASGIApp:
        async def served(scope: Scope, receive: Receive, send: Send) -> None:
            start: Message = {}
            parts: list[bytes] = []

            async def edited(message: Message) -> None:
                if message["type"] == "http.response.start":
                    start.update(message)
                    return
                parts.append(message.get("body", b""))
                if message.get("more_body"):
                    return
                status, body = change(service, scope, start["status"], b"".join(parts))
                headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
                await send({**start, "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body})

            await inner(scope, receive, edited)

        return served

    return Hooks(app=app)


def _pays(scope: Scope) -> bool:
    """Tell whether a request pays in one step."""
    names = {name.lower().encode() for name in PAYMENT_HEADERS.values()}
    return any(name in names for name, _ in scope["headers"])


# --- payments ------------------------------------------------------------------------


def blind_before_the_claim(service: Service) -> Service:
    """Return a service that does not see a use from before its claim."""
    asked: set[bytes] = set()

    async def nonce_state(rpc: Any, payer: Any, nonce: bytes) -> Any:
        if nonce in asked:
            return await rpc.nonce_state(payer, nonce)
        asked.add(nonce)
        return await never_used(rpc, payer, nonce)

    return replace(service, rpc=with_methods(service.rpc, {"nonce_state": nonce_state}))


async def never_used(rpc: Any, payer: Any, nonce: bytes) -> Any:
    """Look for the transaction that used a nonce, and find none."""
    state = await rpc.nonce_state(payer, nonce)
    return msgspec.structs.replace(state, is_used=False, use=None)


def claim_dropped(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Forget every claim when one has failed."""
    if scope["path"] == "/api/pay" and status != 200:
        for each in service.store.payments.pending(math.inf, 10**6):
            service.store.payments.drop_claim(each.attempt)
    return status, body


def said_to_be_over(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Say "nothing was charged" while the header is still valid, and forget it."""
    claim_dropped(service, scope, status, body)
    if scope["path"] == "/api/pay" and status != 200:
        body = msgspec.json.encode(msgspec.json.decode(body) | {"final": True})
    return status, body


def kept(inner: Any, *args: Any, **more: Any) -> None:
    """Leave what the chain has undone as it is."""


def under_the_old_name(payments: Any, attempt: int, tx_hash: str, *args: Any, **more: Any) -> None:
    """Keep the transaction that the record was settled with."""
    payments.set_block(attempt, payments.attempt(attempt).record.tx_hash, *args, **more)


def misnamed(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Name another transaction in a receipt."""
    if scope["path"] == "/api/pay" and status == 200:
        body = msgspec.json.encode(msgspec.json.decode(body) | {"txHash": "0x" + "ab" * 32})
    return status, body


def for_any_resource(payments: Any, payment_id: str, resource: str) -> bool:
    """Accept a settled payment id for every resource."""
    return any(each.record.status == "settled" for each in payments.attempts(payment_id))


def refused_at_first(service: Service, inner: ASGIApp) -> ASGIApp:
    """Do not know a payment id when it is shown for the first time."""
    shown: set[bytes] = set()

    def change(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
        payment_id = dict(scope["headers"]).get(b"x-payment-id")
        if payment_id is None or payment_id in shown or _pays(scope):
            return status, body
        shown.add(payment_id)
        return 402, b"{}"

    return answering(change).app(service, inner)


def no_attempts(payments: Any, payment_id: str) -> list[Any]:
    """Remember no earlier header of a payment id."""
    return []


def settled_anyway(service: Service, inner: ASGIApp) -> ASGIApp:
    """Settle every header that is presented for a payment id which is settled already."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/api/pay":
            await inner(scope, receive, send)
            return
        first = [await receive()]
        asked = msgspec.json.decode(first[0]["body"], type=SettlementRequest)
        if for_any_resource(service.store.payments, asked.payment_id, ""):
            header = present(asked.payment_header)
            await service.facilitator.settle(header, asked.payment_requirements)

        async def again() -> Message:
            return first.pop() if first else await receive()

        await inner(scope, again, send)

    return served


def nobody(payments: Any, *args: Any) -> list[Any]:
    """Forget pending payments."""
    return []


# --- in one step ---------------------------------------------------------------------


def taken_for_paid(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Serve a payment in one step whose outcome is not known."""
    return (status, body) if status in (200, 402) or not _pays(scope) else (200, b'{"quote":{}}')


def never_served(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Refuse a payment in one step that was settled."""
    return (402, b"{}") if _pays(scope) and status == 200 else (status, body)


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


def shown_wrong(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Show sessions that have released a unit more than they have."""
    said = msgspec.json.decode(body) if scope["path"].startswith("/api/sessions/session_") else {}
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


def refunds(**changes: Callable[[Any], Any]) -> Hooks:
    """Return a service whose refunds have other fields."""

    def due(sessions: Any, *args: Any) -> list[Any]:
        return [
            msgspec.structs.replace(each, **{name: new(each) for name, new in changes.items()})
            for each in sessions.refunds_due(*args)
        ]

    return with_service(sessions={"refunds_due": due})


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

    return replace(service, facilitator=with_methods(service.facilitator, {"settle": settle}))


# --- the process ---------------------------------------------------------------------


def crashing(service: Service, scope: Scope, status: int, body: bytes) -> tuple[int, bytes]:
    """Answer 500 to every refusal of a payment."""
    return (500, body) if scope["path"] == "/api/pay" and status != 200 else (status, body)


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
    hooks: Hooks
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
        with_policy(ServicePolicy(lost_answer=Forget())),
        Case(steps=(LOST, Buy(number=0))),
    ),
    "a claim is dropped": Mutant(Law.PAID_IS_SERVED, answering(claim_dropped), SUBMITTED),
    "final, then charged": Mutant(Law.FINAL_IS_FINAL, answering(said_to_be_over), SUBMITTED),
    "a second header is claimed": Mutant(
        Law.CHARGED_ONCE, with_service(payments={"attempts": no_attempts}), TWO_HEADERS
    ),
    "a second header is settled": Mutant(Law.CHARGED_ONCE, Hooks(app=settled_anyway), TWO_HEADERS),
    "one step is served again": Mutant(
        Law.SERVED_ONCE, with_decisions(authorization_once=False), IN_ONE_STEP
    ),
    "one step is charged, and never served": Mutant(
        Law.SERVED_ONCE, answering(never_served), IN_ONE_STEP
    ),
    "one step is served before it settles": Mutant(
        Law.SERVED_AFTER_PAID, answering(taken_for_paid), Case(steps=(REFUSED, *IN_ONE_STEP.steps))
    ),
    "a claim is served before it settles": Mutant(
        Law.SERVED_AFTER_PAID,
        with_policy(ServicePolicy(serve=ServeBeforeSettle())),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "what the chain undid is kept": Mutant(
        Law.SERVED_IS_PAID,
        with_service(payments={"undo": kept, "fail": kept}),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "the cache is kept": Mutant(
        Law.SERVED_IS_PAID,
        with_service(entitlements={"remove": kept}),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "a payment opens every resource": Mutant(
        Law.ONLY_WHAT_WAS_BOUGHT, with_service(payments={"grants": for_any_resource}), BOUGHT
    ),
    "a receipt names another transaction": Mutant(Law.RECORD_NAMES_IT, answering(misnamed), BOUGHT),
    "a record keeps an old transaction": Mutant(
        Law.RECORD_NAMES_IT,
        with_service(payments={"set_block": under_the_old_name}),
        Case(steps=(Act(does="force_revert"), Buy(number=0), Reorganise(at_s=30.0, depth=6))),
    ),
    "one payment buys at two deployments": Mutant(
        Law.ONE_TRANSFER_PAYS_ONCE,
        Hooks(service=blind_before_the_claim),
        Case(services=2, steps=(Buy(number=0), Again(at_s=30.0, of=0, service="service 2"))),
    ),
    "a receipt is taken back": Mutant(
        Law.RECEIPT_STAYS,
        with_service(rpc={"nonce_state": never_used}),
        Case(
            steps=(Buy(number=0), Strike(at_s=1.0, fault=LIES), Act(at_s=2.0, does="run_indexer"))
        ),
    ),
    "a receipt is not served": Mutant(
        Law.RECEIPT_STAYS, with_policy(ServicePolicy(serve=FailToServe(1))), BOUGHT
    ),
    "a receipt is refused at first": Mutant(Law.RECEIPT_STAYS, Hooks(app=refused_at_first), BOUGHT),
    "a session has more than its deposit": Mutant(
        Law.SESSION_IS_DEPOSIT,
        with_service(sessions={name: with_more(name) for name in ("get", "paid_by")}),
        SPENT,
    ),
    "a session is served once": Mutant(
        Law.SESSION_SERVES, with_service(sessions={"can_pay": only_once}), SPENT
    ),
    "a session is debited twice": Mutant(
        Law.DEBITS_ARE_SERVED, with_service(sessions={"debit": debited_twice}), SPENT
    ),
    "a session is debited, and not served": Mutant(
        Law.DEBITS_ARE_SERVED, with_service(sessions={"debit": debited_and_refused}), SPENT
    ),
    "a session is served for nothing": Mutant(
        Law.DEBITS_ARE_SERVED, with_service(sessions={"debit": for_nothing}), SPENT
    ),
    "a session shows a wrong balance": Mutant(Law.DEBITS_ARE_SERVED, answering(shown_wrong), SPENT),
    "a refund is paid twice": Mutant(Law.REFUND_IS_THE_REST, Hooks(service=refunded_twice), SPENT),
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
        Law.REFUND_IS_THE_REST, with_policy(ServicePolicy(refund=NeverRefund())), SPENT
    ),
    "a refund that was undone stays": Mutant(
        Law.REFUND_IS_THE_REST,
        with_service(sessions={"undo_refund": kept}),
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
        with_service(payments={"pending": nobody}),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    "no answer, for ever": Mutant(Law.ANSWERED, Hooks(app=hanging), SPENT),
    "a refusal is a 500": Mutant(
        Law.NO_SERVER_ERROR, answering(crashing), Case(steps=(REFUSED, Buy(number=0)))
    ),
    "an exception in the background": Mutant(
        Law.NO_EXCEPTION, with_service(rpc={"height": raises}), BOUGHT
    ),
    "time stands still": Mutant(Law.TIME_PASSES, Hooks(app=spinning), BOUGHT),
}
