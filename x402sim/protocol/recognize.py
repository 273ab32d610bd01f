"""Tells which message of a payment a text is: a header, a body or a receipt, of any dialect.

The text may be JSON, base64 of it or 0x-hex of it, with the name of its header before it.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from x402sim.protocol import header, x402
from x402sim.protocol.header import SignedPayment, json_of_header
from x402sim.protocol.messages import BadMessage, PaymentHeader, Receipt, SettlementRequest, decode
from x402sim.protocol.ways import Dialect, ways_of

_NAMED = re.compile(r"[<>]?\s*([A-Za-z][A-Za-z0-9-]{2,40}):\s+")
"""The name of a header before its value, as `curl -v` prints it."""
_ANSWER = re.compile(r"HTTP/[0-9.]+ [0-9]{3}.*?\r?\n\r?\n", re.S)
"""The head of an HTTP answer, as `curl -i` prints it."""
_IN_HEAD = re.compile(r"^((?:x-)?payment-(?:required|response)):[ \t]*(.*?)\s*$", re.I | re.M)
_WHOLE = "copy the value of the header, or the body, from its first character to its last"
_OFFERS = re.compile(r'"(?:accepts|paymentRequirements)"\s*:')


class MessageKind(Enum):
    """What a message is; the value says it to people."""

    PAYMENT = "payment"
    SETTLEMENT = "body of POST /api/pay"
    REQUIRED = "payment required (402)"
    REQUIREMENTS = "payment requirements"
    RECEIPT = "receipt"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Recognized:
    """A message: what it is, whose, how it was written, and its JSON."""

    kind: MessageKind
    dialect: Dialect
    encoding: str
    said: dict[str, Any]
    name: str
    """The name that stood before it, if one did."""
    shape: str
    """What a program would say that reads the message strictly; "" if it reads it."""
    signed: SignedPayment | None
    """What a payment has signed, if it can be read."""

    @property
    def header(self) -> str:
        """The header that such a message is sent in; "" if it is a body."""
        version = self.dialect.version
        if self.kind is MessageKind.PAYMENT:
            return x402.PAYMENT_HEADERS[version] if version else "paymentHeader of POST /api/pay"
        return (
            x402.RESPONSE_HEADERS[version] if version and self.kind is MessageKind.RECEIPT else ""
        )


def messages_in(text: str) -> list[str]:
    """Return the messages in a text, which is one, or a whole HTTP answer.

    Those of an answer are its body, if it offers payments, and its headers of payments; of one
    without either, its body.
    """
    head = _ANSWER.match(text.lstrip())
    if head is None:
        return [text]
    headers = [": ".join(each) for each in _IN_HEAD.findall(head[0])]
    body = text.lstrip()[head.end() :]
    return [body, *headers] if _OFFERS.search(body) or not headers else headers


def recognize(text: str) -> Recognized:
    """Return which message a text is; raises `BadMessage` that says how far it could be read."""
    value = text.strip().strip("'\"") if not text.lstrip().startswith("{") else text.strip()
    if named := _NAMED.match(value):
        value = value[named.end() :].strip()
    if not value:
        raise BadMessage("the text is empty; wanted a header's value, a body or a receipt")
    body, encoding = _bytes_of(value)
    try:
        said = decode(body, Any)
    except BadMessage as wrong:
        shown = body[:40].decode("utf-8", "replace")
        raise BadMessage(f"{encoding} of {shown!r}, which is no JSON: {wrong}; {_WHOLE}") from wrong
    if not isinstance(said, dict):
        raise BadMessage(f"JSON, but {_json_type(said)}; every message of a payment is an object")
    kind, dialect = _kind_of(said)
    shape, signed = "", None
    try:
        if (message := _MESSAGES.get((kind, dialect))) is not None:
            msgspec.convert(said, message)
        signed = _signed_in(said, dialect) if kind is MessageKind.PAYMENT else None
    except (msgspec.ValidationError, BadMessage) as wrong:
        shape = str(wrong)
    return Recognized(kind, dialect, encoding, said, named[1] if named else "", shape, signed)


def _bytes_of(value: str) -> tuple[bytes, str]:
    if value[:1] in "{[":
        return value.encode(), "JSON"
    joined = "".join(value.split())
    encoding = "hex" if joined[:2] in ("0x", "0X") else "base64"
    padding = "=" * (-len(joined) % 4) if encoding == "base64" and "=" not in joined else ""
    try:
        return json_of_header(joined + padding), f"{encoding}{' without padding' * bool(padding)}"
    except BadMessage as wrong:
        raise BadMessage(
            f"neither JSON, base64 nor 0x-hex: {value[:30]!r}{'…' * (len(value) > 30)} "
            f"({len(value)} characters); {_WHOLE}"
        ) from wrong


def _json_type(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "true or false"}.get(type(value), "a number")


def _kind_of(said: dict[str, Any]) -> tuple[MessageKind, Dialect]:
    """Return what an object is, by the fields that only that message has."""
    version = Dialect.V2 if said.get("x402Version") == 2 else Dialect.V1
    match said:
        case {"paymentHeader": _, "paymentRequirements": _}:
            return MessageKind.SETTLEMENT, Dialect.TWO_STEPS
        case {"payload": {"authorization": _}} | {"accepted": _}:
            return MessageKind.PAYMENT, version
        case {"payload": dict()}:
            return MessageKind.PAYMENT, Dialect.TWO_STEPS
        case {"paymentRequirements": dict()}:
            return MessageKind.REQUIRED, Dialect.TWO_STEPS
        case {"accepts": list()}:
            return MessageKind.REQUIRED, version
        case {"success": _, "txHash": _}:
            return MessageKind.RECEIPT, Dialect.TWO_STEPS
        case {"success": _}:
            is_v2 = ":" in str(said.get("network"))
            return MessageKind.RECEIPT, Dialect.V2 if is_v2 else Dialect.V1
        case {"payTo": _}:
            return MessageKind.REQUIREMENTS, next(ways_of(said)).dialect
        case {"error": str()}:
            return MessageKind.ERROR, Dialect.TWO_STEPS
        case _:
            names = ", ".join(map(repr, list(said)[:8])) or "no fields"
            raise BadMessage(
                f"an object of JSON that is no message of a payment: it has {names}; wanted "
                "payload, accepts, paymentRequirements, payTo or success"
            )


_MESSAGES: dict[tuple[MessageKind, Dialect], type[Any]] = {
    (MessageKind.PAYMENT, Dialect.TWO_STEPS): PaymentHeader,
    (MessageKind.PAYMENT, Dialect.V1): x402.PaymentV1,
    (MessageKind.PAYMENT, Dialect.V2): x402.PaymentV2,
    (MessageKind.SETTLEMENT, Dialect.TWO_STEPS): SettlementRequest,
    (MessageKind.REQUIRED, Dialect.V1): x402.RequiredV1,
    (MessageKind.REQUIRED, Dialect.V2): x402.RequiredV2,
    (MessageKind.RECEIPT, Dialect.TWO_STEPS): Receipt,
    (MessageKind.RECEIPT, Dialect.V1): x402.Settlement,
    (MessageKind.RECEIPT, Dialect.V2): x402.Settlement,
}


def _signed_in(said: dict[str, Any], dialect: Dialect) -> SignedPayment:
    """Return what a payment has signed, of any dialect; raises `BadMessage`."""
    body = msgspec.json.encode(said)
    if dialect.version is None:
        return header.signed_in(decode(body, PaymentHeader))
    return x402.payment_of(dialect.version, body).signed
