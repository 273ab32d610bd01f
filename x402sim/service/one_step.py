"""Payments in one step: read as the x402 standard sends them, matched, settled, and answered once.

X-PAYMENT (version 1) or PAYMENT-SIGNATURE (version 2) holds an authorization: the third proof of
payment, beside payment id and session id. `find` compares the payment with what the endpoint sells,
and changes nothing. `spend` settles it as POST /api/pay does, and answers once. The payment id is
derived from the authorization and the resource, so repetitions and other spellings of the
authorization have the same payment id.
Decisions: 5/one-step, 5/payment-flow, 5/authorization-once, 5/payment-identifier.
"""

import logging
import sqlite3
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any, assert_never, cast
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.responses import Response

from x402sim import events
from x402sim.http import web
from x402sim.http.web import Connection
from x402sim.protocol import x402, x402_reasons
from x402sim.protocol.crypto import checksum, unwrapped
from x402sim.protocol.differences import difference, times, too_late
from x402sim.protocol.eip3009 import is_early
from x402sim.protocol.header import encode_header
from x402sim.protocol.messages import BadMessage, SettlementRequest, decode
from x402sim.protocol.offers import PAYMENT_ID
from x402sim.protocol.refusals import Finality, Refusal, RequestError, SettlementRefused, Unpaid
from x402sim.protocol.rules import GRACE_S, MATCH, InvalidReason, Verification, first_broken
from x402sim.service.payments import accept, key_ends_s, lasts_too_long, pay, reserve_key
from x402sim.service.proofs import is_entitled
from x402sim.service.state import Service
from x402sim.service.store.served import IdempotencyKey, StoredResponse
from x402sim.service.unsettled import record_refusal

HEADERS = {version: name.lower() for version, name in x402.PAYMENT_HEADERS.items()}


class OneStep(msgspec.Struct, frozen=True):
    """A payment in one step: the payer's address, the bought resource, and the settlement (4.1).

    `offered_id` is the payment id of the answered 402, if the payer sends the id. `key` is the
    payer's own id of the payment, with the digest of the whole payment.
    """

    version: x402.Version
    payer: str
    resource: str
    valid_before: int
    settlement: SettlementRequest
    offered_id: str | None
    key: IdempotencyKey | None


class IdempotentReplay(Exception):
    """A payment that was answered before: the stored `response` (decision 5/payment-identifier)."""

    def __init__(self, stored: StoredResponse) -> None:
        super().__init__()
        self.response = Response(stored.body, stored.status)
        self.response.raw_headers = list(stored.headers)


def version_of(headers: Mapping[str, str]) -> x402.Version:
    """Return the version of the payment in a request's headers; 2 if it has both."""
    return 2 if HEADERS[2] in headers else 1


def find(service: Service, headers: Mapping[str, str], resource: str, amount_base: int) -> OneStep:
    """Return the payment that a request's headers hold; their names are in lower case.

    Raises `Unpaid` if there is none, or if it differs from the requirements. Raises `Refused` 400
    if the payment cannot be read, and 409 if another payment has its key. Raises `IdempotentReplay`
    if the response to it is stored.
    """
    version, key = version_of(headers), None
    if HEADERS[version] not in headers or not service.env.settings.one_step:
        raise Unpaid
    payment = _read(version, text := headers[HEADERS[version]])
    if payment.identifier is not None:  # looked up first: its authorization may be used by now
        key = key_of(service, payment.identifier, resource, text)
        if (taken_by := service.store.served.taken_by(key)) is not None:
            auth = payment.signed.authorization
            is_same = auth.value == amount_base and taken_by == service.issuer.derive(
                resource, auth
            )
            reason = f"this payment has this id, in other bytes; {_AS_FIRST}" if is_same else None
            raise web.refused(RequestError.IDENTIFIER_TAKEN, reason)
    return OneStep(
        version=version,
        payer=checksum(payment.signed.authorization.from_),
        resource=resource,
        valid_before=payment.signed.authorization.valid_before,
        settlement=_match(service, payment, resource, amount_base),
        offered_id=_offered_id(service, payment, headers, resource),
        key=key,
    )


def key_of(service: Service, identifier: str, resource: str, text: str) -> IdempotencyKey:
    """Return the key of a payment with the payer's own id; raises `IdempotentReplay`."""
    key = IdempotencyKey(identifier, sha256(f"{resource}\n{text}".encode()).digest())
    if (stored := service.store.served.stored(key)) is not None:
        raise IdempotentReplay(stored)
    return key


def _read(version: x402.Version, text: str) -> x402.StandardPayment:
    """Decode a payment; raises `Refused` 400 if it is no JSON object, else `Unpaid`."""
    try:
        body = x402.from_base64(text)
        fields: dict[str, Any] = decode(body, dict[str, Any])
    except BadMessage as wrong:
        raise web.refused(RequestError.INVALID_PAYMENT, str(wrong)) from wrong
    if (got := fields.get("x402Version")) != version:
        wanted = (
            f"{x402.PAYMENT_HEADERS[version]} wants x402Version {version}, got {repr(got)[:20]}"
        )
        raise Unpaid(x402_reasons.INVALID_VERSION, wanted)
    try:
        return x402.payment_of(version, body)
    except x402.Unsupported as other:
        raise Unpaid(other.reason, str(other)) from other
    except BadMessage as wrong:
        raise Unpaid(x402_reasons.INVALID_PAYLOAD, str(wrong)) from wrong


def _match(
    service: Service, payment: x402.StandardPayment, resource: str, amount_base: int
) -> SettlementRequest:
    """Return how a payment is settled; raises `Unpaid` if it differs from the requirements."""
    network, auth = service.env.network, payment.signed.authorization
    issued = replace(service.issuer.requirements(resource, amount_base), description=UNSET)
    if payment.accepted is not None:
        flow = x402.flow_extra(service.env.settings.payment_flow)
        require_offered(payment.accepted, x402.requirements_v2(issued, network, **flow))
    signed = payment.signed  # in our network's name, with its token if none is named, unwrapped
    if signed.network == x402.network_name(payment.version, network):
        signed = replace(signed, network=network.name)
    asset = signed.asset or checksum(network.asset)
    signed = replace(signed, asset=asset, signature=unwrapped(signed.signature))  # EIP-6492
    if broken := first_broken(MATCH, case := Verification(signed, issued, network)):
        code = x402_reasons.invalid_reason(payment.version, broken.refusal)
        raise Unpaid(code, difference(broken.refusal, case))
    if payment.resource is not None:  # its host may be any name of this service
        try:
            path = urlsplit(payment.resource.url).path
        except ValueError:
            path = payment.resource.url
        if unquote(path) != resource:
            reason = f"the payment is for {path[:80]!r}, not for {resource!r}"
            raise Unpaid(x402_reasons.INVALID_REQUIREMENTS, reason)
    if is_early(auth, now_s := service.clock.now_s()):
        raise Unpaid(x402_reasons.VALID_AFTER, times("validAfter", auth.valid_after, now_s))
    return SettlementRequest(
        payment_id=service.issuer.derive(resource, auth),
        payment_header=encode_header(auth, signed.signature, network),
        payment_requirements=issued,
    )


def _offered_id(
    service: Service, payment: x402.StandardPayment, headers: Mapping[str, str], resource: str
) -> str | None:
    """Return the payment id of the 402 that a payment answers; None unless its payer shows it.

    A payer of version 2 sends the id back with the requirements that it accepted, and any payer may
    send X-Payment-Id beside the payment. The id tells the payer from others: whoever reads the
    authorization on the chain does not know it.
    """
    extra = payment.accepted.extra if payment.accepted else None
    shown = (extra or {}).get(PAYMENT_ID) or headers.get("x-payment-id")
    terms = service.issuer.read(shown) if isinstance(shown, str) else None
    return shown if terms is not None and terms.resource == resource else None


def require_offered(accepted: x402.RequirementsV2, offered: x402.RequirementsV2) -> None:
    """Raise `Unpaid` unless what a payer accepted in version 2 is what the 402 offers.

    Addresses may be in another case.
    """
    accepted_fields, offered_fields = _by_name(accepted), _by_name(offered)
    for name in dict.fromkeys((*offered_fields, *accepted_fields)):
        theirs, ours = accepted_fields.get(name), offered_fields.get(name)
        is_address = name in ("asset", "payTo")
        if theirs != ours and not (is_address and str(theirs).lower() == str(ours).lower()):
            code = x402_reasons.invalid_reason(2, _UNLIKE.get(name, InvalidReason.ASSET))
            raise Unpaid(code, f"accepted.{name} is {str(theirs)[:80]!r}, offered was {ours!r}")


_UNLIKE = {"scheme": InvalidReason.SCHEME, "network": InvalidReason.NETWORK}
"""The reason for a field that differs from the offer; for every other field, that of the asset."""


def _by_name(requirements: x402.RequirementsV2) -> dict[str, object]:
    """Return every field by name on the wire; each field of `extra` has an entry of its own."""
    fields: dict[str, Any] = msgspec.to_builtins(requirements)
    extra = fields.pop("extra", None) or {}
    extra.pop(PAYMENT_ID, None)  # it differs in each 402
    extra.pop(x402.DECIMALS, None)  # it only informs, and some clients send name and version alone
    return fields | {f"extra.{key}": value for key, value in extra.items()}


log = logging.getLogger("x402sim")


async def prepay(service: Service, paid: OneStep) -> Mapping[str, str]:
    """Do what the payment flow does before the endpoint works: nothing, verify, or settle.

    Returns the headers that an error of the endpoint must have: if the payment is settled, they say
    so. Such a payment still buys one answer (decision 5/payment-flow). That answer names its
    payment id; the error does not, because anybody who reads the chain can cause one. Raises
    `Unpaid`.
    """
    match service.env.settings.payment_flow:
        case None:
            return {}
        case "authorization":
            await _settle(service, paid, only_accepts=True)
            return {}
        case "upfront":
            await _settle(service, paid)
            return _receipt(service, paid)


async def spend(service: Service, paid: OneStep, content: Response, connection: Connection) -> None:
    """Settle a payment, and make the content the only answer to the payment.

    Anybody can repeat an authorization that the chain has published, so an authorization is served
    once. Only an answer written to a connected client counts (decision 5/authorization-once).
    Raises `Unpaid` if the payment is not settled or was served before, `Refused` 409 if another
    payment has its key, and `ClientDisconnect`.
    """
    policy, payment_id = service.env.settings.policy, paid.settlement.payment_id
    await _settle(service, paid)
    await web.require_client(connection)
    content.headers.update(_receipt(service, paid))
    if not policy.reserves:
        if policy.serves_first:
            content.background = cast(Any, partial(_settle_afterwards, service, paid))
        return
    if service.store.served.begin(payment_id, service.answering):
        content.headers["X-Payment-Id"] = payment_id
        if paid.key is not None:
            keep(service, (payment_id, paid.resource), paid.key, content, paid.valid_before)
        content.background = cast(Any, partial(_conclude, service, paid, connection))
    elif service.env.settings.decisions.authorization_once:  # else the answer is given again
        raise _served_already(service, paid)


def require_unserved(service: Service, paid: OneStep) -> None:
    """Raise `Unpaid` if the one answer of a payment was given, before the answer costs work."""
    payment_id = paid.settlement.payment_id
    taken = payment_id in service.answering or service.store.served.is_marked(payment_id)
    if taken and service.env.settings.decisions.authorization_once:
        raise _served_already(service, paid)


def _served_already(service: Service, paid: OneStep) -> Unpaid:
    payment_id, served = paid.settlement.payment_id, service.store.served
    is_kept = paid.key is not None and served.stored(paid.key) is not None
    if served.is_marked(payment_id) and not is_kept:  # a stored answer is given for its key
        again = SettlementRefused(Refusal.ALREADY_SETTLED, _how_served(service, paid))
    else:
        again = SettlementRefused(Refusal.PENDING, "another request with it is being answered")
    return _refused(service, paid, again)


_AS_FIRST = "send the payment again as it was sent first"


def _how_served(service: Service, paid: OneStep) -> str:
    """Return how a payment was served, and how its payer gets the answer again.

    Whoever knows the identifier under which the answer is stored, and reads the authorization on
    the chain, could request the answer. So the identifier is told to the payer only, who is known
    by the payment id of the 402.
    """
    served = "this authorization has been served"
    payment_id = paid.settlement.payment_id
    if (identifier := service.store.served.identifier(payment_id)) is None:
        return served
    attempt = service.store.payments.get(payment_id)
    offered_id = attempt.offered_id if attempt else None
    is_payer = offered_id is not None and offered_id == paid.offered_id
    under = f"the payment-identifier {identifier!r}" if is_payer else "another payment-identifier"
    return f"{served}, under {under}; {_AS_FIRST} to get its answer, or sign a new authorization"


def keep(
    service: Service,
    sold: tuple[str, str],
    key: IdempotencyKey,
    content: Response,
    valid_before: int,
) -> None:
    """Store an answer for repeated requests of the payer (decision 5/payment-identifier).

    `sold` is the payment id and the resource. If another payment has got the key since `find`,
    raises `Refused` 409, and the answer is free again: this payment was settled without the key,
    and may be sent without it.
    """
    (payment_id, resource), served = sold, service.store.served
    response = StoredResponse(content.raw_headers, bytes(content.body), content.status_code)
    until_s = key_ends_s(service, valid_before)
    try:
        with service.store.transaction():  # both, or none
            reserve_key(service, payment_id, key, valid_before)
            served.keep(key, response, sold, until_s)
    except sqlite3.OperationalError as failure:  # serve it; it cannot be repeated
        log.warning("%s: the answer is not stored: %s", resource, failure)
    except web.Refused:
        served.end(payment_id, resource, is_served=False)
        raise


async def _settle(service: Service, paid: OneStep, *, only_accepts: bool = False) -> None:
    """Settle a payment as POST /api/pay does, unless it is settled already.

    With `only_accepts`, only verify and claim it. Raises `Unpaid` if the payment does not give
    access after that.
    """
    settings, payment_id = service.env.settings, paid.settlement.payment_id
    if await is_entitled(service, payment_id, paid.resource):
        return
    not_yet = SettlementRefused(Refusal.PENDING, "it is paid, and is not served yet")
    try:
        is_short = paid.valid_before < service.clock.now_s() + GRACE_S
        # one that was presented before may have been settled in time
        if is_short and not service.store.payments.attempts(payment_id):
            raise SettlementRefused(Refusal.EXPIRED, _late(service, paid))
        if only_accepts or settings.policy.serves_first:
            await accept(service, paid.settlement, paid.offered_id, paid.key)
            return
        await pay(
            service,
            paid.settlement,
            offered_id=paid.offered_id,
            key=paid.key,
            verifies=settings.payment_flow is None,
        )
        refused = not_yet
    except SettlementRefused as why:
        record_refusal(service, payment_id, why)
        refused = why
    if await is_entitled(service, payment_id, paid.resource):  # by now, by whichever request
        return
    if service.store.payments.grants(payment_id, paid.resource):  # the policy serves it later
        refused = not_yet
    raise _refused(service, paid, refused)


async def _conclude(service: Service, paid: OneStep, connection: Connection) -> None:
    """Store whether the answer was written; if it was not, the payment still buys one."""
    payment_id, is_answered = paid.settlement.payment_id, connection.is_answered()
    if not is_answered:
        service.record(events.AnswerNotWritten(payment_id=payment_id))
    try:
        service.store.served.end(payment_id, paid.resource, is_served=is_answered)
    except sqlite3.OperationalError as failure:  # no other request gets the answer meanwhile
        log.warning("%s: whether it was served is not stored: %s", paid.resource, failure)
    if service.env.settings.policy.serves_first:
        await _settle_afterwards(service, paid)


async def _settle_afterwards(service: Service, paid: OneStep) -> None:
    """Settle a payment that was served before that; a refusal only goes to the journal."""
    try:
        await pay(service, paid.settlement, offered_id=paid.offered_id)
    except SettlementRefused as why:
        record_refusal(service, paid.settlement.payment_id, why)


# --- what the answer reports of the settlement -------------------------------------------


def _receipt(service: Service, paid: OneStep) -> Mapping[str, str]:
    attempt = service.store.payments.get(paid.settlement.payment_id)
    tx_hash = attempt.tx_hash if attempt else None
    return _reported(service, paid, x402.Settlement(success=True, transaction=tx_hash or ""))


def code_of(refusal: Refusal, version: x402.Version) -> str:
    """Return the standard's word for a refused settlement.

    "unexpected_settle_error" says that nobody knows what became of the payment.
    """
    match refusal:
        case Refusal.INSUFFICIENT_BALANCE:
            return x402_reasons.FUNDS
        case Refusal.INVALID_SIGNATURE:
            return x402_reasons.SIGNATURE
        case Refusal.EXPIRED:
            return x402_reasons.VALID_BEFORE
        case Refusal.NONCE_USED | Refusal.ALREADY_SETTLED:
            return x402_reasons.NONCE_USED[version]
        case Refusal.MISMATCH:
            return x402_reasons.INVALID_REQUIREMENTS
        case Refusal.PENDING | Refusal.UNREACHABLE | Refusal.CHAIN_UNREACHABLE | Refusal.FAILED:
            return x402_reasons.UNEXPECTED_SETTLE
        case _:
            assert_never(refusal)


def _refused(service: Service, paid: OneStep, why: SettlementRefused) -> Unpaid:
    row, code = why.refusal.row, code_of(why.refusal, paid.version)
    is_kept = row.resend or (row.final is Finality.STATED and not why.final)
    reason = str(why)
    if why.refusal is Refusal.EXPIRED and not is_kept:
        reason = lasts_too_long(service, paid.valid_before) or _late(service, paid)
    is_pending = why.refusal is Refusal.PENDING
    attempt = service.store.payments.get(paid.settlement.payment_id) if is_pending else None
    sent = attempt.tx_hash if attempt else None
    failed = x402.Settlement(
        success=False,
        error_reason=x402_reasons.PENDING if sent else code,  # it must name the transaction
        error_message=reason,
        transaction=sent or "",
    )
    headers = _reported(service, paid, failed)
    return Unpaid(code, reason, headers=headers, retryable=why if is_kept else None)


def _late(service: Service, paid: OneStep) -> str:
    """Return why an authorization is too late, and the service's time, for a payer to compare."""
    return f"{too_late(paid.valid_before, service.clock.now_s())}; sign a new one by that clock"


def _reported(service: Service, paid: OneStep, settlement: x402.Settlement) -> Mapping[str, str]:
    network = x402.network_name(paid.version, service.env.network)
    settlement = replace(settlement, network=network, payer=paid.payer)
    return {x402.RESPONSE_HEADERS[paid.version]: x402.to_base64(settlement)}
