"""The messages of sections 2 and 4, and the encoding and decoding of any message.

Names are snake_case here and camelCase on the wire: `Wire` converts them. The messages of
a facilitator are in the file of its dialect (`cronos.py`). Unknown fields are ignored,
known ones are typed strictly.
Clauses: 2.1/*, 2.2/*, 2.4/record, 4.1/receipt, 4.2/quote.
"""

import re
from functools import cache
from itertools import accumulate
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message with camelCase names on the wire."""


class RequiredPayment(Wire, frozen=True):
    """The requirements as a facilitator reads them; it ignores every other field."""

    scheme: str
    network: str
    pay_to: str
    asset: str
    max_amount_required: str
    max_timeout_seconds: int


class PaymentRequirements(RequiredPayment, frozen=True):
    """The payment requirements (2.1); the description is not sent back."""

    resource: str
    description: str | None | UnsetType = UNSET


class PaymentRequired(Wire, frozen=True):
    """The body of a 402 (2.2)."""

    error: str
    payment_id: str
    payment_requirements: PaymentRequirements
    message: str
    network: str


class SettlementRequest(Wire, frozen=True):
    """The body of POST /api/pay (4.1)."""

    payment_id: str
    payment_header: str
    payment_requirements: PaymentRequirements


class Receipt(Wire, frozen=True):
    """The answer to a settlement (4.1): hex transaction hash, epoch milliseconds."""

    success: bool
    payment_id: str
    tx_hash: str
    timestamp: int


class ErrorBody(Wire, frozen=True, omit_defaults=True):
    """Every error other than a 402 (decisions 7/error-body and 7/final)."""

    error: str
    reason: str | None = None
    final: bool | None = None


class QuoteRequest(Wire, frozen=True):
    """The body of POST /api/perp/quote (4.2)."""

    pair: Annotated[str, Meta(pattern=r"^[A-Z0-9]{1,20}-[A-Z0-9]{1,20}\Z")]
    side: str
    leverage: Annotated[float, Meta(ge=1, le=1000)]
    size_usd: Annotated[float, Meta(gt=0, le=1e15)]


class Quote(Wire, frozen=True):
    """The protected content (4.2); prices in US dollars, the funding rate per 8 hours."""

    pair: str
    entry_price: float
    liquidation_price: float
    funding_rate: float
    best_venue: str


class MarketPair(Wire, frozen=True):
    """One pair of the snapshot: the price in US dollars, the funding rate per 8 hours."""

    pair: str
    price: float
    funding_rate: float
    best_venue: str


class Market(Wire, frozen=True):
    """The body of GET /api/perp/market, a priced resource of ours."""

    market: list[MarketPair]


class SessionRequest(Wire, frozen=True):
    """The body of POST /api/sessions/create (4.4)."""

    max_spend: str
    duration: Annotated[int, Meta(ge=1, le=31_536_000)]


class SessionView(Wire, frozen=True, omit_defaults=True):
    """A session as its holder sees it: amounts in base units, epoch milliseconds."""

    session_id: str
    deposited: str
    released: str
    remaining: str
    expires_at: int
    status: Literal["active", "expired", "refunded"]
    refund_tx_hash: str | None = None


class PaymentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored payment (2.4), under the names section 2.4 gives; epoch milliseconds."""

    payment_id: str
    tx_hash: str | None
    from_address: str
    to_address: str
    amount: str
    resource_url: str
    status: str
    block_number: int | None
    timestamp: int


class Agent(Wire, frozen=True):
    """One service for sale (2.7): price in base units, reputation a count of payments."""

    id: str
    name: str
    description: str
    resource: str
    price: str
    pay_to: str
    reputation: int


class AgentList(Wire, frozen=True):
    """The body of GET /api/agents (4.3)."""

    agents: list[Agent]


# --- the payment header --------------------------------------------------------------


class HeaderPayload(Wire, frozen=True):
    """A signed EIP-3009 authorization: value a string, times numbers, the rest 0x-hex."""

    from_: str = msgspec.field(name="from")
    to: str
    value: str
    valid_after: Annotated[int, Meta(ge=0)]
    valid_before: Annotated[int, Meta(ge=0)]
    nonce: str
    signature: str
    asset: str


class PaymentHeader(Wire, frozen=True):
    """The content of the opaque payment header (2.3)."""

    x402_version: int
    scheme: str
    network: str
    payload: HeaderPayload


class BadMessage(ValueError):
    """Bytes that are not the expected message; the text says what is wrong, and where."""


MAX_BRACKETS = 2000
"""More arrays and objects than any message has, and few enough for a small stack."""
DEEPEST = 100
"""More levels than any message has: Python code that recurses over a message has the stack."""
_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS = bytes({*range(256)} - {*b"[{]}"})


def decode(body: bytes, kind: type[Any], *, most: int = MAX_BRACKETS, is_wide: bool = False) -> Any:
    """Decode JSON bytes as a message; raises `BadMessage` saying what is wrong, and where.

    The decoder recurses as deep as Python's recursion limit allows, and libraries such as
    web3 raise that limit beyond what the stack holds: so the brackets are counted first.
    At `most` so many arrays and objects are read, and at most `DEEPEST` levels; if the message
    `is_wide`, any number of them, and `most` levels.
    """
    brackets = body.count(b"[") + body.count(b"{") if len(body) > 2 * DEEPEST else 0
    if brackets > most and not is_wide:
        raise BadMessage(f"{brackets} arrays and objects are more than the {most} read")
    deepest = most if is_wide else DEEPEST
    if brackets > deepest and _depth(body) > deepest:
        raise BadMessage(f"the JSON is nested too deeply: more than {deepest} levels")
    try:
        return _decoder(kind).decode(body)  # type: ignore[arg-type]  # a type is hashable
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(str(error)) from error
    except RecursionError as error:
        raise BadMessage("the JSON is nested too deeply") from error


def _depth(body: bytes) -> int:
    """Return how deep arrays and objects are nested; brackets in texts do not count."""
    brackets = _TEXTS.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(each - 1 for each in brackets), default=0)


def decoded(body: bytes, kind: Any = Any) -> Any:
    """Decode JSON bytes as a message, by default as any JSON; None if they are none."""
    try:
        return decode(body, kind)
    except BadMessage:
        return None


def fields_of(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


encode = msgspec.json.encode
