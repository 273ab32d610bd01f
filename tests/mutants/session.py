"""Defects of sessions: the deposit, the budget, expiry and refund."""

from tests.mutants.budgets import sessions
from tests.mutants.change import decision, settlement_rule
from tests.mutants.middleware import (
    answers,
    let_in,
    middleware,
    replies,
    requests,
    unlocked,
)
from tests.mutants.mutant import Kind
from tests.mutants.session_defects import (
    TOKEN,
    DebitsHalf,
    DebitsTwice,
    LastUnitRefused,
    NeverDebits,
    OwesEachPayerOnce,
    OwesNothing,
    OwesTheDeposit,
    OwesTheMerchant,
    RefundsTwice,
    RefundsWithANewNonce,
    any_payment,
    back_to_life,
    budget_of_the_body,
    debited_at_once,
    deposit,
    has_expired,
    one_more,
    sess,
    two_digits,
    without_deposit,
    without_end,
)
from tests.mutants.wrapper import collaborator
from x402sim.service.issue import QUOTE, SESSIONS

session = Kind("session")

ROWS = (
    session(
        "budget-through-a-float",
        "4.4/max-spend",
        "maxSpend is multiplied as a float and cut: 8.20 loses a base unit.",
        deposit(lambda amount: int(amount / TOKEN * TOKEN)),
    ),
    session(
        "cents-through-a-float",
        "4.4/max-spend",
        "maxSpend is brought to cents as a float and cut: 0.29 loses a cent.",
        deposit(lambda amount: int(amount / TOKEN * 100) * 10**4),
    ),
    session(
        "third-digit-is-dropped",
        "kit/4.4/max-spend",
        "A maxSpend of 1.009 is taken for 1.00.",
        requests(SESSIONS, two_digits),
    ),
    session(
        "deposit-of-one-token",
        "4.4/max-spend",
        "The deposit is 1.00, whatever maxSpend says.",
        deposit(lambda amount: TOKEN),
    ),
    session(
        "deposit-may-be-less",
        "2.1/amount",
        "The amount of a deposit is not compared: one base unit pays for any budget.",
        settlement_rule(
            "2.1/amount",
            lambda case: (
                case.issued.resource == SESSIONS
                or case.requirements.max_amount_required == case.issued.max_amount_required
            ),
        ),
    ),
    session(
        "message-of-a-quote",
        "2.2/body",
        "The message of a deposit's 402 states the price of a quote.",
        answers(
            402, SESSIONS, lambda it: it.update(message="Payment of 10000 base units is required")
        ),
    ),
    session(
        "no-deposit",
        "4.4/deposit-402",
        "A session is given without a deposit.",
        replies(SESSIONS, without_deposit),
    ),
    session(
        "budget-by-the-repeated-body",
        "5/session-debit",
        "The budget is the maxSpend of the repeated request, not what was deposited.",
        sessions(budget_of_the_body),
    ),
    session(
        "a-session-each-time",
        "3/deposit-makes-session",
        "Every repetition of the paid request opens one more session from the same deposit.",
        sessions(one_more),
    ),
    session(
        "any-payment-funds-a-session",
        "3/deposit-makes-session",
        "The payment of a quote opens a session with the budget the body asks for.",
        sessions(any_payment),
    ),
    session(
        "ids-are-called-sess",
        "2.6/id-prefix",
        "Session ids begin with sess_.",
        requests(QUOTE, sess(lambda it: it.replace("sess_", "session_", 1))),
        answers(
            None,
            SESSIONS,
            lambda it: it.update(
                {k: v.replace("session_", "sess_", 1) for k, v in it.items() if k == "sessionId"}
            ),
        ),
    ),
    session(
        "remaining-is-the-deposit",
        "2.6/remaining",
        "The remaining budget that is shown never shrinks.",
        answers(
            None,
            "/api/sessions",
            lambda it: it.update(remaining=it["deposited"]) if "remaining" in it else None,
        ),
    ),
    session(
        "last-unit-is-refused",
        "5/session-condition",
        "A session needs more budget than the request costs.",
        collaborator(sessions=LastUnitRefused),
    ),
    session(
        "budget-without-end",
        "5/session-debit",
        "A session is served however little is left of its budget.",
        unlocked,
        middleware(without_end, QUOTE),
    ),
    session(
        "never-debited",
        "5/session-debit",
        "A served request does not raise released.",
        collaborator(sessions=NeverDebits),
    ),
    session(
        "debited-by-half",
        "5/session-debit",
        "A served request raises released by half its price.",
        collaborator(sessions=DebitsHalf),
    ),
    session(
        "debited-twice",
        "5/session-condition",
        "A served request is debited twice.",
        collaborator(sessions=DebitsTwice),
    ),
    session(
        "debited-before-the-body-is-read",
        "5/session-debit",
        "A session is debited for a request whose body turns out to be invalid.",
        middleware(debited_at_once, QUOTE),
    ),
    session(
        "served-after-expiry",
        "3/expiry-refund",
        "A session is spent on after its time has passed.",
        let_in(QUOTE, has_expired),
        needs="clock",
    ),
    session(
        "expires-at-once",
        "3/expiry-refund",
        "The duration is taken for milliseconds, so a session ends before it is spent.",
        decision(duration_unit_s=0.001),
        needs="clock",
        broad="no session lives long enough for the checks of sessions",
    ),
    session(
        "comes-back-to-life",
        "3/refund-once",
        "Repeating the paid request renews an expired session, although it was refunded.",
        sessions(back_to_life),
        needs="clock",
    ),
    session(
        "never-expires",
        "3/expiry-refund",
        "The duration is taken a thousand times too long.",
        decision(duration_unit_s=1000),
        needs="clock",
    ),
    session(
        "never-refunded",
        "3/expiry-refund",
        "An expired session's balance stays with the merchant.",
        collaborator(sessions=OwesNothing),
        needs="clock world",
    ),
    session(
        "whole-deposit-refunded",
        "3/expiry-refund",
        "What was spent is refunded too.",
        collaborator(sessions=OwesTheDeposit),
        needs="clock world",
    ),
    session(
        "one-refund-for-each-payer",
        "3/expiry-refund",
        "Refunds are kept by the payer's address: of two sessions of a payer, one is refunded.",
        collaborator(sessions=OwesEachPayerOnce),
        needs="clock world",
    ),
    session(
        "refunded-to-the-merchant",
        "3/expiry-refund",
        "The refund goes to the merchant's own wallet.",
        collaborator(sessions=OwesTheMerchant),
        needs="clock world",
    ),
    session(
        "refunded-twice",
        "3/refund-once",
        "A refund is sent twice, under two nonces, to be sure.",
        collaborator(facilitator=RefundsTwice),
        needs="clock world",
    ),
    session(
        "refunded-again-after-a-lost-answer",
        "3/refund-once",
        "A refund whose answer is lost is signed anew, with another nonce, and paid twice.",
        collaborator(facilitator=RefundsWithANewNonce),
        needs="clock world",
    ),
)
