"""Payments in one step: settled as POST /api/pay settles them, and answered once.

`x402_header` has read them. Decisions: 5/one-step, 5/payment-flow, 5/authorization-once,
5/payment-identifier.
"""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec.structs import replace
from starlette.responses import Response

from x402sim import events
from x402sim.protocol import x402_reasons
from x402sim.protocol.differences import too_late
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import Refusal, SettlementRefused, Unpaid
from x402sim.protocol.rules import GRACE_S
from x402sim.protocol.x402 import RESPONSE_HEADERS, Settlement, network_name, to_base64
from x402sim.service import payments
from x402sim.service.attempts import reserve_name
from x402sim.service.proofs import is_entitled
from x402sim.service.state import Service
from x402sim.service.store.served import KeptAnswer, Named
from x402sim.service.unsettled import record_refusal
from x402sim.service.x402_header import OneStep

log = logging.getLogger("x402sim")

_CODES: Mapping[Refusal, str] = {
    Refusal.INSUFFICIENT_BALANCE: x402_reasons.FUNDS,
    Refusal.INVALID_SIGNATURE: x402_reasons.SIGNATURE,
    Refusal.EXPIRED: x402_reasons.VALID_BEFORE,
}
"""The standard's words for refused settlements, but for those of a nonce that is used."""


async def prepay(service: Service, paid: OneStep) -> Mapping[str, str]:
    """Do what the payment flow does before the endpoint works: verify a payment, or settle it.

    Returns what an endpoint that fails then must tell: that the payment is settled. It stays good
    for one answer (decision 5/payment-flow), which names its payment id: an error does not, as who
    reads the chain can cause one. Raises `Unpaid`.
    """
    is_upfront = service.settings.payment_flow == "upfront"
    await settle(service, paid, only_accepts=not is_upfront)
    return _receipt(service, paid) if is_upfront else {}


async def settle(service: Service, paid: OneStep, *, only_accepts: bool = False) -> None:
    """Settle a payment as POST /api/pay does, unless it is settled already.

    If it `only_accepts`, it verifies and claims it. Raises `Unpaid` if it does not give access
    then.
    """
    settings, payment_id, refused = service.settings, paid.settlement.payment_id, None
    if await is_entitled(service, payment_id, paid.resource):
        return
    try:
        _require_time(service, paid)
        if only_accepts or settings.policy.serves_first:
            await payments.accept(service, paid.settlement, paid.offered_id, paid.named)
            return
        is_due = settings.payment_flow is None
        await payments.pay(
            service,
            paid.settlement,
            offered_id=paid.offered_id,
            named=paid.named,
            verifies=is_due,
        )
    except SettlementRefused as why:  # it may be settled all the same, by another request
        record_refusal(service, payment_id, why)
        refused = why
    if not await is_entitled(service, payment_id, paid.resource):
        is_later = settings.policy.counts_confirmations
        if refused is None or (is_later and refused.refusal is Refusal.ALREADY_SETTLED):
            refused = SettlementRefused(Refusal.PENDING, "it is paid, and is not served yet")
        raise _refused(service, paid, refused)


def _require_time(service: Service, paid: OneStep) -> None:
    """Raise `SettlementRefused` for a payment that ends before it can be settled.

    One that was presented before may have been settled in time.
    """
    is_short = paid.valid_before < service.clock.now_s() + GRACE_S
    if is_short and not service.store.payments.attempts(paid.settlement.payment_id):
        raise SettlementRefused(Refusal.EXPIRED, _late(service, paid))


def answer_once(
    service: Service, paid: OneStep, content: Response
) -> Callable[[bool], Awaitable[None]] | None:
    """Make the content the one answer that a payment buys (decision 5/authorization-once).

    What the chain has seen, anybody can send again, so it is served once: once means that the
    answer was written to a client that was still there. Returns what is to be told whether it was.
    Raises `Unpaid` if it was served before, and `Refused` 409 if another payment has its name.
    """
    payment_id, served = paid.settlement.payment_id, service.store.served
    policy = service.settings.policy
    content.headers.update(_receipt(service, paid))
    if not policy.reserves:
        return partial(_settle_afterwards, service, paid) if policy.serves_first else None
    reserve_name(service, payment_id, paid.named, paid.valid_before)
    if payment_id in service.answering or not served.begin(payment_id):
        if not service.settings.decisions.authorization_once:
            return None
        is_kept = paid.named is not None and served.kept(paid.named) is not None
        if served.is_marked(payment_id) and not is_kept:  # who sends it again gets what is kept
            again = SettlementRefused(Refusal.ALREADY_SETTLED, "this authorization has been served")
        else:
            again = SettlementRefused(Refusal.PENDING, "another request with it is being answered")
        raise _refused(service, paid, again)
    service.answering.add(payment_id)
    content.headers["X-Payment-Id"] = payment_id
    if paid.named is not None:
        _keep(service, paid, paid.named, content)
    return partial(_confirm, service, paid)


async def _confirm(service: Service, paid: OneStep, is_answered: bool) -> None:
    """Store whether the answer was written; the payment is free again if it was not."""
    payment_id = paid.settlement.payment_id
    if not is_answered:  # free in this process, also if that cannot be stored
        service.answering.discard(payment_id)
        service.record(events.AnswerNotWritten(payment_id=payment_id))
    try:
        service.store.served.end(payment_id, paid.resource, is_served=is_answered)
        service.answering.discard(payment_id)
    except sqlite3.OperationalError as failure:  # if served, it stays in `answering`
        log.warning("%s: whether it was served is not stored: %s", paid.resource, failure)
    if service.settings.policy.serves_first:
        await _settle_afterwards(service, paid)


async def _settle_afterwards(service: Service, paid: OneStep, _: bool = True) -> None:
    """Settle a payment that was served before; nobody is told if that fails."""
    try:
        await payments.pay(service, paid.settlement, offered_id=paid.offered_id)
    except SettlementRefused as why:
        record_refusal(service, paid.settlement.payment_id, why)


def _keep(service: Service, paid: OneStep, named: Named, content: Response) -> None:
    """Keep an answer for the payer who named the payment (decision 5/payment-identifier)."""
    answer = KeptAnswer(content.raw_headers, bytes(content.body))
    sold, now_s = (paid.settlement.payment_id, paid.resource), service.clock.now_s()
    until_s = max(min(paid.valid_before, MAX_STORED), now_s + service.settings.max_timeout_s)
    try:
        service.store.served.keep(named, answer, sold, until_s)
    except sqlite3.OperationalError as failure:  # it can be served, and not asked for again
        log.warning("%s: the answer is not kept: %s", paid.resource, failure)


# --- what is told of the settlement --------------------------------------------------


def _receipt(service: Service, paid: OneStep) -> Mapping[str, str]:
    """Return the header that tells of the settlement of a payment."""
    stored = service.store.payments.get(paid.settlement.payment_id)
    tx_hash = stored.tx_hash if stored else None
    return _told(service, paid, Settlement(success=True, transaction=tx_hash or ""))


def _refused(service: Service, paid: OneStep, why: SettlementRefused) -> Unpaid:
    """Return what answers a payment that was not settled."""
    row, code = why.refusal.row, _CODES.get(why.refusal, x402_reasons.UNEXPECTED_SETTLE)
    if why.refusal in (Refusal.NONCE_USED, Refusal.ALREADY_SETTLED):
        code = x402_reasons.NONCE_USED[paid.version]
    is_kept = row.resend or (row.final is None and not why.final)
    told = _late(service, paid) if why.refusal is Refusal.EXPIRED and not is_kept else str(why)
    is_pending = why.refusal is Refusal.PENDING
    stored = service.store.payments.get(paid.settlement.payment_id) if is_pending else None
    sent = stored.tx_hash if stored else None
    failed = Settlement(
        success=False,
        error_reason=x402_reasons.PENDING if sent else code,  # it must name the transaction
        error_message=told,
        transaction=sent or "",
    )
    headers = _told(service, paid, failed)
    return Unpaid(code, told, headers=headers, retryable=why if is_kept else None)


def _late(service: Service, paid: OneStep) -> str:
    """Return why an authorization is too late, so that a payer sees whose clock is wrong."""
    return f"{too_late(paid.valid_before, service.clock.now_s())}; sign a new one by that clock"


def _told(service: Service, paid: OneStep, settlement: Settlement) -> Mapping[str, str]:
    network = network_name(paid.version, service.setup.network)
    told = replace(settlement, network=network, payer=paid.payer)
    return {RESPONSE_HEADERS[paid.version]: to_base64(told)}
