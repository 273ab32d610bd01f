"""Payment in one step: the x402 standard, versions 1 and 2, where the request itself pays.

A payer chooses one of the offers of a 402, signs it, and reads the settlement in the answer. A
server may be hostile or broken, so every field is checked before it is used.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx
import msgspec

from x402sim.payer.core import PaymentFailed, SpendingCapExceeded, changed, proofs
from x402sim.payer.purchases import Payment
from x402sim.payer.reading import UNKNOWN, AttemptOver, is_header_value, read_offer, says_used
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol import x402, x402_reasons
from x402sim.protocol.crypto import checksum, parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import BadMessage, PaymentRequired, decode, encode
from x402sim.protocol.money import parse_base
from x402sim.protocol.networks import Network
from x402sim.protocol.offers import PAYMENT_ID
from x402sim.protocol.ways import MOST_WAYS, foreign_in, object_in
from x402sim.protocol.x402 import PAYMENT_FLOW, PAYMENT_IDENTIFIER, SCHEME, named, unsupported_in
from x402sim.protocol.x402_reasons import Outcome

log = logging.getLogger("x402sim.payer")
BEFORE_SIGNING_S = 600
"""The window of the public client libraries: from 600 s before signing to the server's timeout."""


class Rejected(msgspec.Struct, frozen=True):
    """An offer of a 402 that this payer does not take, and why.

    `offered` describes the offer, or numbers it; `is_too_much`: only the cap forbids it.
    """

    offered: str
    why: str
    is_too_much: bool = False

    def __str__(self) -> str:
        return f"{self.offered}: {self.why}"


class Choice(msgspec.Struct, frozen=True):
    """The offer that was chosen for a resource, and those that were rejected."""

    resource: str
    chosen: str
    rejected: tuple[Rejected, ...]


class StandardOffer(msgspec.Struct, frozen=True):
    """The offer of a 402 that a payer accepts; `about` is the resource as the server describes it.

    `takes_payment_ids`: the server has the extension payment-identifier, so that an answer can be
    requested again.
    """

    accepted: x402.AnyRequirements
    amount_base: int
    about: x402.Resource | None
    rejected: tuple[Rejected, ...]
    takes_payment_ids: bool = False
    unknown: Mapping[str, Any] | None = None
    """The extensions that this payer does not know: they are sent back as they came."""

    @property
    def chosen(self) -> str:
        """The way to pay, in words."""
        return _describe(self.accepted)


def read_standard(
    response: httpx.Response, version: x402.Version | None
) -> x402.AnyRequired | None:
    """Return what a 402 offers in a version, by default the newest; None if it offers none.

    Of several offers, those that cannot be read are left out. Raises `BadMessage` if none can be.
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
    """Read a 402 without the offers that cannot be read; raises `BadMessage` if none can be."""
    try:
        whole: x402.AnyRequired = decode(body, kind)
    except BadMessage:
        fields = object_in(body) or {}
        listed = fields.get("accepts")
        kept = [each for each in listed if _fits(each, offer)] if isinstance(listed, list) else []
        if not kept or len(kept) == len(listed or ()):
            raise
        whole = decode(encode({**fields, "accepts": kept}), kind)
    return whole


def _fits(fields: Any, kind: type[Any]) -> bool:
    try:
        msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        return False
    return True


class ForeignRequired(msgspec.Struct, frozen=True):
    """A 402 that offers no payment we know: its resource, its protocol, and its main fields."""

    resource: str
    name: str
    says: str


def foreign_required(resource: str, response: httpx.Response) -> ForeignRequired | None:
    """Return a 402 of another protocol, or a bill, and log it; None if it offers what we pay."""
    other = foreign_in(response.headers, response.content)
    if other is None:
        return None
    says = ", ".join(f"{name} {value}" for name, value in other.facts.items())[:400]
    log.warning(
        "%s answered 402, which is %s; nothing was signed, and the answer is yours. %s",
        *(resource, other.name, other.do),
    )
    return ForeignRequired(resource, other.name, says)


OverCaps = Callable[[int], str]
"""Returns why an amount in base units is not paid; "" if it is."""


def read_required(
    request: httpx.Request, response: httpx.Response, network: Network, version: x402.Version | None
) -> PaymentRequired | x402.AnyRequired:
    """Return what a 402 offers: in two steps, unless a version is wanted or it offers only that.

    Raises `PaymentFailed` if it offers nothing that can be read.
    """
    fields = object_in(response.content) or {}
    if version is None and not fields.keys().isdisjoint(_TWO_STEP_FIELDS):
        return read_offer(request, response, network)
    try:
        standard = read_standard(response, version)
    except BadMessage as wrong:
        raise PaymentFailed(f"the 402 has no readable payment requirements: {wrong}") from wrong
    if standard is None and version is not None:
        raise PaymentFailed(f"the 402 offers no payment in version {version} of x402")
    return standard or read_offer(request, response, network)


_TWO_STEP_FIELDS = ("paymentId", "paymentRequirements")
"""What a body of section 2.2 has, well-formed or not."""


def choose(
    required: x402.AnyRequired, network: Network, over_caps: OverCaps = lambda _: ""
) -> StandardOffer:
    """Return the first way to pay that this payer can take; raises `PaymentFailed` if none.

    One that is settled before the server works comes after the others.
    """
    about, takes_payment_ids, unknown = None, False, None
    if isinstance(required, x402.RequiredV2):
        about, offered = required.resource, required.extensions or {}
        takes_payment_ids = PAYMENT_IDENTIFIER in offered
        unknown = {name: each for name, each in offered.items() if name != PAYMENT_IDENTIFIER}
    rejected: list[Rejected] = []
    accepts: list[x402.AnyRequirements] = sorted(
        required.accepts[:MOST_WAYS],
        key=lambda each: (each.extra or {}).get(PAYMENT_FLOW) == "upfront",
    )
    for number, each in enumerate(accepts, 1):
        why = _why_rejected(each, network)
        amount_base = 0 if why else parse_base(each.amount)
        over = over_caps(amount_base)
        if not why and not over:
            later = "another way to pay comes first"
            others = (*rejected, *(Rejected(_describe(way), later) for way in accepts[number:]))
            return StandardOffer(each, amount_base, about, others, takes_payment_ids, unknown)
        rejected.append(Rejected(_describe(each), why or over, is_too_much=not why))
    listed = "; ".join(f"{number}. {each}" for number, each in enumerate(rejected, 1))
    is_over = any(each.is_too_much for each in rejected)
    raise (SpendingCapExceeded if is_over else PaymentFailed)(
        "the 402 offers no way to pay that this payer can take; nothing was signed. "
        + (listed or "It offers none at all")
    )


def _why_rejected(offered: x402.AnyRequirements, network: Network) -> str:
    """Return why an offer is not taken; "" if it is."""
    name, extra = x402.network_name(offered.version, network), offered.extra or {}
    for field, got, wanted in (
        ("scheme", offered.scheme, SCHEME),
        ("network", offered.network, name),
        ("asset", offered.asset.lower(), checksum(network.asset).lower()),
        ("the token's domain", {key: extra.get(key) for key in _DOMAIN}, x402.domain_of(network)),
    ):
        if got != wanted:
            return f"{field} is {str(got)[:80]!r}, this payer pays {str(wanted)!r}"
    if (other := unsupported_in(extra)) is not None:
        return str(other)
    if not 1 <= offered.max_timeout_seconds < 2**31:
        return f"it allows {offered.max_timeout_seconds} seconds to pay; at least 1 is needed"
    try:
        parse_address(offered.pay_to)
        parse_base(offered.amount)
    except ValueError as wrong:
        return str(wrong)
    return ""


_DOMAIN = ("name", "version")


def _describe(offered: x402.AnyRequirements) -> str:
    what = f"{offered.amount[:30]} of {offered.asset[:42]}"
    return f"{offered.scheme[:20]} {what} on {offered.network[:40]}"


def sign(
    offer: StandardOffer,
    wallet: Wallet,
    network: Network,
    now_s: int,
    max_window_s: int = AFTER_SIGNING_S,
    *,
    by: Wallet | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Authorization, str]:
    """Return a new authorization for an offer, and its payment header; raises `ValueError`.

    Its window ends when the server says, but at most `max_window_s` from now. A defective payer
    makes `changes` to the authorization, or lets another wallet sign: `by`.
    """
    auth = wallet.authorization(
        to=parse_address(offer.accepted.pay_to),
        amount_base=offer.amount_base,
        valid_after=now_s - BEFORE_SIGNING_S,
        valid_before=now_s + min(offer.accepted.max_timeout_seconds, max_window_s),
    )
    auth = changed(auth, changes or {})
    extensions = dict(offer.unknown or {})
    if offer.takes_payment_ids:
        extensions |= named(wallet.name_of(auth))
    signature = (by or wallet).sign(auth, network.domain)
    return auth, x402.encode_payment(
        auth, signature, offer.accepted, offer.about, extensions or None
    )


def short_window_note(offer: StandardOffer, auth: Authorization) -> str:
    """Return a sentence if an authorization ends sooner than its offer allows; "" if not."""
    signed_s = auth.valid_before - auth.valid_after - BEFORE_SIGNING_S
    if signed_s >= offer.accepted.max_timeout_seconds:
        return ""
    return (
        f" It was signed for {signed_s} s, and the server allows "
        f"{offer.accepted.max_timeout_seconds} s: if that is why, raise max_window_s."
    )


def proof(offer: StandardOffer, header: str) -> dict[str, str]:
    """Return the headers of a request that pays.

    If the 402 names a payment id in `extra`, it is shown, too: after a lost answer it gives access.
    """
    accepted = offer.accepted
    payment = {x402.PAYMENT_HEADERS[accepted.version]: header}
    payment_id = (accepted.extra or {}).get(PAYMENT_ID)
    if isinstance(payment_id, str) and is_header_value(payment_id):
        payment |= proofs(payment_id)
    return payment


def settlement_in(response: httpx.Response, version: x402.Version) -> x402.Settlement | None:
    """Return the settlement in an answer; None if it has none that can be read."""
    text = response.headers.get(x402.RESPONSE_HEADERS[version])
    settlement: x402.Settlement | None = x402.json_in(text, x402.Settlement)
    return settlement


def read_refusal(response: httpx.Response, version: x402.Version, payment: Payment) -> str:
    """Return the 402 to a paying request, if the 402 reports the authorization as used.

    The nonce was drawn at random, so only this payment can have used the nonce. Raises
    `AttemptOver` for an expired authorization, and `PaymentFailed` while the authorization may
    still be used: a refusing server holds the payment all the same. A settlement that failed for an
    unknown word may have moved the money: it raises `PaymentFailed`, too, and no other payment is
    signed.
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
    outcome = x402_reasons.meaning_of(reason, sent).outcome
    if outcome is Outcome.SETTLED or says_used(reason) or reason == x402_reasons.STATE:
        return got
    # without a report of the settlement and a known word, a 402 says only "not served"
    is_reported = settlement is not None or reason in x402_reasons.WORDS
    is_unclear = outcome is Outcome.UNKNOWN
    if payment.is_expired and not (is_unclear and is_reported):
        raise AttemptOver(f"the payment was refused: {got}.{payment.note}")
    if reason == x402_reasons.VALID_BEFORE:
        got += f".{payment.clock_skew_note}" if payment.clock_skew_note else ""
    if is_unclear or payment.is_repeated:
        raise PaymentFailed(f"{UNKNOWN}: the server answered {got}", payment.retry_advice)
    raise PaymentFailed(f"the payment was refused: {got}", payment.retry_advice)
