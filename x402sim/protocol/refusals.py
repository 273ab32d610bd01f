"""Which errors can the service answer, and what does each of them mean?

`Refusal` holds what a settlement is refused with: the five texts of section 7 and our own.
`RequestError` holds every other error. One row an error: the service, its documentation,
the payer and the reports read it here, so a new error is one new row.
Clauses: 7/insufficient-balance, 7/invalid-signature, 7/nonce-already-used,
7/authorization-expired, 7/payment-already-settled.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from x402sim.spec.decisions import Decisions

Finding = Literal["settled", "not settled", "unused", "unknown"]
"""What the chain says of a payment: paid; never to be paid; not paid yet; it cannot be asked."""

NEVER_PAID: frozenset[Finding] = frozenset({"not settled"})
NOT_PAID_YET: frozenset[Finding] = frozenset({"not settled", "unused"})
NOT_SEEN_PAID: frozenset[Finding] = frozenset({"not settled", "unused", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is known of one refusal, but for its text.

    `status` is an HTTP status, or the field of `Decisions` that holds it. `final` says
    whether an attempt refused so is over: it charged nothing, and it never will. None: the
    service says so case by case, in the `final` of its answer.
    """

    status: int | str
    cause: str
    remedy: str
    final: bool | None = True
    resend: bool = False
    """Whether the payer should send the same payment header again, final or not."""
    leaves_earlier: bool = False
    """Whether the outcome of earlier attempts with the same payment id stays as it was."""
    over_if: frozenset[Finding] = NEVER_PAID
    """What the chain must say for a first attempt, refused so by the facilitator, to be over."""
    example: str | None = None
    """A `reason`, for the documentation."""


_AGAIN = "send the same payment header again; never sign another one before the first has expired."


class Refusal(Enum):
    """Why a settlement was refused; the value is the text on the wire."""

    row: Row
    _value_: str

    def __new__(cls, text: str, row: Row) -> "Refusal":
        """Make a member whose value is the text alone."""
        member = object.__new__(cls)
        member._value_, member.row = text, row
        return member

    @property
    def text(self) -> str:
        """The text on the wire."""
        return self._value_

    INSUFFICIENT_BALANCE = (
        "Insufficient USDC balance",
        Row(
            status="insufficient_balance_status",
            cause="Payer wallet lacks the token amount.",
            remedy="Fund the wallet.",
            over_if=NOT_SEEN_PAID,  # it was never put on the chain
        ),
    )
    INVALID_SIGNATURE = (
        "Invalid signature",
        Row(
            status="invalid_signature_status",
            cause="Signature verification failed.",
            remedy="Generate a new payment header.",
            over_if=NOT_SEEN_PAID,
        ),
    )
    NONCE_USED = (
        "Nonce already used",
        Row(
            status="nonce_used_status",
            cause="Replay or stale nonce.",
            remedy="Get a fresh nonce from the token contract.",
        ),
    )
    EXPIRED = (
        "Authorization expired",
        Row(
            status="authorization_expired_status",
            cause="validBefore has passed.",
            remedy="Generate a new authorization.",
            over_if=NOT_PAID_YET,  # no block to come takes it
        ),
    )
    ALREADY_SETTLED = (
        "Payment already settled",
        Row(
            status="already_settled_status",
            cause="The payment id was already used.",
            remedy="Use a new payment id.",
        ),
    )
    # where the specification is silent
    MISMATCH = (
        "Payment requirements do not match",
        Row(
            status="requirements_mismatch_status",
            cause="The requirements are not those issued for this payment id, or the id was "
            "never issued.",
            remedy="Send the requirements of the 402 back unchanged, or ask for a new 402.",
            leaves_earlier=True,
            example="maxAmountRequired: issued 10000, got 1",
        ),
    )
    PENDING = (
        "Settlement pending",
        Row(
            status="settlement_pending_status",
            cause="The outcome of a payment header sent for this payment id is not known yet: "
            "it may still be paid.",
            remedy=_AGAIN.capitalize(),
            final=False,
            resend=True,
            example="an earlier payment header may still settle",
        ),
    )
    UNREACHABLE = (
        "Facilitator unreachable",
        Row(
            status="facilitator_unreachable_status",
            cause="The facilitator could not be reached, or its answer makes no sense.",
            remedy=_AGAIN.capitalize(),
            final=None,
            resend=True,
            example="the facilitator did not answer; it may still be paid",
        ),
    )
    FAILED = (
        "Settlement failed",
        Row(
            status=502,
            cause="The transfer was refused or reverted for another reason, which `reason` gives.",
            remedy="If `final` is true, resolve that reason and ask for a new 402. Otherwise "
            + _AGAIN,
            final=None,
            example="Transaction failed on-chain; it may still be paid",
        ),
    )


class SettlementRefused(Exception):
    """A settlement that granted nothing.

    `reason` gives details. `final` says whether the attempt is over; the default is what
    the table says, and False where the table leaves it open.
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


class RequestError(Enum):
    """Why a request was not served, whatever it asked for; the value is the text on the wire."""

    status: int | str
    meaning: str
    _value_: str

    def __new__(cls, text: str, status: int | str, meaning: str) -> "RequestError":
        """Make a member whose value is the text alone."""
        member = object.__new__(cls)
        member._value_, member.status, member.meaning = text, status, meaning
        return member

    @property
    def text(self) -> str:
        """The text on the wire."""
        return self._value_

    INVALID_BODY = (
        "Invalid request body",
        400,
        "The body is not what the endpoint reads; `reason` says what is wrong, and where.",
    )
    INVALID_HOST = "Invalid Host header", 400, "A request has exactly one `Host` header."
    DISCONNECTED = (
        "Client disconnected",
        400,
        "The connection closed before the whole request had arrived.",
    )
    SESSION_CANNOT_PAY = (
        "Session cannot pay",
        "short_session_status",
        "The session is unknown, expired or short of budget.",
    )
    NOT_FOUND = "Not found", 404, "There is no such path."
    UNKNOWN_SESSION = "Unknown session", 404, "No session has this id."
    UNKNOWN_PAYMENT = "Unknown payment", 404, "No settlement of this payment id is stored."
    METHOD_NOT_ALLOWED = (
        "Method not allowed",
        405,
        "The path does not have this method; the header `Allow` lists those it has.",
    )
    BODY_TOO_LARGE = "Request body too large", 413, "A body has at most 1 MiB."
    INTERNAL = (
        "Internal server error",
        500,
        "The service has a defect; the request is not at fault.",
    )


def status_of(error: Refusal | RequestError, decisions: Decisions) -> int:
    """Return the HTTP status of an error under these decisions (section 7 shows none)."""
    status = error.row.status if isinstance(error, Refusal) else error.status
    return status if isinstance(status, int) else int(getattr(decisions, status))


def refusal_named(text: str) -> Refusal | None:
    """Return the refusal with this text on the wire, or None if it is not one of ours."""
    return next((refusal for refusal in Refusal if refusal.value == text), None)


def is_final(error: str, told: bool | None = None) -> bool:
    """Tell whether a refused attempt is over: it charged nothing, and it never will.

    `told` is the `final` of the answer. An answer without it is judged by its error text,
    and one whose text is not ours is not known to be final.
    """
    if told is not None:
        return told
    known = refusal_named(error)
    return known is not None and known.row.final is True
