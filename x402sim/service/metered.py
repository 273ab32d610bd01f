"""Goods sold by Permit2: `upto`, in which the payer signs a maximum and pays the amount used, and
`exact` beside EIP-3009, in which all of it is used.

The facilitator verifies the maximum, the good's function works, the amount used is stored with the
answer, then settled once, and the answer goes out. An amount of 0 needs no transaction, and the
message may be used again. Only the facilitator that the payer has signed for can settle a message,
so a claim is needed from the work on.

After a lost answer or a crash the chain decides, by the message's bit of Permit2: settled, the kept
answer is served without new work; unused, the same amount is settled again, by the next request or
in the background. A client that hangs up pays for the work, and gets the answer by the same message
later. Naive policies of `ServicePolicy` do not count here.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from x402sim import events
from x402sim.http import web
from x402sim.http.web import Connection
from x402sim.protocol import permit2_payments as words, x402, x402_reasons
from x402sim.protocol.crypto import ZERO_ADDRESS, checksum, parse_address, to_hex
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.permit2 import Permit2Authorization
from x402sim.protocol.refusals import Refusal, RequestError, SettlementRefused, Unpaid, status_of
from x402sim.protocol.rules import first_broken
from x402sim.service.gate import payment_required, proof_headers, refused
from x402sim.service.goods import AMOUNT_USED, Found
from x402sim.service.one_step import HEADERS, IdempotentReplay, keep, key_of, require_offered
from x402sim.service.payments import lasts_too_long, reserve_key
from x402sim.service.reconcile import AT_MOST, is_deep
from x402sim.service.state import Service
from x402sim.service.store.served import IdempotencyKey, StoredResponse
from x402sim.service.store.usages import Usage
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.chain import Settled

log = logging.getLogger("x402sim")
LATE_S = 3600
"""Seconds until which a node may show the settlement of a used nonce."""
_AGAIN = "send the same payment again, and sign no other one"


class _Paid(msgspec.Struct, frozen=True):
    """A payment in a request: the JSON as sent, read, and the name of the message in the store."""

    payment_id: str
    body: bytes
    payment: words.Permit2Payment
    auth: Permit2Authorization
    signature: bytes
    text: str
    identifier: str | None
    """The payer's own id of a payment in `exact`, whose 402 offers that."""


async def sell(
    service: Service,
    request: Request,
    resource: str,
    found: Found,
    work: Callable[[], Awaitable[Response]],
) -> Response:
    """Answer with what `work` makes, if the request pays for it by Permit2, and with 402 otherwise.

    The answer's header X-Amount-Used has the amount used. An answer of status 400 or more is not
    charged. Raises `Refused` 500 for an amount above the maximum: nothing is settled.
    """
    offer = await _offer(service, found)
    text = web.header(request, HEADERS[2].encode())
    try:
        if text is None or request.scope["method"] == "HEAD":
            raise Unpaid
        paid = _read(text)
        async with service.locks.hold(paid.payment_id):
            return await _sell(service, request, resource, offer, paid, work)
    except IdempotentReplay as replay:
        return replay.response
    except Unpaid as why:
        return await _required(service, request, resource, found, offer, why)


def pays(request: Request) -> bool:
    """Tell whether a request pays by Permit2, and has no id that gives access before that."""
    headers = proof_headers(request)
    sent = x402.json_in(headers.get(HEADERS[2]))
    is_first = not headers.keys() & {"x-payment-id", "x-session-id"}
    return is_first and isinstance(sent, dict) and words.is_permit2(sent.get("payload"))


async def beside(service: Service, found: Found, required: Response) -> Response:
    """Add the offer of `exact` by Permit2 to a 402, if the facilitator answers; return the 402."""
    told = x402.json_in(required.headers.get(x402.REQUIRED_HEADER), x402.RequiredV2)
    if required.status_code == 402 and told is not None:
        with suppress(web.Refused):
            offer = await _offer(service, found)
            extensions = {**(told.extensions or {}), **(service.upto.sponsorings or {})}
            told = replace(told, accepts=[*told.accepts, offer], extensions=extensions)
            required.headers[x402.REQUIRED_HEADER] = x402.to_base64(told)
    return required


async def _offer(service: Service, found: Found) -> x402.RequirementsV2:
    """Return the offer; the facilitator says which account settles `upto`."""
    env, scheme = service.env, words.UPTO if found.good.upto else x402.SCHEME
    try:
        extra = await service.upto.extra_of(scheme, env.network.caip2)
    except Unavailable as gone:
        raise _unreachable(service, Refusal.UNREACHABLE, gone) from gone
    return x402.RequirementsV2(
        scheme=scheme,
        network=env.network.caip2,
        amount=str(found.price_base),
        asset=checksum(env.network.asset),
        pay_to=checksum(env.pay_to),
        max_timeout_seconds=env.settings.max_timeout_s,
        extra=x402.domain_of(env.network) | extra,
    )


def _unreachable(service: Service, refusal: Refusal, why: Exception) -> web.Refused:
    return web.Refused(status_of(refusal, service.env.settings.decisions), refusal.text, str(why))


async def _required(
    service: Service,
    request: Request,
    resource: str,
    found: Found,
    offer: x402.RequirementsV2,
    why: Unpaid,
) -> Response:
    """Return the 402; 412 if only the approval of Permit2 is missing."""
    if why.retryable is not None:
        return refused(service, why.retryable, why.headers)
    status = 412 if why.code == words.ALLOWANCE else 402
    if not found.good.upto:
        both = payment_required(service, request, resource, int(offer.amount), why)
        both = await beside(service, found, both)
        both.status_code = status
        return both
    about = service.issuer.description(resource)
    required = x402.RequiredV2(
        x402_version=2,
        error=why.summary or "Payment Required",
        resource=x402.Resource(url=web.url_of(request), description=about),
        accepts=[offer],
        extensions=service.upto.sponsorings,
    )
    header = x402.to_base64(replace(required, error=why.code or required.error))
    return web.answer(required, status, {x402.REQUIRED_HEADER: header, **why.headers})


def _read(text: str) -> _Paid:
    try:
        payment = words.permit2_payment_of(body := x402.from_base64(text))
        auth, signature = words.message_of(payment)
        is_exact = payment.accepted.scheme == x402.SCHEME
        identifier = x402.identifier_in(payment.extensions) if is_exact else None
    except BadMessage as wrong:
        raise Unpaid(x402_reasons.INVALID_PAYLOAD, str(wrong)) from None
    payment_id = words.usage_id(auth.from_, auth.nonce.to_bytes(32))
    return _Paid(payment_id, body, payment, auth, signature, text, identifier)


async def _sell(
    service: Service,
    request: Request,
    resource: str,
    offer: x402.RequirementsV2,
    paid: _Paid,
    work: Callable[[], Awaitable[Response]],
) -> Response:
    """Serve one message once; the caller holds the lock."""
    served, payment_id, key = service.store.served, paid.payment_id, None
    if paid.identifier is not None:
        key = key_of(service, paid.identifier, resource, paid.text)
        if served.taken_by(key) is not None:
            raise web.refused(RequestError.IDENTIFIER_TAKEN)
    usage = service.store.usages.get(payment_id)
    if usage is not None and usage.state != "working":
        if words.message_of(words.permit2_payment_of(usage.payment)) != (paid.auth, paid.signature):
            raise Unpaid(words.NONCE, "nonce: another message with it was sent before")
        if usage.resource_url != resource:
            raise Unpaid(words.NONCE, f"this message is for {usage.resource_url!r}")
    if not served.begin(payment_id, service.answering):
        if served.is_marked(payment_id):
            raise Unpaid(words.NONCE, "this message has been served; sign a new one")
        raise _owed("another request with it is being answered")
    is_handed_over = False
    try:
        if usage is None or usage.state == "working":
            made = await _work(service, resource, offer, paid, key, work)
            if isinstance(made, Response):
                return made
            settled = await _settle(service, made)
        else:
            settled = await _settle(service, usage, asks_first=True)
        content = _content(service, settled)
        if key is not None:
            keep(service, (payment_id, resource), key, content, paid.auth.deadline)
        conclude = partial(_conclude, service, settled, web.connection(request))
        content.background = cast(Any, conclude)
        is_handed_over = True
        return content
    finally:
        if not is_handed_over:
            served.end(payment_id, resource, is_served=False)


# --- before the work, and the work ------------------------------------------------------------


async def _work(
    service: Service,
    resource: str,
    offer: x402.RequirementsV2,
    paid: _Paid,
    key: IdempotencyKey | None,
    work: Callable[[], Awaitable[Response]],
) -> Usage | Response:
    """Verify, claim, and work; return what is owed, or an answer that costs nothing."""
    usage = await _claim(service, resource, offer, paid, key)
    usages, payment_id = service.store.usages, paid.payment_id
    try:
        answer = await work()
        used_base = 0 if answer.status_code >= 400 else _used(service, answer, usage, offer)
        if not used_base:
            if answer.status_code < 400:
                answer.headers.update(_receipt(service, usage, "", 0))
            return answer
        kept = StoredResponse(answer.raw_headers, bytes(answer.body), answer.status_code)
        if not usages.owe(payment_id, used_base, kept):  # another database is restored
            raise _owed("the record of this payment has changed meanwhile")
    finally:
        usages.release(payment_id)  # unless it is owed
    measured = events.UsageMeasured(
        payment_id=payment_id,
        payer=checksum(paid.auth.from_),
        resource=resource,
        used_base=used_base,
        maximum_base=usage.maximum,
    )
    service.record(measured)
    return replace(usage, state="owed", used=used_base, answer=msgspec.msgpack.encode(kept))


async def _claim(
    service: Service,
    resource: str,
    offer: x402.RequirementsV2,
    paid: _Paid,
    key: IdempotencyKey | None,
) -> Usage:
    """Have a payment verified, and store the claim; raises `Unpaid`, and `Refused` if the
    facilitator or the node does not answer, or if another payment has the key.
    """
    auth = paid.auth
    require_offered(paid.payment.accepted, offer)
    case = words.Permit2Case(
        auth=auth,
        signature=paid.signature,
        accepted=paid.payment.accepted,
        wanted=offer,
        network=service.env.network,
        facilitator=parse_address((offer.extra or {}).get(words.FACILITATOR, to_hex(ZERO_ADDRESS))),
        now_s=service.clock.now_s(),
        settles=False,
        wallet=True,  # the facilitator verifies the signature
    )
    if broken := first_broken(words.PERMIT2_RULES, case):
        raise Unpaid(broken.refusal, broken.reason(case))
    if reason := lasts_too_long(service, auth.deadline):
        raise Unpaid(words.EXPIRED, reason)
    try:
        state = await service.rpc.permit_state(auth, None)
    except Unavailable as silent:
        raise _unreachable(service, Refusal.CHAIN_UNREACHABLE, silent) from silent
    if state.is_used:  # perhaps by an earlier sale: the store may have been cleared
        raise Unpaid(words.NONCE, "nonce: used before this request")
    try:
        verified = await service.upto.verified(msgspec.Raw(paid.body), offer)
    except Unavailable as gone:
        raise _unreachable(service, Refusal.UNREACHABLE, gone) from gone
    if not verified.is_valid:
        code = verified.invalid_reason or x402_reasons.UNEXPECTED_VERIFY
        raise Unpaid(code, verified.invalid_message or "the facilitator gives no details")
    usage = Usage(
        payment_id=paid.payment_id,
        payment=paid.body,
        resource_url=resource,
        maximum=auth.amount,
        until_s=auth.deadline,
        since_block=state.height - service.env.settings.final_depth,
    )
    service.store.usages.release(paid.payment_id)  # of work that ended in a crash
    with service.store.transaction():
        if not service.store.usages.claim(usage):
            raise _owed("another request with it is being answered")
        if key is not None:
            reserve_key(service, paid.payment_id, key, auth.deadline)
    return usage


def _used(service: Service, answer: Response, usage: Usage, offer: x402.RequirementsV2) -> int:
    """Return the amount used, by default the maximum; raises `Refused` 500 for a wrong one."""
    told = answer.headers.get(AMOUNT_USED) if offer.scheme == words.UPTO else None
    if told is None:
        return usage.maximum
    del answer.headers[AMOUNT_USED]
    decimals, reason = service.env.network.decimals, ""
    try:
        used_base = to_base(told, decimals)
        if used_base > usage.maximum:
            most = to_decimal(usage.maximum, decimals)
            reason = f"used {told[:80]} tokens, the payer has signed at most {most}"
    except ValueError as wrong:
        reason = str(wrong)
    if reason:
        reason = f"{AMOUNT_USED} of {usage.resource_url}: {reason}; nothing is settled"
        log.error("%s", reason)
        raise web.Refused(500, "Amount used is wrong", reason)
    return used_base


# --- after the work ---------------------------------------------------------------------------


async def _settle(service: Service, usage: Usage, *, asks_first: bool = False) -> Usage:
    """Settle what is owed, or find it settled; raises `Unpaid`."""
    reason, code, may_settle = "", x402_reasons.UNEXPECTED_SETTLE, True
    try:
        if asks_first:
            usage, may_settle = await follow(service, usage)
        if usage.state == "owed" and may_settle:
            code, reason = await _ask_to_settle(service, usage)
            usage, _ = await follow(service, usage) if reason else (_stored(service, usage), True)
    except Unavailable as silent:
        reason = reason or str(silent)
    if usage.state == "settled":
        return usage
    if usage.state == "failed":
        raise Unpaid(words.EXPIRED, "this message was not settled in time; sign a new one")
    reason = reason or "nonce: used on the chain, not by this payment"
    failed = x402.Settlement(success=False, error_reason=code, error_message=reason)
    raise _owed(f"{code}: {reason}", _reported(service, usage, failed))


async def _ask_to_settle(service: Service, usage: Usage) -> tuple[str, str]:
    """Ask the facilitator to settle; return the word and the reason if it has not, else ""."""
    payment = words.permit2_payment_of(usage.payment)
    wanted = replace(payment.accepted, amount=str(usage.used))
    try:
        outcome = await service.upto.settled_used(msgspec.Raw(usage.payment), wanted)
    except Unavailable as gone:
        return x402_reasons.UNEXPECTED_SETTLE, str(gone)
    except OutcomeUnknown as lost:
        service.record(events.SettlementAnswerLost(payment_id=usage.payment_id))
        return x402_reasons.UNEXPECTED_SETTLE, str(lost)
    if not outcome.success:
        code = outcome.error_reason or x402_reasons.UNEXPECTED_SETTLE
        return code, outcome.error_message or "the facilitator gives no details"
    _note_settled(service, usage, outcome.transaction, int(wanted.amount))
    return "", ""


def _note_settled(service: Service, usage: Usage, tx_hash: str, settled_base: int) -> None:
    if service.store.usages.settle(usage.payment_id, tx_hash, settled_base):
        settled = events.UsageSettled(
            payment_id=usage.payment_id,
            tx_hash=tx_hash,
            settled_base=settled_base,
            maximum_base=usage.maximum,
        )
        service.record(settled)


def _stored(service: Service, usage: Usage) -> Usage:
    """Return a usage as stored now; an older database may have been restored meanwhile."""
    return service.store.usages.get(usage.payment_id) or usage


async def follow(service: Service, usage: Usage) -> tuple[Usage, bool]:
    """Move a usage to the state of the chain; return it, and whether its nonce is unused.

    Raises `Unavailable`.
    """
    usages, payment_id = service.store.usages, usage.payment_id
    auth, _ = words.message_of(words.permit2_payment_of(usage.payment))
    state = await service.rpc.permit_state(auth, usage.since_block)
    if state.use is not None and not _is_spent(service, usage, auth, state.use):
        _note_settled(service, usage, state.use.tx_hash, state.use.amount_base)
        if is_deep(service, state.use.block_number, state.height):
            usages.set_deep(payment_id)
    elif state.is_used and (
        await service.rpc.transaction(usage.tx_hash)
        if usage.tx_hash
        else state.head_s <= usage.until_s + LATE_S
    ):
        pass  # a node behind the head does not show the transaction yet
    elif state.head_s > usage.until_s:
        if usages.fail(payment_id):
            failed = events.UsageFailed(payment_id=payment_id, used_base=usage.used or 0)
            service.record(failed)
    elif usage.state == "settled" and not state.is_used and usages.undo(payment_id):
        service.record(events.PaymentUndone(payment_id=payment_id))
    return _stored(service, usage), not state.is_used


def _is_spent(service: Service, usage: Usage, auth: Permit2Authorization, settled: Settled) -> bool:
    """Tell whether the transaction's transfers have paid for other messages: each pays once."""
    others = service.store.usages.settled_by(settled.tx_hash)
    payers = [
        words.message_of(words.permit2_payment_of(each.payment))[0].from_
        for each in others
        if each.payment_id != usage.payment_id and each.used == settled.amount_base
    ]
    return payers.count(auth.from_) >= settled.transfers


async def reconcile(service: Service) -> None:
    """Settle what is owed, and look whether the chain has kept what was settled."""
    for due in service.store.usages.due(service.clock.now_s(), AT_MOST):
        async with service.locks.hold(due.payment_id):
            usage = _stored(service, due)
            if usage.state in ("owed", "settled"):
                try:
                    await _settle(service, usage, asks_first=True)
                except Unpaid as why:
                    log.info("%s: %s", usage.resource_url, why.retryable or why.summary)


# --- the answer -------------------------------------------------------------------------------


def _owed(reason: str, headers: dict[str, str] | None = None) -> Unpaid:
    """Return what answers a payment that may still be settled."""
    pending = SettlementRefused(Refusal.PENDING, f"{reason}; {_AGAIN}", final=False)
    return Unpaid(x402_reasons.UNEXPECTED_SETTLE, reason, headers=headers, retryable=pending)


def _content(service: Service, usage: Usage) -> Response:
    if usage.answer is None:
        raise Unpaid(words.NONCE, "this message was served, or settled too late; sign a new one")
    stored = msgspec.msgpack.decode(usage.answer, type=StoredResponse)
    content = Response(stored.body, stored.status)
    content.raw_headers = list(stored.headers)
    content.headers.update(_receipt(service, usage, usage.tx_hash or "", usage.used or 0))
    return content


def _receipt(service: Service, usage: Usage, tx_hash: str, settled_base: int) -> dict[str, str]:
    settled = x402.Settlement(success=True, transaction=tx_hash, amount=str(settled_base))
    return _reported(service, usage, settled)


def _reported(service: Service, usage: Usage, settlement: x402.Settlement) -> dict[str, str]:
    fields = words.permit2_payment_of(usage.payment).payload.permit2_authorization
    network, payer = service.env.network.caip2, checksum(parse_address(fields.from_))
    return {
        x402.RESPONSE_HEADERS[2]: x402.to_base64(replace(settlement, network=network, payer=payer))
    }


async def _conclude(service: Service, usage: Usage, connection: Connection) -> None:
    """Store whether the answer was written; if it was not, it is kept for the same message."""
    is_answered, payment_id = connection.is_answered(), usage.payment_id
    if is_answered:
        service.store.usages.delivered(payment_id)
    else:
        service.record(events.AnswerNotWritten(payment_id=payment_id))
    service.store.served.end(payment_id, usage.resource_url, is_served=is_answered)
