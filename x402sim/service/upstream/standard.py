"""The service's calls to a facilitator of the x402 standard, version 2, and what the answers mean.

Money has moved if settle answers 200 with `success` true, and a payment is good if verify answers
200 with `isValid` true; everything else is a refusal in the standard's words, or nonsense.
"""

from typing import Literal

import httpx

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Transport, Url
from x402sim.protocol import x402
from x402sim.protocol.crypto import from_hex, parse_address
from x402sim.protocol.differences import difference
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import PaymentRequirements, encode
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.rules import MATCH, Verification, first_broken
from x402sim.protocol.x402_reasons import PENDING, Meaning, meaning_of
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import (
    Moved,
    NotMoved,
    Outcome,
    Verdict,
    asked,
    asked_to_settle,
)

_REFUSALS: dict[Meaning, Refusal] = {
    Meaning.FUNDS: Refusal.INSUFFICIENT_BALANCE,
    Meaning.LATE: Refusal.EXPIRED,
    Meaning.EARLY: Refusal.INVALID_SIGNATURE,
    Meaning.WRONG: Refusal.INVALID_SIGNATURE,
    Meaning.USED: Refusal.NONCE_USED,
}
"""The service's answer to each meaning of a refusal; any other is `FAILED`."""
_MISSES: dict[Meaning, Literal["validAfter", "validBefore"]] = {
    Meaning.EARLY: "validAfter",
    Meaning.LATE: "validBefore",
}


class StandardFacilitator:
    """One facilitator of the standard, with the methods of `FacilitatorClient`."""

    def __init__(
        self, to: Transport, url: str, network: Network, *, verify: Limits, settle: Limits
    ) -> None:
        self._to, self._network = to, network
        self._verify_url = Url.of(httpx.URL(f"{url.rstrip('/')}/verify"))
        self._settle_url = Url.of(httpx.URL(f"{url.rstrip('/')}/settle"))
        self._verify, self._settle = verify, settle

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        """Ask whether a payment is valid; raises `Unavailable`."""
        if wrong := self._differs(payment, requirements):
            return Verdict(is_valid=False, refused=NotMoved(Refusal.INVALID_SIGNATURE, wrong))
        body = self._request(payment, requirements)
        status, answer = await asked(
            self._to, self._verify_url, body, _HEADERS, self._verify, x402.Verified
        )
        if answer.is_valid and status != 200:
            raise Unavailable(f"verify answered {status} and isValid true")
        if answer.is_valid:
            return Verdict(is_valid=True)
        refused = _refused(answer.invalid_reason, answer.invalid_message)
        return Verdict(is_valid=False, refused=refused)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        """Ask to settle; raises `Unavailable` and `OutcomeUnknown` as `asked_to_settle`."""
        if wrong := self._differs(payment, requirements):
            return NotMoved(Refusal.INVALID_SIGNATURE, wrong)
        body = self._request(payment, requirements)
        status, said = await asked_to_settle(
            self._to, self._settle_url, body, _HEADERS, self._settle, x402.ForeignSettlement
        )
        answer = said.plain
        if not answer.success:
            return _refused(answer.error_reason, answer.error_message, answer.transaction)
        network = self._network
        try:
            from_hex(answer.transaction, 32)
            is_ours = status == 200 and answer.network == network.caip2
            payer = payment.authorization and payment.authorization.from_
            is_ours &= answer.payer is None or parse_address(answer.payer) == payer
        except ValueError:
            is_ours = False
        if not is_ours:
            raise OutcomeUnknown(f"settle answered {status} and a receipt of another payment")
        return Moved(
            answer.transaction,
            answer.payer or "",
            requirements.pay_to,
            requirements.max_amount_required,
            network.name,
        )

    def _differs(self, payment: PresentedPayment, requirements: PaymentRequirements) -> str:
        """Return where a header differs from the requirements, "" if it does not.

        The standard's requests have no place for what the header says of scheme, network and token.
        """
        if payment.signed is None:
            return "the payment header cannot be read"
        broken = first_broken(
            MATCH, case := Verification(payment.signed, requirements, self._network)
        )
        return difference(broken.refusal, case) if broken else ""

    def _request(self, payment: PresentedPayment, requirements: PaymentRequirements) -> bytes:
        """Return the body of verify and settle (4.1/build-verify)."""
        assert payment.signed is not None
        wanted = x402.requirements_v2(requirements, self._network)
        payload = x402.exact_payload(payment.signed.authorization, payment.signed.signature)
        paid = x402.PaymentV2(x402_version=2, accepted=wanted, payload=payload)
        return encode({"x402Version": 2, "paymentPayload": paid, "paymentRequirements": wanted})


_HEADERS = [(b"content-type", b"application/json")]


def _refused(word: str | None, message: str | None, transaction: str = "") -> NotMoved:
    meaning = meaning_of(word or "", transaction)
    refusal = Refusal.PENDING if word == PENDING else _REFUSALS.get(meaning, Refusal.FAILED)
    reason = ": ".join(filter(None, (word, message))) or "no reason was given"
    return NotMoved(refusal, reason, _MISSES.get(meaning))
