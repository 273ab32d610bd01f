"""The service's calls to a facilitator of the x402 standard, version 2, and what the answers mean.

Money has moved if settle answers 200 with `success` true, and a payment is good if verify answers
200 with `isValid` true; everything else is a refusal in the standard's words, or nonsense.
"""

from typing import Any, Literal

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Transport
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
from x402sim.service.upstream.facilitator import Endpoints, Moved, NotMoved, Outcome, Verdict

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


class StandardEndpoints(Endpoints):
    """Verify and settle of one facilitator, in version 2 of the standard."""

    def __init__(self, to: Transport, url: str, *, verify: Limits, settle: Limits) -> None:
        headers = [(b"content-type", b"application/json")]
        super().__init__(to, url.rstrip("/"), headers, verify=verify, settle=settle)

    async def verified(self, payment: Any, wanted: x402.RequirementsV2) -> x402.Verified:
        """Ask whether a payment is valid; raises `Unavailable`."""
        status, answer = await self.verify(_request(payment, wanted), x402.Verified)
        if answer.is_valid and status != 200:
            raise Unavailable(f"verify answered {status} and isValid true")
        return answer

    async def settled(
        self, payment: Any, wanted: x402.RequirementsV2
    ) -> tuple[int, x402.Settlement]:
        """Ask to settle; raises as `settle`."""
        status, said = await self.settle(_request(payment, wanted), x402.ForeignSettlement)
        return status, said.plain


def _request(payment: Any, wanted: x402.RequirementsV2) -> bytes:
    """Return the body of verify and settle (4.1/build-verify)."""
    return encode({"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted})


class StandardFacilitator:
    """One facilitator of the standard, with the methods of `FacilitatorClient`."""

    def __init__(
        self, to: Transport, url: str, network: Network, *, verify: Limits, settle: Limits
    ) -> None:
        self._at = StandardEndpoints(to, url, verify=verify, settle=settle)
        self._network = network

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        """Ask whether a payment is valid; raises `Unavailable`."""
        if wrong := self._differs(payment, requirements):
            return Verdict(is_valid=False, refused=NotMoved(Refusal.INVALID_SIGNATURE, wrong))
        answer = await self._at.verified(*self._paid(payment, requirements))
        if answer.is_valid:
            return Verdict(is_valid=True)
        refused = _refused(answer.invalid_reason, answer.invalid_message)
        return Verdict(is_valid=False, refused=refused)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        """Ask to settle; raises `Unavailable` and `OutcomeUnknown` as `Endpoints.settle`."""
        if wrong := self._differs(payment, requirements):
            return NotMoved(Refusal.INVALID_SIGNATURE, wrong)
        status, answer = await self._at.settled(*self._paid(payment, requirements))
        if not answer.success:
            return _refused(answer.error_reason, answer.error_message, answer.transaction)
        try:
            from_hex(answer.transaction, 32)
            is_ours = status == 200 and answer.network == self._network.caip2
            payer = payment.authorization and payment.authorization.from_
            is_ours &= answer.payer is None or parse_address(answer.payer) == payer
        except ValueError:
            is_ours = False
        if not is_ours:
            raise OutcomeUnknown(f"settle answered {status} and a receipt of another payment")
        return Moved(answer.transaction)

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

    def _paid(
        self, payment: PresentedPayment, requirements: PaymentRequirements
    ) -> tuple[x402.PaymentV2, x402.RequirementsV2]:
        assert payment.signed is not None
        wanted = x402.requirements_v2(requirements, self._network)
        payload = x402.exact_payload(payment.signed.authorization, payment.signed.signature)
        return x402.PaymentV2(x402_version=2, accepted=wanted, payload=payload), wanted


def _refused(word: str | None, message: str | None, transaction: str = "") -> NotMoved:
    meaning = meaning_of(word or "", transaction)
    refusal = Refusal.PENDING if word == PENDING else _REFUSALS.get(meaning, Refusal.FAILED)
    reason = ": ".join(filter(None, (word, message))) or "no reason was given"
    return NotMoved(refusal, reason, _MISSES.get(meaning))
