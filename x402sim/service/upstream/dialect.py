"""A dialect: the paths, bodies and answers of one kind of facilitator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.refusals import Refusal


class Verdict(msgspec.Struct, frozen=True):
    """The facilitator's answer to verify; `reason` says why a payment is invalid."""

    is_valid: bool
    reason: str | None = None


class Moved(msgspec.Struct, frozen=True):
    """The facilitator's answer that money has moved, in its own words: nothing is checked yet."""

    tx_hash: str
    payer: str
    to: str
    amount: str
    network: str


class NotMoved(msgspec.Struct, frozen=True):
    """The facilitator's answer that no money has moved, and its reason.

    `misses` is the end of the authorization's window that the time is beyond, if that is why.
    """

    refusal: Refusal
    reason: str
    misses: Literal["validAfter", "validBefore"] | None = None


Outcome = Moved | NotMoved


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The words of one kind of facilitator; the readers raise `BadMessage`."""

    verify_path: str
    settle_path: str
    headers: Mapping[str, str]
    request: Callable[[PresentedPayment, PaymentRequirements], bytes]
    read_verdict: Callable[[bytes], Verdict]
    read_outcome: Callable[[bytes], Outcome]
