"""What a facilitator answers, read as leniently as a shop may: success is what it calls success."""

from dataclasses import dataclass
from typing import Any

from x402sim.protocol.messages import decoded
from x402sim.report.results import Demand
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.redact import redacted
from x402sim.text.words import printable

STANDARD_REASONS = frozenset(
    {
        "insufficient_funds",
        "invalid_exact_evm_payload_authorization_valid_after",
        "invalid_exact_evm_payload_authorization_valid_before",
        "invalid_exact_evm_payload_authorization_value",
        "invalid_exact_evm_payload_authorization_value_mismatch",
        "invalid_exact_evm_payload_signature",
        "invalid_exact_evm_payload_recipient_mismatch",
        "invalid_network",
        "invalid_payload",
        "invalid_payment_requirements",
        "invalid_scheme",
        "unsupported_scheme",
        "invalid_x402_version",
        "invalid_transaction_state",
        "unexpected_verify_error",
        "unexpected_settle_error",
        "settlement_pending",
    }
)
"""The words of section 9, of both versions, and settlement_pending, which came later."""
SHOWN = 400
"""How many characters of an answer a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, or why there is none: then `status` is 0 and `failure` says it.

    `json` is None for a body that is no JSON. `sent` is the request, for a report.
    """

    dialect: Dialect
    path: str
    sent: str
    status: int = 0
    json: Any = None
    text: str = ""
    seconds: float = 0
    failure: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The object that it is; empty for anything else."""
        return self.json if isinstance(self.json, dict) else {}

    @property
    def is_valid(self) -> bool:
        """Whether it calls a payment valid: a 2xx that says so."""
        return self.status // 100 == 2 and self.fields.get("isValid") is True

    @property
    def demand_on_settle(self) -> Demand:
        """What the settle after it must do: refuse what this answer of verify refuses."""
        kind = self.status // 100
        refuses = self.path.endswith("/verify") and (
            kind == 4 or (kind == 2 and self.fields.get("isValid") is False)
        )
        return Demand.SETTLE_CHECKS if refuses else Demand.OTHER

    @property
    def succeeded(self) -> bool:
        """Whether it says that a payment was settled: a 2xx that says so."""
        if self.status // 100 != 2:
            return False
        if self.dialect is Dialect.CRONOS:
            return self.fields.get("event") == "payment.settled"
        return self.fields.get("success") is True

    @property
    def transaction(self) -> str:
        """The hash that it names, in small letters; empty without one."""
        found = self.fields.get("txHash" if self.dialect is Dialect.CRONOS else "transaction")
        return found.lower() if isinstance(found, str) else ""

    @property
    def reason(self) -> str:
        """Why it refuses, in its words; empty without one."""
        for name in ("invalidReason", "errorReason", "error"):
            if isinstance(found := self.fields.get(name), str):
                return found
        return ""

    @property
    def is_pending(self) -> bool:
        """Whether it says that a payment may still be settled."""
        return "pending" in self.reason or (self.dialect is Dialect.CRONOS and self.status == 504)

    @property
    def is_server_error(self) -> bool:
        """Whether it is a 5xx."""
        return self.status // 100 == 5

    @property
    def summary(self) -> str:
        """The request and its answer, in a line."""
        return f"{self.sent}: {self.how}"

    @property
    def how(self) -> str:
        """What was answered, in short."""
        if not self.status:
            return f"no answer ({self.failure})"
        text = redacted(self.text[: 2 * SHOWN])
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
        late = f" after {self.seconds:.1f} s" if self.seconds > 1 else ""
        return printable(f"{self.status}{late} {shown}".strip())


def read_json(content: bytes) -> Any:
    """Return the JSON of an answer; None if it is none, or too deep."""
    return decoded(content)
