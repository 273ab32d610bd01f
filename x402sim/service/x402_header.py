"""Reads the payment that a request holds, as the x402 standard sends it, and matches it.

X-PAYMENT (version 1) or PAYMENT-SIGNATURE (version 2) holds an authorization: the third proof of
payment, beside payment id and session id (decision 5/one-step). It is compared with what the
endpoint asks for, and nothing is changed. One authorization makes one payment id for one resource,
however often and in whatever spelling it is sent.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.responses import Response

from x402sim.http import web
from x402sim.protocol import x402_reasons
from x402sim.protocol.crypto import checksum, unwrapped
from x402sim.protocol.differences import difference, times
from x402sim.protocol.eip3009 import is_early
from x402sim.protocol.header import SignedPayment, encode_header
from x402sim.protocol.messages import BadMessage, SettlementRequest, decode
from x402sim.protocol.offers import PAYMENT_ID
from x402sim.protocol.refusals import RequestError, Unpaid
from x402sim.protocol.rules import VERIFICATION, Invalid, Verification, first_broken, without
from x402sim.protocol.supported import Unsupported, flow_said
from x402sim.protocol.x402 import (
    DECIMALS,
    PAYMENT_HEADERS,
    RequirementsV2,
    StandardPayment,
    Version,
    from_base64,
    network_name,
    payment_of,
    requirements_v2,
)
from x402sim.service.state import Service
from x402sim.service.store.served import KeptAnswer, Named

MATCH = without(VERIFICATION, "5/signature-proves")
"""What a payment must match. Whether its payer has signed it, the facilitator judges."""
HEADERS = {version: name.lower() for version, name in PAYMENT_HEADERS.items()}


class OneStep(msgspec.Struct, frozen=True):
    """A payment in one step: its payer's address, what it buys, and how it is settled (4.1).

    `offered_id` is the payment id of the 402 that it answers, if its payer shows it, and `named`
    what its payer calls it, with the digest of the whole payment.
    """

    version: Version
    payer: str
    resource: str
    valid_before: int
    settlement: SettlementRequest
    offered_id: str | None
    named: Named | None


class Repeated(Exception):
    """A payment whose `answer` is kept, as its payer named it (decision 5/payment-identifier)."""

    def __init__(self, kept: KeptAnswer) -> None:
        super().__init__()
        self.answer = Response(kept.body)
        self.answer.raw_headers = list(kept.headers)


def version_of(headers: Mapping[str, str]) -> Version:
    """Return the version of the payment in a request's headers; version 2 counts before 1."""
    return 2 if HEADERS[2] in headers else 1


def find(service: Service, headers: Mapping[str, str], resource: str, amount_base: int) -> OneStep:
    """Return the payment that a request's headers hold, whose names are in lower case.

    Raises `Unpaid` if there is none, or if it is not what is asked for, `Refused` 400 for one
    that cannot be read, 409 if another one has its name, and `Repeated` if its answer is kept.
    """
    version = version_of(headers)
    if HEADERS[version] not in headers or not service.settings.one_step:
        raise Unpaid
    payment = _read(version, text := headers[HEADERS[version]])
    named = _named(service, payment, resource, text)
    return OneStep(
        version=version,
        payer=checksum(payment.signed.authorization.from_),
        resource=resource,
        valid_before=payment.signed.authorization.valid_before,
        settlement=_match(service, payment, resource, amount_base),
        offered_id=_offered_id(service, payment, headers, resource),
        named=named,
    )


def _named(service: Service, payment: StandardPayment, resource: str, text: str) -> Named | None:
    """Return the name of a payment and its digest; its authorization may have been used by now.

    Raises `Repeated` if it was answered, and `Refused` 409 if another one has this name.
    """
    if payment.identifier is None:
        return None
    named = Named(payment.identifier, sha256(f"{resource}\n{text}".encode()).digest())
    kept = service.store.served.kept(named)
    if kept is not None:
        raise Repeated(kept)
    if service.store.served.is_taken(named):
        raise web.refused(RequestError.IDENTIFIER_TAKEN)
    return named


def _read(version: Version, text: str) -> StandardPayment:
    """Decode a payment; what is no JSON object is unreadable (400), another one is not accepted."""
    try:
        body = from_base64(text)
        said: dict[str, Any] = decode(body, dict[str, Any])
    except BadMessage as wrong:
        raise web.refused(RequestError.INVALID_PAYMENT, str(wrong)) from wrong
    if said.get("x402Version") != version:
        seen = repr(said.get("x402Version"))[:20]
        wanted = f"{PAYMENT_HEADERS[version]} wants x402Version {version}, got {seen}"
        raise Unpaid(x402_reasons.INVALID_VERSION, wanted)
    try:
        return payment_of(version, body)
    except Unsupported as other:
        raise Unpaid(other.reason, str(other)) from other
    except BadMessage as wrong:
        raise Unpaid(x402_reasons.INVALID_PAYLOAD, str(wrong)) from wrong


def _match(
    service: Service, payment: StandardPayment, resource: str, amount_base: int
) -> SettlementRequest:
    """Return how a payment is settled; raises `Unpaid` if it is not what is asked for."""
    network, auth = service.setup.network, payment.signed.authorization
    issued = replace(service.issuer.requirements(resource, amount_base), description=UNSET)
    if payment.accepted is not None:
        flow = flow_said(service.settings.payment_flow)
        _require_offered(payment.accepted, requirements_v2(issued, network, **flow))
    signed = _in_our_words(service, payment)
    if broken := first_broken(MATCH, case := Verification(signed, issued, network)):
        code = x402_reasons.invalid_reason(payment.version, broken.refusal)
        raise Unpaid(code, difference(broken.refusal, case))
    _require_resource(payment, resource)
    if is_early(auth, now_s := service.clock.now_s()):
        raise Unpaid(x402_reasons.VALID_AFTER, times("validAfter", auth.valid_after, now_s))
    return SettlementRequest(
        payment_id=service.issuer.derive(resource, auth),
        payment_header=encode_header(auth, signed.signature, network),
        payment_requirements=issued,
    )


def _offered_id(
    service: Service, payment: StandardPayment, headers: Mapping[str, str], resource: str
) -> str | None:
    """Return the payment id of the 402 that a payment answers; None unless its payer shows it.

    A payer of version 2 sends it back with what it accepted, and any payer may send X-Payment-Id
    beside the payment. Only the payer knows it, before anything can be lost: whoever reads the
    authorization on the chain does not.
    """
    extra = payment.accepted.extra if payment.accepted else None
    shown = (extra or {}).get(PAYMENT_ID) or headers.get("x-payment-id")
    terms = service.issuer.read(shown) if isinstance(shown, str) else None
    return shown if terms is not None and terms.resource == resource else None


def _in_our_words(service: Service, payment: StandardPayment) -> SignedPayment:
    """Return what was signed with our network's name, with the token if none is named, and with
    the signature that the token takes, without a wrapper (EIP-6492).
    """
    network, signed = service.setup.network, payment.signed
    if signed.network == network_name(payment.version, network):
        signed = replace(signed, network=network.name)
    asset = signed.asset or checksum(network.asset)
    return replace(signed, asset=asset, signature=unwrapped(signed.signature))


def _require_offered(accepted: RequirementsV2, offered: RequirementsV2) -> None:
    """Raise `Unpaid` unless what a payer accepted in version 2 is what the 402 offers.

    Addresses may be in another case.
    """
    said, asked = _by_name(accepted), _by_name(offered)
    for name in dict.fromkeys((*asked, *said)):
        theirs, ours = said.get(name), asked.get(name)
        is_address = name in ("asset", "payTo")
        if theirs != ours and not (is_address and str(theirs).lower() == str(ours).lower()):
            code = x402_reasons.invalid_reason(2, _UNLIKE.get(name, Invalid.ASSET))
            raise Unpaid(code, f"accepted.{name} is {str(theirs)[:80]!r}, offered was {ours!r}")


_UNLIKE = {"scheme": Invalid.SCHEME, "network": Invalid.NETWORK}
"""Why a field that is not what was offered is refused; any other one as the asset is."""


def _by_name(requirements: RequirementsV2) -> dict[str, object]:
    """Return every field by its name on the wire, those of `extra` each on its own."""
    fields: dict[str, Any] = msgspec.to_builtins(requirements)
    extra = fields.pop("extra", None) or {}
    extra.pop(PAYMENT_ID, None)  # it differs in each 402
    extra.pop(DECIMALS, None)  # it only informs, and some clients send name and version alone
    return fields | {f"extra.{key}": value for key, value in extra.items()}


def _require_resource(payment: StandardPayment, path: str) -> None:
    """Raise `Unpaid` if a payment names another resource; its host is whoever was asked."""
    if payment.resource is None:
        return
    try:
        named = urlsplit(payment.resource.url).path
    except ValueError:
        named = payment.resource.url
    if named != path:
        reason = f"the payment is for {named[:80]!r}, not for {path!r}"
        raise Unpaid(x402_reasons.INVALID_REQUIREMENTS, reason)
