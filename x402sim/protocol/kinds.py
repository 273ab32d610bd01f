"""The table of all messages of a payment: by what each is known, who reads it, what is checked.

`recognize` reads a text by it, and `explain` says what is in it and what is wrong. Ways to pay and
signatures, which several kinds hold, are checked in `findings`. Messages of MCP, A2A and JSON-RPC
hold some of these: `envelopes`. Other 402s are in `foreign`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from x402sim.protocol import answers, cronos, x402
from x402sim.protocol.findings import Finding
from x402sim.protocol.messages import (
    AgentList,
    PaymentHeader,
    PaymentRecord,
    Receipt,
    SessionView,
    SettlementRequest,
    Wire,
)
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import Dialect, dialect_of


class MessageKind(Enum):
    """What a message is; the value says it to people."""

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
Said = dict[str, Any]
Check = Callable[[Said, Mapping[str, Network]], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of message: by which fields it is known, who reads it strictly, what is checked."""

    kind: MessageKind
    dialect: Dialect | None
    marks: Callable[[Said], bool]
    shape: Any = None
    """The type that reads it."""
    check: Check | None = None
    """Yields what is wrong beyond the shape; ways to pay and signatures are checked besides."""
    of: str = ""
    """Whose it is, if it is of no dialect, or of both versions."""


def _has(*names: str) -> Callable[[Said], bool]:
    return lambda said: all(name in said for name in names)


def _version(number: int, marks: Callable[[Said], bool]) -> Callable[[Said], bool]:
    """Return marks of version 2, or of version 1, which is what names no version, too."""
    return lambda said: marks(said) and (said.get("x402Version") == 2) == (number == 2)


def _is_payment(said: Said) -> bool:
    return "accepted" in said or isinstance(said.get("payload"), dict)


def _is_flat(said: Said) -> bool:
    """Tell whether a payload holds the authorization itself, as Cronos' does."""
    payload = said.get("payload")
    flat = {"from", "to", "value", "validAfter", "validBefore", "nonce"}
    return (
        isinstance(payload, dict)
        and "authorization" not in payload
        and (not payload or not flat.isdisjoint(payload))
        and "accepted" not in said
    )


def _is_v2_receipt(said: Said) -> bool:
    return ":" in str(said.get("network"))


def _is_way(dialect: Dialect, said: Said) -> bool:
    return "payTo" in said and dialect_of(said) is dialect


class _RequestBody(Wire, frozen=True):
    payment_payload: dict[str, Any]
    payment_requirements: dict[str, Any]
    x402_version: int | None = None


TABLE: tuple[Row, ...] = (
    Row(
        MessageKind.REQUEST,
        Dialect.TWO_STEPS,
        lambda said: (
            _has("paymentHeader", "paymentRequirements", "x402Version")(said)
            and "paymentId" not in said
        ),
        cronos.FacilitatorRequest,
        of=CRONOS,
    ),
    Row(
        MessageKind.SETTLEMENT,
        Dialect.TWO_STEPS,
        _has("paymentHeader", "paymentRequirements"),
        SettlementRequest,
    ),
    Row(
        MessageKind.REQUEST,
        None,
        _has("paymentPayload"),
        _RequestBody,
        of=STANDARD,
    ),
    Row(MessageKind.PAYMENT, Dialect.TWO_STEPS, _is_flat, PaymentHeader),
    Row(
        MessageKind.PAYMENT,
        Dialect.V2,
        lambda said: "accepted" in said or _version(2, _is_payment)(said),
        x402.PaymentV2,
    ),
    Row(MessageKind.PAYMENT, Dialect.V1, _is_payment, x402.PaymentV1),
    Row(
        MessageKind.REQUIRED,
        Dialect.TWO_STEPS,
        lambda said: isinstance(said.get("paymentRequirements"), dict),
    ),
    Row(
        MessageKind.LISTING,
        None,
        lambda said: (
            answers.listed_in(said) is not None
            and not {"x402Version", "pagination"}.isdisjoint(said)
        ),
        check=answers.of_listing,
        of=STANDARD,
    ),
    Row(
        MessageKind.WELL_KNOWN,
        None,
        lambda said: (
            isinstance(said.get("resources"), list) and isinstance(said.get("accepts"), list)
        ),
        of="HTTP",
    ),
    Row(
        MessageKind.SUPPORTED,
        None,
        lambda said: isinstance(said.get("kinds"), list),
        cronos.Supported,
        answers.of_supported,
        of=STANDARD,
    ),
    Row(
        MessageKind.REQUIRED,
        Dialect.V2,
        _version(2, lambda said: isinstance(said.get("accepts"), list)),
        x402.RequiredV2,
    ),
    Row(
        MessageKind.REQUIRED,
        Dialect.V1,
        lambda said: isinstance(said.get("accepts"), list),
        x402.RequiredV1,
    ),
    Row(
        MessageKind.VERIFIED,
        None,
        _has("isValid"),
        x402.Verified,
        answers.of_verified,
        of=STANDARD,
    ),
    Row(
        MessageKind.SETTLED,
        None,
        lambda said: str(said.get("event")).startswith("payment."),
        cronos.SettleAnswer,
        answers.of_cronos_settled,
        of=CRONOS,
    ),
    Row(
        MessageKind.RECEIPT,
        Dialect.TWO_STEPS,
        _has("success", "txHash"),
        Receipt,
        answers.of_receipt,
    ),
    Row(
        MessageKind.RECEIPT,
        Dialect.V2,
        lambda said: "success" in said and _is_v2_receipt(said),
        x402.Settlement,
        answers.of_settlement,
    ),
    Row(
        MessageKind.RECEIPT,
        Dialect.V1,
        _has("success"),
        x402.Settlement,
        answers.of_settlement,
    ),
    Row(MessageKind.SESSION, Dialect.TWO_STEPS, _has("sessionId", "remaining"), SessionView),
    Row(MessageKind.RECORD, Dialect.TWO_STEPS, _has("payment_id", "tx_hash"), PaymentRecord),
    Row(
        MessageKind.AGENTS,
        Dialect.TWO_STEPS,
        lambda said: isinstance(said.get("agents"), list),
        AgentList,
    ),
    *(
        Row(
            MessageKind.REQUIREMENTS,
            dialect,
            partial(_is_way, dialect),
        )
        for dialect in Dialect
    ),
    Row(MessageKind.ERROR, Dialect.TWO_STEPS, lambda said: isinstance(said.get("error"), str)),
)
"""Every kind of message that is read by itself, in the order in which they are told apart."""
