"""The dialect of a Cronos facilitator: the requests to it, and what its answers mean.

Clauses: 4.1/build-verify, 7/insufficient-balance, 7/authorization-expired.
"""

from collections.abc import Mapping
from typing import Any, Literal

from x402sim.protocol import cronos
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import PaymentRequirements, decode, encode
from x402sim.protocol.refusals import Refusal
from x402sim.service.upstream.facilitator import (
    FacilitatorDialect,
    Moved,
    NotMoved,
    Outcome,
    Verdict,
)

_REFUSALS = {
    SettleError.USED.value: Refusal.NONCE_USED,
    SettleError.EXPIRED.value: Refusal.EXPIRED,
    SettleError.EARLY.value: Refusal.INVALID_SIGNATURE,
    SettleError.BALANCE.value: Refusal.INSUFFICIENT_BALANCE,
    SettleError.SIGNATURE.value: Refusal.INVALID_SIGNATURE,
}
"""What the service answers for each error of settle; any other is `FAILED`."""
_MISSES: Mapping[str, Literal["validAfter", "validBefore"]] = {
    SettleError.EARLY.value: "validAfter",
    SettleError.EXPIRED.value: "validBefore",
}


def request(payment: PresentedPayment, requirements: PaymentRequirements) -> bytes:
    """Return the body of verify and settle, from header and requirements (4.1/build-verify).

    The header is opaque: it is sent as it came.
    """
    version, header = cronos.VERSION, payment.text
    return encode(
        cronos.FacilitatorRequest(
            x402_version=version, payment_header=header, payment_requirements=requirements
        )
    )


def refusal_of(error: str) -> Refusal:
    """Translate an error of settle into the text of section 7.

    7/insufficient-balance, 7/authorization-expired.
    """
    return _REFUSALS.get(error, Refusal.FAILED)


def read_verdict(body: bytes) -> Verdict:
    """Read the answer of verify; raises `BadMessage`."""
    answer: cronos.VerifyAnswer = decode(body, cronos.VerifyAnswer)
    return Verdict(answer.is_valid, answer.invalid_reason)


def read_outcome(body: bytes) -> Outcome:
    """Read the answer of settle; raises `BadMessage`."""
    kind: Any = cronos.SettleAnswer
    answer: cronos.SettleAnswer = decode(body, kind)
    if isinstance(answer, cronos.Failed):
        return NotMoved(refusal_of(answer.error), answer.error, _MISSES.get(answer.error))
    return Moved(answer.tx_hash, answer.from_, answer.to, answer.value, answer.network)


CRONOS = FacilitatorDialect(
    verify_path=cronos.VERIFY_PATH,
    settle_path=cronos.SETTLE_PATH,
    headers=cronos.HEADERS,
    request=request,
    read_verdict=read_verdict,
    read_outcome=read_outcome,
)
"""The dialect of the public Cronos facilitator."""
