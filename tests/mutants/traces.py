"""Defects of what was refused: it leaves a trace, and a good payment is refused for it.

And of what comes often: what is right for one payment is wrong for the twentieth.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from tests.mutants.change import Change, Service
from tests.mutants.error import BALANCE, EXPIRED, REFUSALS
from tests.mutants.gate import gate
from tests.mutants.middleware import Answer, Request, Serve, answer
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import (
    ALREADY_SETTLED,
    INVALID_SIGNATURE,
    NONCE_USED,
    PAY,
    QUOTE,
    SESSIONS,
    authorization,
)
from tests.mutants.session import session
from tests.mutants.settlement import settlement
from tests.mutants.spelling import payload

trace = Kind("trace")
TWENTY = 20


def by_id(request: Request) -> str:
    """Return the payment id of a settlement."""
    return request.field("paymentId")


def by_nonce(request: Request) -> str:
    """Return payer and nonce of a settlement; empty if its header cannot be read."""
    auth = authorization(request.field("paymentHeader"))
    return f"{auth.from_.hex()} {auth.nonce.hex()}" if auth else ""


def by_payer(request: Request) -> str:
    """Return the payer of a settlement; empty if its header cannot be read."""
    auth = authorization(request.field("paymentHeader"))
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
    """Tell whether a payment is of another amount than its id asks for."""
    terms, auth = service.issuer.read(by_id(request)), authorization(request.field("paymentHeader"))
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
    payment_id = request.headers.get("x-payment-id", "")
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
    payment_id = request.headers.get("x-payment-id", "")
    used_up = served[payment_id] >= TWENTY
    reply = await serve(request.having(x_payment_id=None) if used_up else request)
    served[payment_id] += reply.status == 200
    return reply


@gate.defect("twenty-payments-a-payer", "5/stored-records", at("/", lambda: defaultdict(list)))
async def twenty_payments(
    kept: defaultdict[str, list[str]], _: Service, request: Request, serve: Serve
) -> Answer:
    """Of a payer's payments, the newest twenty grant access."""
    payment_id = request.headers.get("x-payment-id", "")
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
    payment_id = request.headers.get("x-payment-id", "")
    reply = await serve(request)
    if payment_id and reply.status == 402:
        early.add(payment_id)
    return answer(404, {"error": "No such session"}) if payment_id in early else reply
