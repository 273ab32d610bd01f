"""Where the specification is silent, this file decides.

Each field of `Decisions` is one question the specification leaves open: its
default is our choice, and its metadata says what was asked, what else could have
been chosen and why we chose so. A service is built from one frozen `Decisions`
object, so an experiment can run the other choice: `Decisions(payment_id_first=False)`.
`FIXED`, in `fixed_decisions`, holds the choices that have no second, equally good value, and
`dialect_decisions` those about the words of other systems.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from x402sim.spec.decision import Decision
from x402sim.spec.dialect_decisions import DIALECTS
from x402sim.spec.fixed_decisions import FIXED


def _decide(
    default: Any, other: Any, *, slug: str, asks: str, choice: str, alternatives: str, reason: str
) -> Any:
    about = {
        "id": slug,
        "question": asks,
        "choice": choice,
        "alternatives": alternatives,
        "reason": reason,
        "alternative": other,
    }
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The switchable choices; every field is one row of the decisions table."""

    gate_before_body: bool = _decide(
        True,
        False,
        slug="4.2/gate-before-body",
        asks="Is the payment gate asked before the body is validated?",
        choice="Yes: unpaid with a bad body is 402; paid with a bad body is 400, nothing debited",
        alternatives="Validate the body first: a bad body is 400 whether paid or not",
        reason="An unpaid request learns the price, not the schema; a typing error costs nothing",
    )
    sides: tuple[str, str] = _decide(
        ("long", "short"),
        ("buy", "sell"),
        slug="4.2/sides",
        asks="Which values may `side` have?",
        choice="`long` and `short`",
        alternatives="`buy` and `sell`",
        reason="The words of perpetual futures, and the sign of the liquidation price",
    )
    payment_id_first: bool = _decide(
        True,
        False,
        slug="5/precedence",
        asks="Which proof counts when X-Payment-Id and X-Session-Id are both sent?",
        choice="X-Payment-Id; the session is debited only if the payment id does not grant",
        alternatives="X-Session-Id first",
        reason="A settled payment costs nothing more, so this order spends least",
    )
    short_session_status: int = _decide(
        402,
        403,
        slug="5/short-session",
        asks="What answers a session whose budget is insufficient?",
        choice="The 402 of section 2.2",
        alternatives="403 with an error text",
        reason="The payer can continue at once by paying per request",
    )
    duration_unit_s: int = _decide(
        1,
        60,
        slug="4.4/duration-unit",
        asks="What is the unit of `duration`?",
        choice="Seconds",
        alternatives="Minutes",
        reason="Every other duration of the specification is in seconds",
    )
    session_created_status: int = _decide(
        201,
        200,
        slug="4.4/created",
        asks="What does a session request answer once its deposit has settled?",
        choice="201 with `{sessionId, deposited, released, remaining, expiresAt, status}`; "
        "repeating returns the same session",
        alternatives="200 with the same body",
        reason="A resource was created; the deposit's payment id names it, so a repeat is harmless",
    )
    insufficient_balance_status: int = _decide(
        402,
        400,
        slug="7/insufficient-balance-status",
        asks="HTTP status of `Insufficient USDC balance`?",
        choice="402",
        alternatives="400",
        reason="Payment is still required; the payer can fund the wallet and try again",
    )
    invalid_signature_status: int = _decide(
        400,
        422,
        slug="7/invalid-signature-status",
        asks="HTTP status of `Invalid signature`?",
        choice="400",
        alternatives="422",
        reason="The request itself is wrong; the payer must build a new one",
    )
    authorization_expired_status: int = _decide(
        400,
        402,
        slug="7/authorization-expired-status",
        asks="HTTP status of `Authorization expired`?",
        choice="400",
        alternatives="402",
        reason="The request itself is out of date; the payer must build a new one",
    )
    nonce_used_status: int = _decide(
        409,
        400,
        slug="7/nonce-already-used-status",
        asks="HTTP status of `Nonce already used`?",
        choice="409",
        alternatives="400",
        reason="The request conflicts with what has already happened on chain",
    )
    already_settled_status: int = _decide(
        409,
        400,
        slug="7/payment-already-settled-status",
        asks="HTTP status of `Payment already settled`?",
        choice="409",
        alternatives="400",
        reason="The request conflicts with the stored payment record",
    )
    requirements_mismatch_status: int = _decide(
        400,
        422,
        slug="4.1/requirements-mismatch",
        asks="What answers requirements that were not issued for this payment id?",
        choice="400 `Payment requirements do not match`, `reason` naming the field where it can",
        alternatives="422 with the same body",
        reason="The five texts of section 7 blame the authorization, which may be valid",
    )
    facilitator_unreachable_status: int = _decide(
        502,
        503,
        slug="7/facilitator-unreachable",
        asks="What answers when the facilitator cannot be reached, or its answer makes no sense?",
        choice="502 `Facilitator unreachable`; `final` says whether money may have moved",
        alternatives="503",
        reason="The fault is behind this server, and the payer must not sign a second time",
    )
    settlement_pending_status: int = _decide(
        409,
        425,
        slug="4.1/settlement-pending",
        asks="What answers while the outcome of an earlier settlement of this id is unknown?",
        choice="409 `Settlement pending`; the same header may be sent again",
        alternatives="425",
        reason="A second authorization could pay twice; the first is resolved first",
    )
    authorization_once: bool = _decide(
        True,
        False,
        slug="5/authorization-once",
        asks="Is an authorization in X-PAYMENT or PAYMENT-SIGNATURE served again, once it was?",
        choice="No: 402, and nothing is charged. The first answer names its payment id in "
        "X-Payment-Id, which is served as section 5 says. An answer counts once it was written to "
        "a client that was still connected; until then, and after a kill before that was stored, "
        "the same header is served",
        alternatives="Yes, for the same resource: in experiments only, as the suite judges that to "
        "be a replay (5/nonce-once)",
        reason="What is on the chain, anybody can read and send; a payment id only its payer knows",
    )
    agents_free: bool = _decide(
        True,
        False,
        slug="4.3/agents-free",
        asks="Does GET /api/agents need a payment?",
        choice="No",
        alternatives="Yes, at the quote's price",
        reason="Buyers must be able to see what is for sale",
    )


def decisions() -> Iterator[Decision]:
    """Yield every decision, the switchable ones first."""
    for each in fields(Decisions):
        yield Decision(field=each.name, default=each.default, **each.metadata)
    yield from (*FIXED, *DIALECTS)


def alternatives() -> Decisions:
    """Return the object in which every switch stands on its alternative."""
    return Decisions(**{each.name: each.metadata["alternative"] for each in fields(Decisions)})
