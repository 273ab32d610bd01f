"""Parses the messages of the x402 standard for a payer: a 402, and the answer to a payment.

Versions 1 and 2, where the request itself pays. `signing.choose` decides which offer is taken.
"""

import logging
from contextlib import suppress
from typing import Any, TypeVar

import httpx
import msgspec

from x402sim.payer.core import PaymentFailed
from x402sim.payer.purchases import Payment
from x402sim.payer.reading import UNKNOWN, AttemptOver, Made, says_used
from x402sim.payer.signing import read_offer
from x402sim.protocol import x402, x402_reasons
from x402sim.protocol.messages import BadMessage, PaymentRequired, decode, encode
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2_payments import ALLOWANCE
from x402sim.protocol.ways import foreign_in, object_in
from x402sim.protocol.x402_reasons import PaymentFate

T = TypeVar("T")
log = logging.getLogger("x402sim.payer")


def read_standard(
    response: httpx.Response, version: x402.Version | None
) -> x402.AnyRequired | None:
    """Return the offers of a 402 in a version, by default the newest; None without offers.

    Unreadable offers are left out. Raises `BadMessage` if every offer is unreadable.
    """
    header = response.headers.get(x402.REQUIRED_HEADER)
    if header is not None and version != 1:
        return _readable(x402.from_base64(header), x402.RequiredV2, x402.RequirementsV2)
    if version == 2:
        return None
    fields = object_in(response.content)
    if fields is None or fields.get("x402Version") != 1:
        return None
    return _readable(response.content, x402.RequiredV1, x402.RequirementsV1)


def _readable(
    body: bytes, kind: type[x402.AnyRequired], offer: type[x402.AnyRequirements]
) -> x402.AnyRequired:
    """Read a 402 without its unreadable offers; raises `BadMessage` if all are unreadable."""
    try:
        whole: x402.AnyRequired = decode(body, kind)
    except BadMessage:
        fields = object_in(body) or {}
        listed = fields.get("accepts")
        found = listed if isinstance(listed, list) else []
        kept = [each for each in found if read_as(each, offer) is not None]
        if not kept or len(kept) == len(found):
            raise
        whole = decode(encode({**fields, "accepts": kept}), kind)
    return whole


def read_as(fields: Any, kind: type[T]) -> T | None:
    """Return the fields of an offer as a message; None for unreadable fields."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        return None


class ForeignRequired(msgspec.Struct, frozen=True):
    """A 402 of another protocol: the resource, the protocol's name, and the main fields."""

    resource: str
    name: str
    says: str


def foreign_required(resource: str, response: httpx.Response) -> ForeignRequired | None:
    """Return a 402 of another protocol, or a bill, and log it; None for offers that we pay."""
    other = foreign_in(response.headers, response.content)
    if other is None:
        return None
    says = ", ".join(f"{name} {value}" for name, value in other.facts.items())[:400]
    log.warning(
        "%s answered 402, which is %s; nothing was signed, and the answer is yours. %s",
        *(resource, other.name, other.do),
    )
    return ForeignRequired(resource, other.name, says)


def read_required(
    request: httpx.Request, response: httpx.Response, network: Network, version: x402.Version | None
) -> PaymentRequired | x402.AnyRequired:
    """Return a 402's offer in two steps; in one step if `version` is set or two steps are missing.

    Raises `PaymentFailed` if no offer can be read.
    """
    fields = object_in(response.content) or {}
    can_post = request.url.scheme in ("http", "https")  # not in a session of an MCP client
    if version is None and can_post and not fields.keys().isdisjoint(_TWO_STEP_FIELDS):
        return read_offer(request, response, network)
    try:
        standard = read_standard(response, version)
    except BadMessage as wrong:
        raise PaymentFailed(f"the 402 has no readable payment requirements: {wrong}") from wrong
    if standard is None and version is not None:
        raise PaymentFailed(f"the 402 offers no payment in version {version} of x402")
    return standard or read_offer(request, response, network)


_TWO_STEP_FIELDS = ("paymentId", "paymentRequirements")
"""The fields of a two-step body (section 2.2), well-formed or not."""


def settlement_in(response: httpx.Response, version: x402.Version) -> x402.Settlement | None:
    """Return the settlement in an answer; None without a readable settlement."""
    text = response.headers.get(x402.RESPONSE_HEADERS[version])
    said: x402.ForeignSettlement | None = x402.json_in(text, x402.ForeignSettlement)
    return None if said is None else said.plain


def read_refusal(response: httpx.Response, version: x402.Version, payment: Payment) -> Made:
    """Return the report of a 402 to a paying request that the authorization is used.

    The nonce was drawn at random, so only this payment can have used the nonce. Raises
    `AttemptOver` for an expired authorization, and `PaymentFailed` while the authorization may
    still be used: a server that refuses a payment can still settle it. A settlement that failed
    for an unknown reason may have moved the money: it raises `PaymentFailed`, too, and no other
    payment is signed.
    """
    settlement, reason = settlement_in(response, version), ""
    with suppress(BadMessage):
        required = read_standard(response, version)
        reason = (required.error if required else None) or ""
    if settlement is not None:
        reason = settlement.error_reason or reason
    details = (settlement.error_message if settlement else None) or ""
    got = f"402 {reason[:200]}: {details[:200]}".strip(" :")
    sent = settlement.transaction if settlement else ""
    outcome = x402_reasons.meaning_of(reason, sent).fate
    if outcome is PaymentFate.SETTLED or says_used(reason) or reason == x402_reasons.STATE:
        return Made(hint=got)
    # without a settlement or a known word, a 402 says only "not served"
    is_reported = settlement is not None or reason in x402_reasons.WORDS
    is_unclear = outcome is PaymentFate.UNKNOWN
    if payment.is_expired and not (is_unclear and is_reported):
        raise AttemptOver(f"the payment was refused: {got}.{payment.note}")
    if reason == ALLOWANCE and payment.by_permit2:
        got += f". {payment.approval}"
    if reason == x402_reasons.VALID_BEFORE and payment.clock_skew_note:
        got += f".{payment.clock_skew_note}".removesuffix(".")
    if is_unclear or payment.is_repeated:
        raise PaymentFailed(f"{UNKNOWN}: the server answered {got}", payment.retry_advice)
    raise PaymentFailed(f"the payment was refused: {got}", payment.retry_advice)
