"""The wire of the x402 standard, versions 1 and 2, scheme "exact" on EVM chains.

Headers, messages, and the content of a payment. Version 1 names networks ("base-sepolia") and has
the requirements in the body of a 402; version 2 names chains ("eip155:84532") and has the
requirements in a header. Every header is base64 of JSON. A facilitator's answers are here, too; the
words for refusals are in `x402_reasons`. Supported are one scheme, one transfer method and two
payment flows; others are refused by name. Payments by Permit2, which the facilitator and the payer
know, are in `permit2_payments`. Two extensions are supported: payment-identifier (a payer
names a payment, and gets a lost answer again), and bazaar (`bazaar.py`).
Decision: 5/payment-identifier.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import msgspec

from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import SignedPayment, read_signed
from x402sim.protocol.messages import (
    BadMessage,
    PaymentRequirements,
    Wire,
    decode,
    decoded,
    encode,
    fields_of,
)
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import shown

SCHEME = "exact"
TRANSFER_METHOD = "eip3009"
PaymentFlow = Literal["authorization", "upfront"]
"""When a payment in one step is settled: after the endpoint's work, or before."""
PAYMENT_FLOW = "paymentFlow"
"""The name of the flow in `extra`; if it is missing, the flow is "authorization"."""
_RESERVED = {
    "assetTransferMethod": ("unsupported_asset_transfer_method", (TRANSFER_METHOD,)),
    PAYMENT_FLOW: ("unsupported_payment_flow", get_args(PaymentFlow)),
}
"""Names in `extra` with a meaning: the word for any other value, and those supported."""


class Unsupported(BadMessage):
    """A payment in an unsupported way; `reason` is the standard's word."""

    def __init__(self, reason: str, got: str, wanted: str) -> None:
        super().__init__(f"{got}; supported: {wanted}")
        self.reason = reason


def unsupported_in(extra: Mapping[str, Any] | None) -> Unsupported | None:
    """Return the unsupported part of the requirements' `extra`, or None."""
    for name, (reason, values) in _RESERVED.items():
        value = (extra or {}).get(name)
        if value is not None and value not in values:
            got = repr(value[:40]) if isinstance(value, str) else shown(value)
            return Unsupported(reason, f"extra.{name}: {got}", " and ".join(values))
    return None


def flow_extra(flow: PaymentFlow | None) -> dict[str, str]:
    """Return the flow for the `extra` of requirements."""
    return {} if flow is None else {PAYMENT_FLOW: flow}


PAYMENT_IDENTIFIER = "payment-identifier"
"""The extension for a payer's own id of a payment: a lost answer is given again."""
_CHARACTERS, _LEAST, _MOST = "[a-zA-Z0-9_-]", 16, 128
_IDENTIFIER = re.compile(f"{_CHARACTERS}{{{_LEAST},{_MOST}}}")
IDENTIFIER_OFFER: dict[str, Any] = {
    PAYMENT_IDENTIFIER: {
        "info": {"required": False},
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "required": {"type": "boolean"},
                "id": {
                    "type": "string",
                    "minLength": _LEAST,
                    "maxLength": _MOST,
                    "pattern": f"^{_CHARACTERS}+$",
                },
            },
            "required": ["required"],
        },
    }
}
"""The extension in a 402."""


def identifier_in(extensions: dict[str, Any] | None) -> str | None:
    """Return the id in a payment's extensions; raises `BadMessage` for a wrong id."""
    extension = (extensions or {}).get(PAYMENT_IDENTIFIER)
    info = extension.get("info") if isinstance(extension, dict) else None
    named = info.get("id") if isinstance(info, dict) else None
    if named is None:  # who echoes the extension without an id names nothing
        return None
    if not (isinstance(named, str) and _IDENTIFIER.fullmatch(named)):
        wanted = f"{_LEAST} to {_MOST} letters, digits, - and _"
        raise BadMessage(f"{PAYMENT_IDENTIFIER}: wanted {wanted}, got {str(named)[:40]!r}")
    return named


def named(identifier: str, offered: Any = None) -> dict[str, Any]:
    """Return the extensions of a payment with this id, beside what a 402 has `offered`: servers
    compare that.
    """
    offer = fields_of(offered) or IDENTIFIER_OFFER[PAYMENT_IDENTIFIER]
    return {PAYMENT_IDENTIFIER: offer | {"info": fields_of(offer.get("info")) | {"id": identifier}}}


Version = Literal[1, 2]
VERSIONS: tuple[Version, ...] = (1, 2)
PAYMENT_HEADERS: dict[Version, str] = {1: "X-PAYMENT", 2: "PAYMENT-SIGNATURE"}
"""The request header that carries a payment."""
RESPONSE_HEADERS: dict[Version, str] = {1: "X-PAYMENT-RESPONSE", 2: "PAYMENT-RESPONSE"}
"""The response header with the outcome."""
REQUIRED_HEADER = "PAYMENT-REQUIRED"
"""The header of a 402 in version 2."""
PROOF_HEADERS = ("X-Payment-Id", "X-Session-Id", *PAYMENT_HEADERS.values())
"""The headers of requests that pay, or prove a payment, also in two steps."""
PROOFS = frozenset(name.lower().encode() for name in PROOF_HEADERS)
"""The same, as ASGI has them."""
OF_PAYMENTS = PROOFS | {
    name.lower().encode() for name in (*RESPONSE_HEADERS.values(), REQUIRED_HEADER)
}
"""All headers of payments."""
MIME_TYPE = "application/json"
"""The type of the content sold here."""


# --- requirements --------------------------------------------------------------------


class RequirementsV1(Wire, frozen=True, omit_defaults=True):
    """One way to pay in a 402 of version 1; `resource` is a URL."""

    version: ClassVar[Version] = 1
    scheme: str
    network: str
    max_amount_required: str
    asset: str
    pay_to: str
    max_timeout_seconds: int
    resource: str = ""
    description: str | None = None
    mime_type: str | None = None
    output_schema: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None

    @property
    def amount(self) -> str:
        """The amount, as version 2 calls it."""
        return self.max_amount_required


class RequirementsV2(Wire, frozen=True, omit_defaults=True):
    """One way to pay in a 402 of version 2, offered and accepted."""

    version: ClassVar[Version] = 2
    scheme: str
    network: str
    amount: str
    asset: str
    pay_to: str
    max_timeout_seconds: int
    extra: dict[str, Any] | None = None


AnyRequirements = RequirementsV1 | RequirementsV2


class Resource(Wire, frozen=True, omit_defaults=True):
    """The bought resource, in version 2."""

    url: str
    description: str | None = None
    mime_type: str | None = None


class RequiredV1(Wire, frozen=True, omit_defaults=True):
    """The body of a 402 in version 1."""

    x402_version: Literal[1]
    accepts: list[RequirementsV1]
    error: str | None = None


class RequiredV2(Wire, frozen=True, omit_defaults=True):
    """The header of a 402 in version 2."""

    x402_version: Literal[2]
    accepts: list[RequirementsV2]
    resource: Resource | None = None
    error: str | None = None
    extensions: dict[str, Any] | None = None


AnyRequired = RequiredV1 | RequiredV2


def requirements_v1(
    wanted: PaymentRequirements, network: Network, *, url: str, **extra: str
) -> RequirementsV1:
    """Return our requirements in version 1; `url` is the whole URL of their resource."""
    return RequirementsV1(
        scheme=wanted.scheme,
        network=network.name,
        max_amount_required=wanted.max_amount_required,
        asset=wanted.asset,
        pay_to=wanted.pay_to,
        max_timeout_seconds=wanted.max_timeout_seconds,
        resource=url,
        description=wanted.description or "",
        mime_type=MIME_TYPE,
        extra=domain_of(network) | {DECIMALS: network.decimals} | extra,
    )


def requirements_v2(wanted: PaymentRequirements, network: Network, **extra: str) -> RequirementsV2:
    """Return our requirements in version 2; `extra` stands beside the token's domain."""
    return RequirementsV2(
        scheme=wanted.scheme,
        network=network.caip2,
        amount=wanted.max_amount_required,
        asset=wanted.asset,
        pay_to=wanted.pay_to,
        max_timeout_seconds=wanted.max_timeout_seconds,
        extra=domain_of(network) | {DECIMALS: network.decimals} | extra,
    )


DECIMALS = "decimals"
"""The name in `extra` of the token's decimals, by which a client shows the amount in tokens."""


def domain_of(network: Network) -> dict[str, Any]:
    """Return the `extra` with the token's EIP-712 domain, signed by every payer."""
    return {"name": network.token_name, "version": network.token_version}


def network_name(version: Version, network: Network) -> str:
    """Return what a version calls a network."""
    return network.name if version == 1 else network.caip2


# --- a payment -----------------------------------------------------------------------


class AuthorizationFields(Wire, frozen=True):
    """An EIP-3009 authorization: every number a decimal string, the rest 0x-hex."""

    from_: str = msgspec.field(name="from")
    to: str
    value: str
    valid_after: str
    valid_before: str
    nonce: str


class ExactPayload(Wire, frozen=True):
    """The payload of the scheme "exact" on EVM chains."""

    signature: str
    authorization: AuthorizationFields


class PaymentV1(Wire, frozen=True):
    """A payment in version 1, without the token's name."""

    x402_version: Literal[1]
    scheme: str
    network: str
    payload: ExactPayload


class PaymentV2(Wire, frozen=True, omit_defaults=True):
    """A payment in version 2, with the accepted requirements."""

    x402_version: Literal[2]
    accepted: RequirementsV2
    payload: ExactPayload
    resource: Resource | None = None
    extensions: dict[str, Any] | None = None


class StandardPayment(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a payment: `accepted` and `resource` in version 2 only.

    `signed.network` is in the version's spelling, and `signed.asset` empty in version 1.
    """

    version: Version
    signed: SignedPayment
    accepted: RequirementsV2 | None = None
    resource: Resource | None = None
    extensions: dict[str, Any] | None = None
    identifier: str | None = None
    """The payer's own id, by the extension payment-identifier."""


def read_payment(version: Version, text: str) -> StandardPayment:
    """Read the header of a payment; raises `BadMessage`."""
    return payment_of(version, from_base64(text))


def payment_of(version: Version, body: bytes) -> StandardPayment:
    """Read the JSON of a payment; raises `BadMessage` or its subclass `Unsupported`."""
    try:
        if version == 1:
            first: PaymentV1 = decode(body, PaymentV1)
            signed = _signed(first.scheme, first.network, "", first.payload)
            return StandardPayment(version=1, signed=signed)
        second: PaymentV2 = decode(body, PaymentV2)
        accepted = second.accepted
        if (other := unsupported_in(accepted.extra)) is not None:
            raise other
        return StandardPayment(
            version=2,
            signed=_signed(accepted.scheme, accepted.network, accepted.asset, second.payload),
            accepted=accepted,
            resource=second.resource,
            extensions=second.extensions,
            identifier=identifier_in(second.extensions),
        )
    except BadMessage:
        _require_supported(body)
        raise


def version_in(value: object) -> Version | None:
    """Return the version of the standard that a JSON value is; None for any other."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return next((version for version in VERSIONS if is_number and value == version), None)


def _require_supported(body: bytes) -> None:
    """Raise `Unsupported` for a payment of another version, scheme or method."""
    value = decode(body, Any)
    value = value if isinstance(value, dict) else {}
    if "x402Version" in value and version_in(value["x402Version"]) is None:
        got = f"x402Version of the payment: {shown(value['x402Version'])}"
        raise Unsupported("invalid_x402_version", got, "1 and 2")
    accepted, payload = value.get("accepted"), value.get("payload")
    terms = accepted if isinstance(accepted, dict) else value
    wanted = f"scheme {SCHEME} by EIP-3009's authorization"
    if isinstance(scheme := terms.get("scheme"), str) and scheme != SCHEME:
        raise Unsupported("unsupported_scheme", f"scheme: {scheme[:40]!r}", wanted)
    payload = payload if isinstance(payload, dict) else {}
    if "authorization" not in payload and payload.keys() > {"signature"}:  # of another method
        held = ", ".join(str(name)[:40] for name in payload)
        raise Unsupported("unsupported_payload_type", f"a payload of {held[:200]}", wanted)


def exact_payload(auth: Authorization, signature: bytes) -> ExactPayload:
    """Return a signed authorization as the payload of a payment."""
    return ExactPayload(
        signature=to_hex(signature),
        authorization=AuthorizationFields(
            from_=checksum(auth.from_),
            to=checksum(auth.to),
            value=str(auth.value),
            valid_after=str(auth.valid_after),
            valid_before=str(auth.valid_before),
            nonce=to_hex(auth.nonce),
        ),
    )


def encode_payment(
    auth: Authorization,
    signature: bytes,
    accepted: AnyRequirements,
    resource: Resource | None = None,
    extensions: dict[str, Any] | None = None,
) -> str:
    """Return the payment header for a signed authorization, in the version of `accepted`."""
    payload = exact_payload(auth, signature)
    match accepted:
        case RequirementsV1(scheme=scheme, network=network):
            return to_base64(
                PaymentV1(x402_version=1, scheme=scheme, network=network, payload=payload)
            )
        case RequirementsV2():
            return to_base64(
                PaymentV2(
                    x402_version=2,
                    accepted=accepted,
                    payload=payload,
                    resource=resource,
                    extensions=extensions,
                )
            )


def _signed(scheme: str, network: str, asset: str, payload: ExactPayload) -> SignedPayment:
    auth, signature = read_signed(payload.authorization, payload.signature)
    return SignedPayment(
        scheme=scheme, network=network, asset=asset, authorization=auth, signature=signature
    )


# --- the outcome ---------------------------------------------------------------------


class Settlement(Wire, frozen=True, omit_defaults=True):
    """The outcome of a payment: the header of a response, and a facilitator's answer to settle.

    `transaction` is empty without a sending; with `error_reason` "settlement_pending" the
    transaction may still succeed. `amount` is the settled amount of the scheme `upto`.
    """

    success: bool
    # a factory, since `omit_defaults` would leave out an empty text
    transaction: str = msgspec.field(default_factory=str)
    network: str = msgspec.field(default_factory=str)
    payer: str | None = None
    amount: str | None = None
    error_reason: str | None = None
    error_message: str | None = None


class ForeignSettlement(Wire, frozen=True):
    """A settlement as others write it: null, too, where a field is empty."""

    success: bool
    transaction: str | None = None
    network: str | None = None
    payer: str | None = None
    amount: str | None = None
    error_reason: str | None = None
    error_message: str | None = None

    @property
    def plain(self) -> Settlement:
        """The same settlement without null."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return Settlement(**{name: each for name, each in fields.items() if each is not None})


# --- the facilitator -----------------------------------------------------------------


class Versioned(Wire, frozen=True):
    """Any message with a version of any JSON type; None without a version."""

    x402_version: Any = None


class FacilitatorRequest(Versioned, frozen=True, kw_only=True):
    """The body of verify and settle, with unread parts; the payment has a version, too."""

    payment_payload: msgspec.Raw
    payment_requirements: msgspec.Raw


class Verified(Wire, frozen=True, omit_defaults=True):
    """The answer of verify."""

    is_valid: bool
    invalid_reason: str | None = None
    invalid_message: str | None = None
    payer: str | None = None


class SupportedKind(Wire, frozen=True, omit_defaults=True):
    """One kind of payment settled by a facilitator."""

    x402_version: Version
    scheme: str
    network: str
    extra: dict[str, Any] | None = None


class Supported(Wire, frozen=True):
    """The answer of supported; `signers` are its accounts by family of chains."""

    kinds: list[SupportedKind]
    extensions: list[str]
    signers: dict[str, list[str]]


# --- headers -------------------------------------------------------------------------

_URL_SAFE = str.maketrans("-_", "+/")


def to_base64(message: Any) -> str:
    """Return a message as the text of a header."""
    return base64.b64encode(encode(message)).decode()


def from_base64(text: str) -> bytes:
    """Return the JSON in the text of a header; raises `BadMessage`."""
    try:
        return base64.b64decode(text.strip().translate(_URL_SAFE), validate=True)
    except ValueError as error:  # binascii.Error, or a character that is not ASCII
        raise BadMessage(f"the header is no base64: {error}") from error


def json_in(text: str | None, kind: Any = Any) -> Any:
    """Return the message in the text of a header, by default any JSON; None if there is none."""
    try:
        return None if text is None else decoded(from_base64(text), kind)
    except BadMessage:
        return None


def read_required(text: str) -> RequiredV2:
    """Read the header of a 402 of version 2; raises `BadMessage`."""
    required: RequiredV2 = decode(from_base64(text), RequiredV2)
    return required
