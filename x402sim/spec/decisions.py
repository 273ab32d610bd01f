"""Where the specification is silent, this file decides.

Each field of `Decisions` is one question the specification leaves open: its
default is our choice, and its metadata says what was asked, what else could have
been chosen and why we chose so. A service is built from one frozen `Decisions`
object, so an experiment can run the other choice: `Decisions(payment_id_first=False)`.
`FIXED` holds the choices that have no second, equally good value to switch to, and
`dialect_decisions` those about the words of other systems.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from x402sim.spec.decision import Decision
from x402sim.spec.dialect_decisions import DIALECTS


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
    agents_free: bool = _decide(
        True,
        False,
        slug="4.3/agents-free",
        asks="Does GET /api/agents need a payment?",
        choice="No",
        alternatives="Yes, at the quote's price",
        reason="Buyers must be able to see what is for sale",
    )


FIXED: tuple[Decision, ...] = (
    Decision(
        "4.1/not-yet-valid",
        "Which text answers an authorization whose validAfter has not passed?",
        "`Invalid signature` with `reason` `Authorization not yet valid`",
        "A sixth text; `Authorization expired`",
        "It is one of the five texts, and its resolution (generate a new header) is the right one",
    ),
    Decision(
        "4.1/expired-requirements",
        "What answers a settlement that comes after maxTimeoutSeconds?",
        "`Authorization expired`, with a `reason` that names the requirements",
        "A text of its own",
        "The remedy is the same (start again), and it is one of the five texts",
    ),
    Decision(
        "4.1/settlement-failed",
        "What answers a transfer that was mined but reverted, or was refused for another reason?",
        "502 `Settlement failed` with the facilitator's `reason`; its authorization is still "
        "valid, so the payment stays `pending` until it is used or can no longer be",
        "`Invalid signature`",
        "None of the five causes is true of it (a paused token, a blacklisted payer)",
    ),
    Decision(
        "4.4/bad-session-body",
        "Does an invalid session request answer 402 or 400?",
        "400: the body sets the price, so it is validated before the payment gate",
        "402 for some default price",
        "There is no price to ask for",
    ),
    Decision(
        "4.4/max-spend",
        "How exact is `maxSpend`?",
        "Digits, a point, exactly two fraction digits; converted without floats; above zero",
        "Any decimal",
        "The form the specification shows, read strictly, so that no cent is ever rounded",
    ),
    Decision(
        "4.4/deposit-resource",
        "Which resource does a deposit's 402 name?",
        "`/api/sessions/create`; amount and duration are bound into the payment id",
        "A path with the session's id",
        "The path of the protected endpoint, as 2.1 says; the repeated body can change nothing",
    ),
    Decision(
        "4.4/deposit-payee",
        "Who receives a deposit?",
        "The server wallet, also where another merchant address is set",
        "The merchant address",
        "Whoever holds the deposit must be able to refund it",
    ),
    Decision(
        "2.6/session-start",
        "When does a session begin?",
        "When its deposit settles, in the same database transaction",
        "When the request is repeated",
        "A payer who never comes back is still refunded at expiry",
    ),
    Decision(
        "3/refund",
        "How is the unspent balance refunded?",
        "The server wallet signs an EIP-3009 transfer whose nonce is derived from the session id",
        "An ordinary transfer",
        "The token itself then refuses a second refund, even after a crash",
    ),
    Decision(
        "3/statuses",
        "Which statuses exist besides `settled`?",
        "Payments `pending`, `settled`, `failed`; sessions `active`, `expired`, `refunded`",
        "More steps",
        "They differ in what is allowed: to grant access, to debit, to refund",
    ),
    Decision(
        "3/indexed-status",
        "Which status does the indexer write?",
        "It leaves a successful record `settled` and marks a reverted one `failed`",
        "`confirmed`",
        "Any other value would end the entitlement, whose condition is `settled`",
    ),
    Decision(
        "3/reverted-payment",
        "What becomes of a payment whose transaction turns out to have reverted?",
        "It is `failed`, grants no more, and a session that it paid for ends without refund",
        "Access once granted stays",
        "Granted only if money moved",
    ),
    Decision(
        "8/final-depth",
        "When is a payment or a refund looked at for the last time?",
        "When its block has 12 blocks on top (the setting `final_depth`); until then each run of "
        "the indexer looks again, after the batch of section 8, and follows a reorganisation",
        "Once it has a block number",
        "A reorganisation can undo a transfer that was in a block",
    ),
    Decision(
        "4.1/submitted-by-others",
        "Does a payer get access if a third party submitted the authorization?",
        "Yes, if the chain shows it as unused when it is presented here. One that was used before "
        "is refused: it may have paid at another service of the same merchant. Two services that "
        "are presented one authorization before its transfer is in a block cannot tell: services "
        "with one merchant address need one database",
        "Only if this service's facilitator submitted it",
        "The merchant has the money, and the payer must not lose it",
    ),
    Decision(
        "4.1/silent-node",
        "What becomes of a payment while the chain's node does not answer?",
        "502 and `final: false`, and nothing is sent to the facilitator: without the node nobody "
        "knows whether the authorization was used before. Sent again later, it is settled",
        "It is settled, and looked up afterwards",
        "If the answer of the facilitator were lost too, the service could not tell who was paid",
    ),
    Decision(
        "4.1/claim-kept",
        "What becomes of a header that was refused but may still be used?",
        "Its claim stays, and the answer says `final: false`, until a block shows that it was used "
        "or can never be. Sent again, it is settled. Another header for the id is accepted, 8 at "
        "most, unless the facilitator may have sent the first",
        "It is forgotten",
        "Anybody who has seen the authorization can submit it, and the payer must not pay twice",
    ),
    Decision(
        "2.4/timestamp",
        "In which form are times stored?",
        "Integers: epoch milliseconds, as in the receipt",
        "ISO 8601 text",
        "One unit on the wire and in the store",
    ),
    Decision(
        "2.7/agent",
        "Which fields does an agent have?",
        "id, name, description, resource, price, payTo, reputation",
        "Anything",
        "What a buyer needs to choose and to pay",
    ),
    Decision(
        "4.2/quote-model",
        "Where do quotes come from?",
        "A synthetic market: a fixed function of the pair, the same for every request",
        "A live price feed",
        "Reproducible, offline, and never mistaken for advice",
    ),
    Decision(
        "6/reputation",
        "What is an agent's reputation?",
        "The number of settled payments for its resource that the indexer has found in a block",
        "A score",
        "It can be recomputed from the records, so it can be checked",
    ),
    Decision(
        "7/error-body",
        "Which shape do errors other than 402 have?",
        '`{"error": text}`, with a `reason` where there are details',
        "RFC 9457 problem details",
        "The shape of the 402's own error field",
    ),
    Decision(
        "7/final",
        "How does a payer learn whether a refused payment may still be made?",
        "By `final` in every settlement error: `true` if this attempt charged nothing and "
        "never will, `false` if it may still be paid",
        "By the words of `reason`",
        "A program reads a field; words change",
    ),
    Decision(
        "2.8/mainnet-domain",
        "Which EIP-712 domain version does the mainnet token use?",
        "2, as in the TypeScript client library's fix of January 2026",
        "1, as in the documentation's table",
        "The fix is the newest source; the token's `version()` decides on a real chain",
    ),
    Decision(
        "4.1/what-verify-checks",
        "Does the facilitator's verify check the window, the nonce or the balance?",
        "No: scheme, network, asset, recipient, amount and signature; settle finds the rest",
        "A simulated call",
        "Its documentation lists no such reason for verify, and shows them as settle failures",
    ),
    Decision(
        "8/rate-limits",
        "Are there rate limits?",
        "None, neither in the service nor in the mock facilitator",
        "The public facilitator's 10 verifications and 5 settlements a minute",
        "A local mock that throttles its only user tests nothing",
    ),
)


def decisions() -> Iterator[Decision]:
    """Yield every decision, the switchable ones first."""
    for each in fields(Decisions):
        yield Decision(field=each.name, default=each.default, **each.metadata)
    yield from (*FIXED, *DIALECTS)


def alternatives() -> Decisions:
    """Return the object in which every switch stands on its alternative."""
    return Decisions(**{each.name: each.metadata["alternative"] for each in fields(Decisions)})
