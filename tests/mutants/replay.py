"""Defects against replay: what was used once, and is taken again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.mutants.change import Change, Service
from tests.mutants.middleware import Answer, Request, Serve
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import (
    ALREADY_SETTLED,
    INVALID_SIGNATURE,
    NONCE_USED,
    PAY,
    OtherIds,
    authorization,
    with_id,
)
from tests.mutants.wrapper import overriding
from x402sim import World
from x402sim.protocol.header import PresentedPayment, present
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
