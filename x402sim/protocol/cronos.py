"""The dialect of the public Cronos facilitator: its paths, messages and error texts.

`facilitator/cronos.py` serves it, and `service/upstream/facilitator.py` calls it.
"""

from enum import Enum
from typing import Literal

import msgspec

from x402sim.protocol.messages import RequiredPayment, Wire
from x402sim.protocol.rules import InvalidReason

VERSION = 1
VERSION_HEADER = "X402-Version"
HEADERS = {"Content-Type": "application/json", VERSION_HEADER: str(VERSION)}
HEALTH_PATH = "/healthcheck"
PATH = "/v2/x402"
SUPPORTED_PATH = f"{PATH}/supported"
VERIFY_PATH = f"{PATH}/verify"
SETTLE_PATH = f"{PATH}/settle"


class FacilitatorRequest(Wire, frozen=True):
    """The body of verify and settle; a service sends all requirements that it has."""

    x402_version: int
    payment_header: str
    payment_requirements: RequiredPayment


class VerifyAnswer(Wire, frozen=True):
    """The answer of verify; the reason of a valid header is null, not absent."""

    is_valid: bool
    invalid_reason: str | None


class Settled(Wire, frozen=True, tag_field="event", tag="payment.settled"):
    """The answer of settle if the money has moved."""

    x402_version: int
    tx_hash: str
    from_: str = msgspec.field(name="from")
    to: str
    value: str
    block_number: int
    network: str
    timestamp: str


class Failed(Wire, frozen=True, tag_field="event", tag="payment.failed"):
    """The answer of settle if no money has moved."""

    x402_version: int
    network: str
    timestamp: str
    error: str


SettleAnswer = Settled | Failed


class SupportedKind(Wire, frozen=True):
    """One kind of payment that a facilitator settles."""

    x402_version: int
    scheme: str
    network: str


class Supported(Wire, frozen=True):
    """The answer of supported."""

    kinds: list[SupportedKind]


class Uptime(Wire, frozen=True):
    """The facilitator's uptime: seconds, [seconds, nanoseconds], epoch milliseconds."""

    uptime: float
    response_time: tuple[int, int]
    message: str
    timestamp: int


class Health(Wire, frozen=True):
    """The answer of healthcheck."""

    status: Literal["success"]
    results: Uptime


INVALID_REASONS = {
    InvalidReason.HEADER: "Invalid Base64 paymentHeader",
    InvalidReason.SCHEME: "Unsupported scheme: {}",
    InvalidReason.NETWORK: "Unsupported network: {}",
    InvalidReason.ASSET: "Unsupported asset: {}",
    InvalidReason.RECIPIENT: "Recipient does not match payTo address",
    InvalidReason.AMOUNT: "Invalid amount: {}",
    InvalidReason.SIGNATURE: "Invalid EIP-3009 signature",
}


def invalid_reason(why: InvalidReason, value: str = "") -> str:
    """Return verify's reason for an invalid payment; `value` is the invalid value."""
    return INVALID_REASONS[why].format(value[:100])


class SettleError(Enum):
    """The answers of settle if the token or the chain refuses the transfer."""

    USED = "Authorization already used"
    EXPIRED = "Authorization expired"
    EARLY = "Authorization not yet valid"
    BALANCE = "ERC20: transfer amount exceeds balance"
    SIGNATURE = "Invalid signature"
    FAILED = "Transaction failed on-chain"
