"""The answer of a service to a payer of a story."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from x402sim.http.exchange import Headers
from x402sim.payer.core import PaymentFailed
from x402sim.protocol.x402 import REQUIRED_HEADER


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the service; `status` is None if none came, and `error` says why.

    `body` is the answer's JSON object; empty if the answer is not one. `header` reads a header.
    """

    status: int | None
    body: dict[str, Any]
    exchange: int
    text: str = ""
    broken: str | None = None
    headers: Headers = field(default_factory=list, repr=False)

    def header(self, name: str) -> str | None:
        """Return a header of the answer; None if it has none of that name."""
        found: str | None = httpx.Headers(self.headers).get(name)
        return found

    @property
    def error(self) -> str | None:
        """The error's text, or the name of the exception that ended the exchange."""
        return self.broken or self.body.get("error")

    @property
    def reason(self) -> str:
        """The error's details; empty if there are none."""
        return str(self.body.get("reason", ""))

    @property
    def payment_id(self) -> str:
        """The payment id of a 402 or a receipt; raises `PaymentFailed` if there is none."""
        return str(self._field("paymentId", "payment id"))

    @property
    def requirements(self) -> dict[str, Any]:
        """The payment requirements of a 402, without the description (2.1).

        Raises `PaymentFailed` if the answer is not a 402.
        """
        wanted: dict[str, Any] = self._field("paymentRequirements", "402 to pay")
        return {name: value for name, value in wanted.items() if name != "description"}

    @property
    def price_base(self) -> int:
        """The price in a 402, in base units; raises `PaymentFailed` if it is not a 402."""
        return int(self.requirements["maxAmountRequired"])

    def _field(self, name: str, meaning: str) -> Any:
        if name not in self.body:
            raise PaymentFailed(f"no {meaning}: {self._outcome}")
        return self.body[name]

    @property
    def standard_offer(self) -> str | None:
        """What a 402 offers in version 2 of the x402 standard, to pay in one step, if it does."""
        return self.header(REQUIRED_HEADER) if self.status == 402 else None

    @property
    def _outcome(self) -> str:
        """The outcome of the exchange, for an error's text."""
        if self.status is None:
            return f"the request was not answered ({self.broken})"
        return f"the answer was {self.status}" + (f" ({self.error})" if self.error else "")
