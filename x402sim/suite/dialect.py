"""The dialects in which servers, payers and facilitators are judged: one table for every judge."""

from enum import StrEnum

from x402sim.protocol import cronos, mcp, x402
from x402sim.protocol.permit2_payments import UPTO


class Dialect(StrEnum):
    """How a payment is asked for, signed and sent; the value is the name on the command line.

    A call of a tool and its result are read as a request and an answer of HTTP (`protocol.mcp`).
    Not `extra.paymentFlow` of the standard, which names the time of settlement.
    """

    V1 = "v1"
    V2 = "v2"
    PERMIT2 = "permit2"
    UPTO = "upto"
    MCP = "mcp"
    CRONOS = "cronos"
    STEPS = "steps"
    SESSION = "session"

    @property
    def about(self) -> str:
        """The dialect in words."""
        return _ABOUT[self]

    @property
    def version(self) -> x402.Version:
        """The version of the standard in the dialect's messages; 1 for dialects without one."""
        return 2 if self in (Dialect.V2, Dialect.PERMIT2, Dialect.UPTO, Dialect.MCP) else 1

    @property
    def is_ours(self) -> bool:
        """Whether the specification has the dialect: in two steps, or by a session."""
        return self in (Dialect.STEPS, Dialect.SESSION)

    @property
    def by_permit2(self) -> bool:
        """Whether a payment is a message of Permit2."""
        return self in BY_PERMIT2

    @property
    def scheme(self) -> str:
        """The scheme of a payment."""
        return UPTO if self is Dialect.UPTO else x402.SCHEME

    @property
    def amount(self) -> str:
        """The name of the amount in requirements."""
        return "amount" if self.version == 2 else "maxAmountRequired"

    @property
    def payment_header(self) -> str:
        """The header of a payment."""
        return x402.PAYMENT_HEADERS[self.version]

    @property
    def response_header(self) -> str:
        """The header of a receipt."""
        return x402.RESPONSE_HEADERS[self.version]

    @property
    def response_place(self) -> str:
        """The place of a receipt, for people."""
        return f'_meta["{mcp.RESPONSE}"]' if self is Dialect.MCP else self.response_header

    @property
    def verify_path(self) -> str:
        """Where a facilitator verifies a payment."""
        return cronos.VERIFY_PATH if self is Dialect.CRONOS else "/verify"

    @property
    def settle_path(self) -> str:
        """Where a facilitator settles a payment."""
        return cronos.SETTLE_PATH if self is Dialect.CRONOS else "/settle"

    @property
    def supported_path(self) -> str:
        """The path of a facilitator's list of kinds."""
        return cronos.SUPPORTED_PATH if self is Dialect.CRONOS else "/supported"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request to a facilitator."""
        return cronos.HEADERS if self is Dialect.CRONOS else {"Content-Type": "application/json"}


BY_PERMIT2 = (Dialect.PERMIT2, Dialect.UPTO)
OF_SERVERS = (Dialect.V1, Dialect.V2, *BY_PERMIT2, Dialect.MCP)
OF_FACILITATORS = (Dialect.V1, Dialect.V2, *BY_PERMIT2, Dialect.CRONOS)
OF_PAYERS = (Dialect.V1, Dialect.V2, Dialect.STEPS, Dialect.SESSION, Dialect.MCP, *BY_PERMIT2)
"""The dialects of each judge, in the order of reports."""
_ABOUT = {
    Dialect.V1: "x402 version 1",
    Dialect.V2: "x402 version 2",
    Dialect.PERMIT2: "x402 version 2, exact by Permit2",
    Dialect.UPTO: "x402 version 2, upto",
    Dialect.MCP: "an MCP tool",
    Dialect.CRONOS: "the dialect of Cronos",
    Dialect.STEPS: "two steps",
    Dialect.SESSION: "a session",
}
