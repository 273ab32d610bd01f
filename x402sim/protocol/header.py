"""The payment header (2.3): one object, two spellings.

`hex` is the specification's: 0x and the hex of the UTF-8 JSON. `base64`, of the same JSON, is the
public Cronos client libraries' spelling. A service decodes a header with `present`, to pass on even
an unreadable text.
Clauses: 2.3/hex-header, 2.3/contents.
"""

import base64
import binascii
from functools import lru_cache
from typing import Any, Literal, assert_never

import msgspec

from x402sim.protocol.crypto import checksum, from_hex, parse_address, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import BadMessage, HeaderPayload, PaymentHeader, decode, encode
from x402sim.protocol.money import parse_base
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import Permit2Authorization

Spelling = Literal["hex", "base64"]


class SignedPayment(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded content of a payment header: a signed authorization, scheme and token.

    A payment by Permit2 has the terms of the message as the authorization.
    """

    scheme: str
    network: str
    asset: str
    authorization: Authorization
    signature: bytes
    permit2: Permit2Authorization | None = None


class PresentedPayment(msgspec.Struct, frozen=True):
    """A payment header's text, and the content of a readable header.

    `valid_before` is the end of the window, in Unix seconds. The text goes to the facilitator
    unchanged in either case, for the facilitator to judge.
    """

    text: str
    signed: SignedPayment | None = None
    authorization: Authorization | None = None
    valid_before: int = 0


def encode_header(
    auth: Authorization, signature: bytes, network: Network, spelling: Spelling = "hex"
) -> str:
    """Return the payment header for a signed authorization (2.3/hex-header)."""
    payload = HeaderPayload(
        from_=checksum(auth.from_),
        to=checksum(auth.to),
        value=str(auth.value),
        valid_after=auth.valid_after,
        valid_before=auth.valid_before,
        nonce=to_hex(auth.nonce),
        signature=to_hex(signature),
        asset=checksum(network.asset),
    )
    header = PaymentHeader(x402_version=1, scheme="exact", network=network.name, payload=payload)
    return spelled(header, spelling)


def spelled(header: PaymentHeader, spelling: Spelling) -> str:
    """Return a payment header as text."""
    text = encode(header)
    match spelling:
        case "hex":
            return to_hex(text)
        case "base64":
            return base64.b64encode(text).decode()
        case _ as unknown:
            assert_never(unknown)


def spelling_of(text: str) -> Spelling:
    """Return the spelling of a text as a payment header."""
    return "hex" if text[:2] in ("0x", "0X") else "base64"


def decode_header(text: str) -> PaymentHeader:
    """Read a payment header in either spelling; raises `BadMessage`."""
    header: PaymentHeader = decode(json_of_header(text), PaymentHeader)
    return header


def json_of_header(text: str) -> bytes:
    """Return the JSON in a payment header, in either spelling; raises `BadMessage`."""
    if text.lstrip()[:1] == "{":
        raise BadMessage("the payment header is JSON; wanted base64 or 0x-hex of it")
    try:
        match spelling_of(text):
            case "hex":
                return binascii.unhexlify(text[2:])
            case "base64":
                return base64.b64decode(text.translate(_URL_SAFE), validate=True)
            case _ as unknown:
                assert_never(unknown)
    except ValueError as error:  # binascii.Error, or a character that is not ASCII
        raise BadMessage(f"the payment header is neither 0x-hex nor base64: {error}") from error


def authorization_of(header: str) -> tuple[Authorization, bytes]:
    """Return the authorization in a header's text and its signature; raises `BadMessage`.

    Clause 2.3/contents: the TransferWithAuthorization parameters, the signature, the
    nonce and the validity window.
    """
    signed = signed_in(decode_header(header))
    return signed.authorization, signed.signature


def signed_in(header: PaymentHeader) -> SignedPayment:
    """Return what a header has signed; raises `BadMessage`."""
    payload = header.payload
    auth, signature = read_signed(payload, payload.signature)
    try:
        parse_address(payload.asset)
    except ValueError as error:
        raise BadMessage(f"bad payload: {error}") from error
    return SignedPayment(
        scheme=header.scheme,
        network=header.network,
        asset=payload.asset,
        authorization=auth,
        signature=signature,
    )


def _signature(text: str) -> bytes:
    """Return a signature of any size, as from contract wallets; raises `ValueError` naming the size
    of an account's signature.
    """
    try:
        return from_hex(text, max(0, len(text) - 2) // 2)
    except ValueError:
        return from_hex(text, 65)


def read_signed(fields: Any, signature: str) -> tuple[Authorization, bytes]:
    """Return the authorization in the fields of a payload (with numbers or decimal strings), and
    the signature; raises `BadMessage`.
    """
    try:
        auth = Authorization(
            from_=parse_address(fields.from_),
            to=parse_address(fields.to),
            value=parse_base(fields.value),
            valid_after=parse_base(str(fields.valid_after)),
            valid_before=parse_base(str(fields.valid_before)),
            nonce=from_hex(fields.nonce, 32),
        )
        return auth, _signature(signature)
    except ValueError as error:
        raise BadMessage(f"bad payload: {error}") from error


@lru_cache(maxsize=64)
def read_versioned(text: str) -> tuple[int, SignedPayment]:
    """Return the version of a header, of any value, and the content; raises `BadMessage`.

    Cached: in one process a header is read by the service, by the facilitator, and on each link.
    """
    header = decode_header(text)
    return header.x402_version, signed_in(header)


def read_header(text: str) -> SignedPayment:
    """Decode a payment header in either spelling; raises `BadMessage`."""
    version, signed = read_versioned(text)
    if version != 1:
        raise BadMessage(f"x402Version: expected 1, got {version}")
    return signed


def present(text: str) -> PresentedPayment:
    """Decode a payment header if possible, and keep its text unchanged."""
    try:
        signed = read_header(text)
    except BadMessage:
        return PresentedPayment(text)
    return PresentedPayment(text, signed, signed.authorization, signed.authorization.valid_before)


_URL_SAFE = str.maketrans("-_", "+/")
