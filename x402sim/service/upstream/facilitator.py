"""The service's calls to its facilitator, in the dialect of Cronos, and what the answers mean.

A lost answer is neither yes nor no, so `settle` has three outcomes: money moved, no money moved,
and `OutcomeUnknown`.
Clauses: 4.1/build-verify, 7/insufficient-balance, 7/authorization-expired.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import httpx
import msgspec

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Headers, Response, Transport, Url
from x402sim.protocol import cronos
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.crypto import from_hex, parse_address
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import BadMessage, PaymentRequirements, decode, encode
from x402sim.protocol.refusals import Refusal
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable, post

Answer = TypeVar("Answer")
_SETTLED: Any = cronos.SettleAnswer
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in cronos.HEADERS.items()]
_REFUSALS = {
    SettleError.USED.value: Refusal.NONCE_USED,
    SettleError.EXPIRED.value: Refusal.EXPIRED,
    SettleError.EARLY.value: Refusal.INVALID_SIGNATURE,
    SettleError.BALANCE.value: Refusal.INSUFFICIENT_BALANCE,
    SettleError.SIGNATURE.value: Refusal.INVALID_SIGNATURE,
}
"""The service's answer to each error of settle; any other error is `FAILED`."""
_MISSES: Mapping[str, Literal["validAfter", "validBefore"]] = {
    SettleError.EARLY.value: "validAfter",
    SettleError.EXPIRED.value: "validBefore",
}


class Moved(msgspec.Struct, frozen=True):
    """The facilitator's answer that the transfer was made, with the transaction's hash."""

    tx_hash: str


class NotMoved(msgspec.Struct, frozen=True):
    """The facilitator's answer: no money has moved, for this reason.

    `misses` is the end of the authorization's window that was missed, if any.
    """

    refusal: Refusal
    reason: str
    misses: Literal["validAfter", "validBefore"] | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The facilitator's answer to verify, with the reason for an invalid payment.

    `refused` is the error to answer with; None is an invalid signature.
    """

    is_valid: bool
    reason: str | None = None
    refused: NotMoved | None = None


Outcome = Moved | NotMoved


def refusal_of(error: str) -> Refusal:
    """Translate an error of settle into the text of section 7.

    7/insufficient-balance, 7/authorization-expired.
    """
    return _REFUSALS.get(error, Refusal.FAILED)


class Endpoints:
    """Verify and settle of one facilitator: the URLs, and the limits of the answers."""

    def __init__(
        self, to: Transport, url: str, headers: Headers, *, verify: Limits, settle: Limits
    ) -> None:
        self._to, self._headers, self._verify, self._settle = to, headers, verify, settle
        self._verify_url = Url.of(httpx.URL(f"{url}/verify"))
        self._settle_url = Url.of(httpx.URL(f"{url}/settle"))

    async def verify(self, body: bytes, kind: type[Answer]) -> tuple[int, Answer]:
        """Return status and answer; with any status below 500, a named refusal counts.

        Raises `Unavailable`.
        """
        response = await post(self._to, self._verify_url, body, self._headers, self._verify)
        return response.status, read_answer(response, self._verify_url, kind)

    async def settle(self, body: bytes, kind: type[Answer]) -> tuple[int, Answer]:
        """Ask to settle; raises `OutcomeUnknown`, or `Unavailable` if nothing can have arrived."""
        try:
            response = await post(self._to, self._settle_url, body, self._headers, self._settle)
            return response.status, read_answer(response, self._settle_url, kind)
        except Unavailable as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
            raise OutcomeUnknown(str(error)) from error


class FacilitatorClient:
    """One facilitator in the dialect of Cronos."""

    def __init__(self, to: Transport, url: str, *, verify: Limits, settle: Limits) -> None:
        self._at = Endpoints(to, url + cronos.PATH, _HEADERS, verify=verify, settle=settle)

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        """Ask whether a payment is valid; raises `Unavailable`."""
        _, answer = await self._at.verify(request(payment, requirements), cronos.VerifyAnswer)
        return Verdict(answer.is_valid, answer.invalid_reason)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        """Ask to settle; raises `Unavailable` and `OutcomeUnknown` as `Endpoints.settle`."""
        _, answer = await self._at.settle(request(payment, requirements), _SETTLED)
        if isinstance(answer, cronos.Failed):
            return NotMoved(refusal_of(answer.error), answer.error, _MISSES.get(answer.error))
        if not _is_as_requested(answer, payment, requirements):
            raise OutcomeUnknown("the facilitator settled something else than it was asked to")
        return Moved(answer.tx_hash)


def request(payment: PresentedPayment, requirements: PaymentRequirements) -> bytes:
    """Return the body of verify and settle (4.1/build-verify); the header is opaque."""
    return encode(cronos.FacilitatorRequest(cronos.VERSION, payment.text, requirements))


def read_answer(response: Response, url: Url, kind: type[Answer]) -> Answer:
    """Read a facilitator's answer; raises `Unavailable`."""
    answered = f"answered {response.status}"
    if response.status >= 500 or response.status == 408:
        verb = url.path.rpartition("/")[2]
        raise Unavailable(f"{verb} {answered}: {response.text[:200]}")
    try:
        answer: Answer = decode(response.content, kind)
    except BadMessage as error:
        raise Unavailable(f"the facilitator {answered} {response.text[:200]!r}") from error
    return answer


def _is_as_requested(
    moved: cronos.Settled, payment: PresentedPayment, requirements: PaymentRequirements
) -> bool:
    """Tell whether the facilitator moved the requested amount from payer to payee.

    The facilitator must also name a transaction and the payer: a refund goes to that address.
    """
    if payment.authorization is None:
        return False
    try:
        from_hex(moved.tx_hash, 32)
        is_from_payer = parse_address(moved.from_) == payment.authorization.from_
    except ValueError:
        return False
    wanted = requirements.network, requirements.pay_to.lower(), requirements.max_amount_required
    return is_from_payer and (moved.network, moved.to.lower(), moved.value) == wanted
