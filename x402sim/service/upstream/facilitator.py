"""The service's calls to its facilitator, in one dialect: its paths, bodies and answers.

A lost answer is neither yes nor no, so `settle` has three outcomes: money moved, no money moved,
and `OutcomeUnknown`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import httpx
import msgspec

from x402sim.http.bounded import Limits
from x402sim.http.exchange import Transport, Url
from x402sim.protocol.crypto import from_hex, parse_address
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import BadMessage, PaymentRequirements
from x402sim.protocol.refusals import Refusal
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable, post, send

Answer = TypeVar("Answer")


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
class FacilitatorDialect:
    """The words of one kind of facilitator; the readers raise `BadMessage`."""

    verify_path: str
    settle_path: str
    headers: Mapping[str, str]
    request: Callable[[PresentedPayment, PaymentRequirements], bytes]
    read_verdict: Callable[[bytes], Verdict]
    read_outcome: Callable[[bytes], Outcome]


class FacilitatorClient:
    """One facilitator: its URL, its dialect, and the limits of its answers to verify and settle."""

    def __init__(
        self,
        to: Transport,
        url: str,
        dialect: FacilitatorDialect,
        *,
        verify: Limits,
        settle: Limits,
    ) -> None:
        self._to, self._dialect = to, dialect
        self._verify_url = Url.of(httpx.URL(url + dialect.verify_path))
        self._settle_url = Url.of(httpx.URL(url + dialect.settle_path))
        headers = dialect.headers.items()
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers]
        self._verify, self._settle = verify, settle

    async def verify(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Verdict:
        """Ask whether a payment is valid; raises `Unavailable`."""
        body = self._dialect.request(payment, requirements)
        return await self._post(self._verify_url, body, self._verify, self._dialect.read_verdict)

    async def settle(self, payment: PresentedPayment, requirements: PaymentRequirements) -> Outcome:
        """Ask the facilitator to settle.

        Raises `Unavailable` if it certainly did not get the request, `OutcomeUnknown` if it may
        have got it, and its answer is lost or makes no sense.
        """
        body, read = self._dialect.request(payment, requirements), self._dialect.read_outcome
        try:
            outcome = await self._post(self._settle_url, body, self._settle, read)
        except Unavailable as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
            raise OutcomeUnknown(str(error)) from error
        if isinstance(outcome, Moved) and not _is_as_requested(outcome, payment, requirements):
            raise OutcomeUnknown("the facilitator settled something else than it was asked to")
        return outcome

    async def _post(
        self, url: Url, body: bytes, limits: Limits, read: Callable[[bytes], Answer]
    ) -> Answer:
        """Return the answer; one that names a refusal counts whatever its status below 500."""
        response = await send(self._to, post(url, body, self._headers), limits)
        answered = f"answered {response.status}"
        if response.status >= 500 or response.status == 408:
            verb = url.path.rpartition("/")[2]
            raise Unavailable(f"{verb} {answered}: {response.text[:200]}")
        try:
            return read(response.content)
        except BadMessage as error:
            raise Unavailable(f"the facilitator {answered} {response.text[:200]!r}") from error


def _is_as_requested(
    moved: Moved, payment: PresentedPayment, requirements: PaymentRequirements
) -> bool:
    """Tell whether the facilitator moved this amount from this payer to this payee.

    It must also be able to show it: a refund goes to whom the payment came from.
    """
    if payment.authorization is None:
        return False
    try:
        from_hex(moved.tx_hash, 32)
        is_from_payer = parse_address(moved.payer) == payment.authorization.from_
    except ValueError:
        return False
    wanted = requirements.network, requirements.pay_to.lower(), requirements.max_amount_required
    return is_from_payer and (moved.network, moved.to.lower(), moved.amount) == wanted
