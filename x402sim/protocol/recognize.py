"""Tells the kind of a payment's message: a header, a body or a receipt, of any dialect.

The text may be JSON, base64 or 0x-hex of JSON, with the header's name in front, or a whole HTTP
answer. `TABLE` lists all messages: the marks, the reader and the check; `explain` tells content and
faults. Ways to pay and signatures are checked in `findings`, messages inside MCP, A2A and JSON-RPC
in `envelopes`, other 402s in `ways`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from x402sim.protocol import cronos, findings, header, messages, ways, x402
from x402sim.protocol.envelopes import Envelope, envelope_of
from x402sim.protocol.findings import Finding
from x402sim.protocol.header import SignedPayment, json_of_header
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2_payments import Permit2Payment, is_permit2, signed_in
from x402sim.protocol.ways import Dialect, Foreign, dialect_of
from x402sim.text.keys import secret_in
from x402sim.text.words import as_given


class MessageType(Enum):
    """The kind of a message; the value is for people."""

    PAYMENT = "payment"
    SETTLEMENT = "body of POST /api/pay"
    REQUEST = "body of verify and settle"
    REQUIRED = "payment required (402)"
    REQUIREMENTS = "payment requirements"
    VERIFIED = "answer of verify"
    RECEIPT = "receipt"
    SETTLED = "answer of settle"
    SUPPORTED = "answer of supported"
    LISTING = "list of discovery"
    WELL_KNOWN = "list of /.well-known/x402"
    SESSION = "session"
    RECORD = "payment record"
    AGENTS = "list of agents"
    ENVELOPE = "message"
    FOREIGN = "402 of another protocol"
    ERROR = "error"


STANDARD = "the x402 standard"
CRONOS = "Cronos' facilitator"
Fields = dict[str, Any]
Check = Callable[[Fields, Mapping[str, Network]], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of message: the marks, the strict reader, and the check."""

    kind: MessageType
    dialect: Dialect | None
    marks: Callable[[Fields], bool]
    shape: Any = None
    """The type of the message."""
    check: Check | None = None
    """Yields faults beyond the shape; ways to pay and signatures are checked besides."""
    of: str = ""
    """The owner, for a message without a dialect, or of both versions."""


def _has(*names: str) -> Callable[[Fields], bool]:
    return lambda fields: all(name in fields for name in names)


def _lists(*names: str) -> Callable[[Fields], bool]:
    return lambda fields: all(isinstance(fields.get(name), list) for name in names)


def _is_payment(fields: Fields) -> bool:
    return "accepted" in fields or isinstance(fields.get("payload"), dict)


def _is_flat(fields: Fields) -> bool:
    """Tell whether a payload holds the authorization itself, as Cronos' payload does."""
    payload = fields.get("payload")
    flat = {"from", "to", "value", "validAfter", "validBefore", "nonce"}
    return (
        isinstance(payload, dict)
        and "authorization" not in payload
        and (not payload or not flat.isdisjoint(payload))
        and "accepted" not in fields
    )


def _is_way(dialect: Dialect, fields: Fields) -> bool:
    return "payTo" in fields and dialect_of(fields) is dialect


class _RequestBody(messages.Wire, frozen=True):
    payment_payload: dict[str, Any]
    payment_requirements: dict[str, Any]
    x402_version: int | None = None


def _is_cronos_request(fields: Fields) -> bool:
    names = "paymentHeader", "paymentRequirements", "x402Version"
    return _has(*names)(fields) and "paymentId" not in fields


def _is_payment_v2(fields: Fields) -> bool:
    return "accepted" in fields or (_is_payment(fields) and fields.get("x402Version") == 2)


def _is_settled(fields: Fields) -> bool:
    return str(fields.get("event")).startswith("payment.")


def _is_receipt_v2(fields: Fields) -> bool:
    return "success" in fields and ":" in str(fields.get("network"))


def _is_listing(fields: Fields) -> bool:
    is_marked = not {"x402Version", "pagination"}.isdisjoint(fields)
    return is_marked and findings.listed_in(fields) is not None


def _is_error(fields: Fields) -> bool:
    if isinstance(fields.get("message"), str) and not _CODES.isdisjoint(fields):
        return True
    return not findings.ERROR_FIELDS.isdisjoint(fields)


_CODES = {"code", "status", "statusCode", "status_code", "reason"}


_is_402 = _lists("accepts")
T, (TWO, V1, V2) = MessageType, Dialect
TABLE: tuple[Row, ...] = (
    Row(T.REQUEST, TWO, _is_cronos_request, cronos.FacilitatorRequest, of=CRONOS),
    Row(
        T.SETTLEMENT, TWO, _has("paymentHeader", "paymentRequirements"), messages.SettlementRequest
    ),
    Row(T.REQUEST, None, _has("paymentPayload"), _RequestBody, of=STANDARD),
    Row(T.PAYMENT, TWO, _is_flat, messages.PaymentHeader),
    Row(T.PAYMENT, V2, _is_payment_v2, x402.PaymentV2),
    Row(T.PAYMENT, V1, _is_payment, x402.PaymentV1),
    Row(T.REQUIRED, TWO, lambda it: isinstance(it.get("paymentRequirements"), dict)),
    Row(T.LISTING, None, _is_listing, check=findings.of_listing, of=STANDARD),
    Row(T.WELL_KNOWN, None, _lists("resources", "accepts"), of="HTTP"),
    Row(T.SUPPORTED, None, _lists("kinds"), cronos.Supported, findings.of_supported, STANDARD),
    Row(T.REQUIRED, V2, lambda it: _is_402(it) and it.get("x402Version") == 2, x402.RequiredV2),
    Row(T.REQUIRED, V1, _is_402, x402.RequiredV1),
    Row(T.VERIFIED, None, _has("isValid"), x402.Verified, findings.of_verified, STANDARD),
    Row(T.SETTLED, None, _is_settled, cronos.SettleAnswer, findings.of_cronos_settled, CRONOS),
    Row(T.RECEIPT, TWO, _has("success", "txHash"), messages.Receipt, findings.of_receipt),
    Row(T.RECEIPT, V2, _is_receipt_v2, x402.Settlement, findings.of_settlement),
    Row(T.RECEIPT, V1, _has("success"), x402.Settlement, findings.of_settlement),
    Row(T.SESSION, TWO, _has("sessionId", "remaining"), messages.SessionView),
    Row(T.RECORD, TWO, _has("payment_id", "tx_hash"), messages.PaymentRecord),
    Row(T.AGENTS, TWO, _lists("agents"), messages.AgentList),
    *(Row(T.REQUIREMENTS, dialect, partial(_is_way, dialect)) for dialect in Dialect),
    Row(T.ERROR, None, _is_error, check=findings.of_error, of="HTTP"),
)
"""Every kind of message read by itself, in the order of the tests."""


_NAMED = re.compile(r"[<>]?\s*([A-Za-z][A-Za-z0-9-]{2,40}):\s+")
"""The name of a header before the value, as in `curl -v`."""
_HEAD = re.compile(
    r"(?:HTTP/[0-9.]+ (?P<status>[0-9]{3})|[A-Z]{3,7} \S+ HTTP/[0-9.]+).*?\r?\n\r?\n", re.S
)
"""The head of an HTTP answer, as in `curl -i`, or of a request."""
_IN_HEAD = re.compile(
    r"^((?:x-)?payment(?:-required|-response|-signature|-receipt)?"
    r"|authorization(?=:\s*payment\s)):([^\r\n]*)",
    re.I | re.M,
)
_CHALLENGE = re.compile(r"^www-authenticate:([^\r\n]*)", re.I | re.M)
_STREAM = re.compile(r"(?:event|data|id|retry):")
_EVENT = re.compile(r"^data:[ \t]*(\{.*\})\s*$", re.M)
"""The data of a server-sent event, an answer of MCP over HTTP."""
_WHOLE = "copy the value of the header, or the body, from its first character to its last"
_OFFERS = re.compile(r'"(?:accepts|paymentRequirements)"\s*:')


_ENVELOPE = Row(MessageType.ENVELOPE, None, lambda _: True)
_FOREIGN = Row(MessageType.FOREIGN, None, lambda _: True, of="HTTP")


@dataclass(frozen=True, slots=True)
class Recognized:
    """A message: the row of the table, the encoding, and the JSON."""

    row: Row
    encoding: str
    fields: dict[str, Any]
    name: str = ""
    """The name in front of the message, if any."""
    shape: str = ""
    """The error of a strict reader; "" without an error."""
    signed: SignedPayment | None = None
    """The signed content of a readable payment."""
    envelope: Envelope | None = None
    foreign: Foreign | None = None
    odd: tuple[Finding, ...] = ()
    """Faults of writing: the encoding, and the spelling of names."""

    @property
    def kind(self) -> MessageType:
        """The kind."""
        return self.row.kind

    @property
    def dialect(self) -> Dialect | None:
        """The dialect; None for a message shared by versions, or without a dialect."""
        return self.row.dialect

    @property
    def of(self) -> str:
        """The owner, for people."""
        if self.envelope is not None:
            return self.envelope.protocol
        return self.row.of or (self.row.dialect.value if self.row.dialect else "")

    @property
    def header(self) -> str:
        """The header for the message; "" for a body."""
        version = self.dialect.version if self.dialect else None
        if self.kind is MessageType.PAYMENT:
            return x402.PAYMENT_HEADERS[version] if version else "paymentHeader of POST /api/pay"
        if self.kind is MessageType.REQUIRED:
            return x402.REQUIRED_HEADER if version == 2 else ""
        has_header = version is not None and self.kind is MessageType.RECEIPT
        return x402.RESPONSE_HEADERS[version] if version and has_header else ""


def messages_in(text: str) -> list[str]:
    """Return the messages in a text: a message, or a whole HTTP answer or request.

    An answer gives the body, if the body offers payments, and the headers of payments; without
    either, the body. A stream of events gives the last event's data. A 402 of another protocol is a
    message as a whole.
    """
    text = _unmarked(text)
    head = _HEAD.match(text.lstrip())
    if head is None:
        return [_last_event(text)]
    if _foreign_answer(text) is not None:
        return [text.lstrip()]
    headers = [f"{name}: {value.strip()}" for name, value in _IN_HEAD.findall(head[0])]
    body = _last_event(text.lstrip()[head.end() :])
    is_offer = body.lstrip()[:1] in ("{", "[") and _OFFERS.search(body)
    return [body, *headers] if is_offer or not headers else headers


def _unmarked(text: str) -> str:
    """Return the output of `curl -v` without marks: the answer, or else the request."""
    for mark, start in (("<", r"^< HTTP/"), (">", r"^> [A-Z]{3,7} \S+ HTTP/")):
        if re.search(start, text, re.M):
            lines = (line for line in text.split("\n") if not line.startswith(_OTHERS[mark]))
            return "\n".join(re.sub(rf"^{mark} ?", "", line) for line in lines)
    return text


_OTHERS = {"<": ("> ", ">\r", "* ", "{ [", "} ["), ">": ("< ", "<\r", "* ", "{ [", "} [")}
"""The beginnings of lines outside head and body."""


def _last_event(body: str) -> str:
    """Return the data of the last event of a stream; any other body unchanged."""
    events = _EVENT.findall(body) if _STREAM.match(body.lstrip()) else []
    return events[-1] if events else body


def _foreign_answer(text: str) -> Foreign | None:
    """Return the protocol of a whole 402 without a known payment, else None."""
    head = _HEAD.match(text.lstrip())
    if head is None or head["status"] != "402" or _IN_HEAD.search(head[0]):
        return None
    challenge, body = _CHALLENGE.search(head[0]), text.lstrip()[head.end() :].strip()
    if challenge is None and not body:
        return None
    headers = {ways.CHALLENGE: challenge[1].strip()} if challenge else {}
    return ways.foreign_in(headers, body.encode("utf-8", "replace"))


def recognize(text: str) -> Recognized:
    """Return the message in a text; raises `BadMessage` with the readable part."""
    if (other := _foreign_answer(text)) is not None:
        return Recognized(_FOREIGN, "text", {}, foreign=other)
    value, odd = text.strip(), list[Finding]()
    quoted = messages.decoded(value.encode("utf-8", "replace"), str)
    if quoted is not None and quoted.lstrip()[:1] == "{":
        value = quoted.strip()
        odd.append(Finding("encoding", "JSON in a text of JSON", "the object", _ONCE))
    whole = value
    if not value.startswith("{"):
        value = value.strip("'\"")
    if named := _NAMED.match(value):
        value = value[named.end() :].strip()
    header_name = named[1] if named else ""
    sent = whole.partition(":")[2].strip() if named else value  # with inner quotes
    if (other := ways.foreign_header(header_name, sent)) is not None:
        return Recognized(_FOREIGN, "text", {}, header_name, foreign=other)
    if not value:
        raise messages.BadMessage("the text is empty; wanted a header's value, a body or a receipt")
    if value[:1] == "<":
        raise messages.BadMessage(f"{ways.page_of(value)}; {ways.ASK_FOR_JSON}")
    body, encoding = _bytes_of(value)
    try:
        fields = messages.decode(body, Any)
    except messages.BadMessage as wrong:
        fields = _decoded_again(body)
        if fields is None:
            shown = secret_in(body) or repr(body[:40].decode("utf-8", "replace"))
            how = f"it decodes as {encoding} to {shown}, but that"
            reads = shown if encoding == "JSON" else how
            raise messages.BadMessage(f"{reads} is not JSON: {wrong}; {_WHOLE}") from wrong
        odd.append(Finding("encoding", f"{encoding}, twice", f"{encoding}, once", _ONCE))
    if isinstance(fields, list) and fields and isinstance(fields[0], dict) and "payTo" in fields[0]:
        fields = {"accepts": fields, "x402Version": 1 if "maxAmountRequired" in fields[0] else 2}
        encoding += ", the list of a 402"
    if not isinstance(fields, dict):
        words = {list: "an array", str: "a string", bool: "true or false"}
        type_name = words.get(type(fields), "a number")
        raise messages.BadMessage(f"JSON, but {type_name}; every message of a payment is an object")
    found = recognized(fields, encoding, header_name)
    return replace(found, odd=(*odd, *found.odd))


_ONCE = "Encode it once: programs read it once."


def _decoded_again(body: bytes) -> Fields | None:
    """Return the object in a text encoded twice; None for any other text."""
    try:
        inner = json_of_header(body.decode("ascii").strip())
    except (messages.BadMessage, UnicodeDecodeError):
        return None
    fields: Fields | None = messages.decoded(inner, dict[str, Any])
    return fields


def recognized(fields: Fields, encoding: str = "JSON", name: str = "") -> Recognized:
    """Return the message in an object; raises `BadMessage` for an unknown object.

    Names spelled in another case are read as if spelled right.
    """
    spelled = dict[str, str]()
    fields = _in_camel_case(fields, spelled)
    odd: tuple[Finding, ...] = ()
    if spelled:
        got, wanted = ", ".join(spelled)[:200], ", ".join(spelled.values())[:200]
        do = "Spell the names as the standard does: programs read no other spelling."
        odd = (Finding("spelling", got, wanted, do),)
    if (envelope := envelope_of(fields)) is not None:
        return Recognized(_ENVELOPE, encoding, fields, name, envelope=envelope, odd=odd)
    row = next((row for row in TABLE if row.marks(fields)), None)
    if row is None:
        inner = [(at, each) for at, each in fields.items() if isinstance(each, dict)]
        for at, each in inner:
            if any(row.marks(each) for row in TABLE):
                found = recognized(each, f"{encoding}, in {at[:40]!r}", name)
                return replace(found, odd=(*odd, *found.odd))
        names = ", ".join(map(repr, list(fields)[:8])) or "no fields"
        raise messages.BadMessage(
            f"an object of JSON that is no message of a payment: it has {names}; wanted "
            "payload, accepts, paymentRequirements, payTo or success"
        )
    shape, signed = "", None
    try:
        if (
            row.kind is MessageType.PAYMENT
            and row.dialect is V2
            and is_permit2(fields.get("payload"))
        ):
            signed = signed_in(msgspec.convert(fields, Permit2Payment))
        elif row.shape is not None:
            msgspec.convert(fields, row.shape)
        if signed is None and row.kind is MessageType.PAYMENT and row.dialect is not None:
            body, version = msgspec.json.encode(fields), row.dialect.version
            if version is None:
                signed = header.signed_in(messages.decode(body, messages.PaymentHeader))
            else:
                signed = x402.payment_of(version, body).signed
    except (msgspec.ValidationError, messages.BadMessage) as wrong:
        shape = str(wrong)
    return Recognized(row, encoding, fields, name, shape, signed, odd=odd)


_NAMES = {
    each.replace("_", ""): each
    for each in (
        *("x402_version", "pay_to", "max_amount_required", "max_timeout_seconds", "mime_type"),
        *("output_schema", "valid_after", "valid_before", "payment_payload", "payment_header"),
        *("payment_requirements", "is_valid", "invalid_reason", "error_reason", "error_message"),
    )
}
"""The two-word names in messages, by letters; `payment_id` and `tx_hash` are ours."""
_DEEPEST = 8


def _in_camel_case(value: Any, spelled: dict[str, str], depth: int = 0) -> Any:
    """Return JSON with known names in camelCase; `spelled` gets the corrected names."""
    if isinstance(value, list):
        return [_in_camel_case(each, spelled, depth + 1) for each in value]
    if not isinstance(value, dict) or depth > _DEEPEST:
        return value
    found = {}
    for name, each in value.items():
        known = _NAMES.get(name.replace("_", "").replace("-", "").lower())
        if known is not None:
            first, *rest = known.split("_")
            right = first + "".join(map(str.capitalize, rest))
            if right != name and right not in value:
                spelled[name], name = right, right
        found[name] = _in_camel_case(each, spelled, depth + 1)
    return found


def _bytes_of(value: str) -> tuple[bytes, str]:
    if value[:1] in "{[":
        return value.encode(), "JSON"
    joined = "".join(value.split())
    encoding = "hex" if joined[:2] in ("0x", "0X") else "base64"
    padding = "=" * (-len(joined) % 4) if encoding == "base64" and "=" not in joined else ""
    try:
        return json_of_header(joined + padding), f"{encoding}{' without padding' * bool(padding)}"
    except messages.BadMessage as wrong:
        raise messages.BadMessage(
            f"neither JSON, base64 nor 0x-hex: {as_given(value)}{'…' * (len(value) > 30)} "
            f"({len(value)} characters); {_WHOLE}"
        ) from wrong
