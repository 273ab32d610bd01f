"""The errors in the service's answers, and the meaning of each.

`Refusal` holds the refusals of a settlement: the five texts of section 7 and our own.
`RequestError` holds every other error. Each error is a row, read by the service, the documentation,
the payer and the reports. A new error is a new row, and a place to raise the error: for a
facilitator's error a line in `_REFUSALS` of `service/upstream/facilitator.py`, for the service's
own a `raise SettlementRefused` in `service/payments.py`, or, for changed requirements, a row of
`protocol/rules.py`. A payment in one step is answered with the standard's nearest word: a line in
`code_of` of `service/one_step.py`, demanded by mypy.
Clauses: 7/insufficient-balance, 7/invalid-signature, 7/nonce-already-used,
7/authorization-expired, 7/payment-already-settled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from x402sim.spec.decisions import Decisions

Status = int | Callable[[Decisions], int]
"""An HTTP status, or the decision about the status."""


class ChainFinding(Enum):
    """The chain's report on a payment."""

    PAID = auto()
    NEVER = auto()
    """Not paid, and never to be."""
    NOT_YET = auto()
    """Not paid yet, perhaps later."""
    UNKNOWN = auto()
    """The chain cannot be queried, or its answer is incomplete."""


class Finality(Enum):
    """Whether a refusal ends the attempt: nothing was charged, and never will be."""

    FINAL = auto()
    OPEN = auto()
    """It may still be paid."""
    STATED = auto()
    """Either: each answer has `final`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """The properties of one refusal."""

    status: Status
    cause: str
    remedy: str
    final: Finality = Finality.FINAL
    resend: bool = False
    """Whether the payer should send the same payment header again, even after a final refusal."""
    leaves_earlier: bool = False
    """Whether earlier attempts with the same payment id keep their outcome."""
    may_have_been_sent: bool = True
    """Whether a facilitator may have sent the transaction despite this error.

    If not, the header may still be usable, and the answer is not final.
    """
    example: str | None = None
    """An example of `reason`, for the documentation."""


NOT_ISSUED = "this payment id was not issued here"
"""The reason of `Refusal.MISMATCH` for an id that is not ours."""
_AGAIN = "send the same payment header again; never sign another one before the first has expired."


class _Error(Enum):
    """An error; the value is its text on the wire."""

    _value_: str

    @property
    def text(self) -> str:
        """The text on the wire."""
        return self._value_

    @classmethod
    def named(cls, text: str) -> Self | None:
        """Return the error with this text on the wire, or None for a foreign text."""
        return next((error for error in cls if error.text == text), None)


class Refusal(_Error):
    """The reasons to refuse a settlement; the value is the text on the wire."""

    row: ErrorRow

    def __new__(cls, text: str, row: ErrorRow) -> "Refusal":
        """Make a member whose value is the text."""
        member = object.__new__(cls)
        member._value_, member.row = text, row
        return member

    INSUFFICIENT_BALANCE = (
        "Insufficient USDC balance",
        ErrorRow(
            status=lambda decisions: decisions.insufficient_balance_status,
            cause="Payer wallet lacks the token amount.",
            remedy="Fund the wallet.",
            may_have_been_sent=False,
        ),
    )
    INVALID_SIGNATURE = (
        "Invalid signature",
        ErrorRow(
            status=lambda decisions: decisions.invalid_signature_status,
            cause="Signature verification failed.",
            remedy="Correct what `reason` names, and sign anew.",
            may_have_been_sent=False,
        ),
    )
    NONCE_USED = (
        "Nonce already used",
        ErrorRow(
            status=lambda decisions: decisions.nonce_used_status,
            cause="Replay or stale nonce.",
            remedy="Look first whether it has paid already: GET /api/payments/{paymentId}. For "
            "another payment, sign anew with a new nonce: 32 bytes that the payer draws at random.",
        ),
    )
    EXPIRED = (
        "Authorization expired",
        ErrorRow(
            status=lambda decisions: decisions.authorization_expired_status,
            cause="validBefore has passed, or the payment requirements are older than "
            "maxTimeoutSeconds.",
            remedy="Set your clock to the server's time, which `reason` has, and sign anew.",
            may_have_been_sent=False,
        ),
    )
    ALREADY_SETTLED = (
        "Payment already settled",
        ErrorRow(
            status=lambda decisions: decisions.already_settled_status,
            cause="The payment id was already used.",
            remedy="If the payment was yours, repeat the request with this payment id; otherwise "
            "ask for a new 402.",
        ),
    )
    # where the specification is silent
    MISMATCH = (
        "Payment requirements do not match",
        ErrorRow(
            status=lambda decisions: decisions.requirements_mismatch_status,
            cause="The requirements are not those issued for this payment id, or the id was "
            "never issued.",
            remedy="Send the requirements of the 402 back unchanged, or ask for a new 402.",
            leaves_earlier=True,
            example="maxAmountRequired: issued 10000, got 1",
        ),
    )
    PENDING = (
        "Settlement pending",
        ErrorRow(
            status=lambda decisions: decisions.settlement_pending_status,
            cause="The outcome of a payment header sent for this payment id is not known yet: "
            "it may still be paid.",
            remedy=_AGAIN.capitalize(),
            final=Finality.OPEN,
            resend=True,
            example="an earlier payment header may still settle",
        ),
    )
    UNREACHABLE = (
        "Facilitator unreachable",
        ErrorRow(
            status=lambda decisions: decisions.facilitator_unreachable_status,
            cause="The facilitator could not be reached, or its answer makes no sense.",
            remedy=_AGAIN.capitalize(),
            final=Finality.STATED,
            resend=True,
            example="the facilitator did not answer; it may still be paid",
        ),
    )
    CHAIN_UNREACHABLE = (
        "Chain unreachable",
        ErrorRow(
            status=lambda decisions: decisions.facilitator_unreachable_status,
            cause="The chain's node did not answer, so nothing was sent to the facilitator.",
            remedy=_AGAIN.capitalize(),
            final=Finality.STATED,
            resend=True,
            example="the chain's node did not answer, so nothing was sent to the facilitator",
        ),
    )
    FAILED = (
        "Settlement failed",
        ErrorRow(
            status=502,
            cause="The transfer was refused or reverted for another reason, which `reason` gives.",
            remedy="If `final` is true, resolve that reason and ask for a new 402. Otherwise "
            + _AGAIN,
            final=Finality.STATED,
            example="Transaction failed on-chain; it may still be paid",
        ),
    )


class SettlementRefused(Exception):
    """A refused settlement.

    `reason` gives details. `final` says whether the attempt is over; by default as in the table,
    and False if the table leaves it to the answer.
    """

    def __init__(
        self, refusal: Refusal, reason: str | None = None, *, final: bool | None = None
    ) -> None:
        super().__init__(refusal, reason, final)
        self.refusal = refusal
        self.reason = reason
        self.final: bool = is_final(refusal.text, final)

    def __str__(self) -> str:
        return self.refusal.text + (f": {self.reason}" if self.reason else "")


class Unpaid(Exception):
    """A request without an accepted proof of payment.

    `code` is the standard's word for the fault of the request's payment, if any. The answer is 402,
    unless the payment may still be settled (`retryable`): then no other must be requested.
    """

    def __init__(
        self,
        code: str = "",
        reason: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        retryable: SettlementRefused | None = None,
    ) -> None:
        super().__init__(code, reason)
        self.code, self.reason, self.headers = code, reason, headers or {}
        self.retryable = retryable

    @property
    def summary(self) -> str | None:
        """The reason in the body of the 402; None without a payment."""
        return f"{self.code}: {self.reason}" if self.code else None


def _short_session_status(decisions: Decisions) -> int:
    """Return the status for a session unable to pay; mypy does not check a lambda there."""
    return decisions.short_session_status


class RequestError(_Error):
    """The other errors of requests; the value is the text on the wire."""

    status: Status
    meaning: str

    example: str
    """An example of `reason`, for the documentation."""

    def __new__(cls, text: str, status: Status, meaning: str, example: str = "") -> "RequestError":
        """Make a member whose value is the text."""
        member = object.__new__(cls)
        member._value_, member.status, member.meaning = text, status, meaning
        member.example = example or meaning
        return member

    INVALID_BODY = (
        "Invalid request body",
        400,
        "The body is not what the endpoint reads; `reason` says what is wrong, and where.",
        "Object missing required field `pair`",
    )
    INVALID_PAYMENT = (
        "Invalid payment",
        400,
        "The payment in X-PAYMENT or PAYMENT-SIGNATURE is not base64 of a JSON object.",
        "the payment is neither 0x-hex nor base64: Incorrect padding",
    )
    IDENTIFIER_TAKEN = (
        "Payment identifier in use",
        409,
        "Another payment has this id of the extension payment-identifier: choose a new one.",
    )
    INVALID_HOST = "Invalid Host header", 400, "A request has exactly one `Host` header."
    INVALID_HTTP = "Invalid HTTP request", 400, "What was sent is not HTTP/1.1."
    DISCONNECTED = (
        "Client disconnected",
        400,
        "The connection closed before the whole request had arrived.",
    )
    SESSION_CANNOT_PAY = (
        "Session cannot pay",
        _short_session_status,
        "The session is short of budget.",
    )
    NOT_FOUND = "Not found", 404, "There is no such path."
    UNKNOWN_SESSION = "Unknown session", 404, "No session has this id."
    UNKNOWN_PAYMENT = "Unknown payment", 404, "No settlement of this payment id is stored."
    METHOD_NOT_ALLOWED = (
        "Method not allowed",
        405,
        "The path does not have this method; the header `Allow` lists those it has.",
    )
    TIMED_OUT = (
        "Request timed out",
        408,
        "The request did not arrive in time.",
        "its head has 10 s to arrive",
    )
    BODY_TOO_LARGE = (
        "Request body too large",
        413,
        "A body has at most 1 MiB.",
        "at most 1048576 bytes are read",
    )
    HEAD_TOO_LARGE = (
        "Request head too large",
        431,
        "The request line and the headers have at most 64 KiB, path and query 8 KiB; there are at "
        "most 200 headers.",
        "at most 65536 bytes are read",
    )
    BUSY = (
        "Too many requests at once",
        503,
        "All connections together hold more of requests than the server keeps: try again.",
    )
    INTERNAL = (
        "Internal server error",
        500,
        "The service has a defect; the request is not at fault.",
    )
    STORAGE_UNAVAILABLE = (
        "Storage unavailable",
        503,
        "The database cannot be used now: the disk is full, or another program has locked it. "
        "Nothing that was stored is lost. Send the same request again, with the same payment "
        "header.",
        "database or disk is full",
    )


def status_of(error: Refusal | RequestError, decisions: Decisions) -> int:
    """Return the HTTP status of an error under these decisions (section 7 shows none)."""
    status = error.row.status if isinstance(error, Refusal) else error.status
    return status if isinstance(status, int) else status(decisions)


def is_final(error: str, stated: bool | None = None) -> bool:
    """Tell whether a refused attempt is over: nothing was charged, and never will be.

    `stated` is the `final` of the answer. Without it, the table decides by the error text; an
    unknown text is not final.
    """
    if stated is not None:
        return stated
    known = Refusal.named(error)
    return known is not None and known.row.final is Finality.FINAL
