"""Defects of sessions: the deposit, the budget, expiry and refund."""

from tests.mutants.change import answers, edit, schema, settlement_rule
from tests.mutants.mutant import Kind
from x402sim.service import app, gate, sessions
from x402sim.service import grant as granting
from x402sim.service.issue import SESSIONS
from x402sim.service.state import Service
from x402sim.service.store import Session, Store

session = Kind("session")


def one_more(service: Service, payment_id: str, deposited: int) -> Session:
    """Open one more session for a payment, whatever it paid for."""
    session_id = f"session_{service.store.counts()['sessions']}_{payment_id}"
    service.store._db.execute(
        "INSERT INTO sessions(session_id, payment_id, payer, deposited, created_ms, expires_ms) "
        "SELECT ?, payment_id, from_address, ?, timestamp, timestamp + 3600000 FROM payments "
        "WHERE payment_id = ?",
        (session_id, deposited, payment_id),
    )
    opened = service.store.session(session_id)
    assert opened
    return opened


ROWS = (
    session(
        "budget-through-a-float",
        "4.4/max-spend",
        "maxSpend is multiplied as a float and cut: 8.20 loses a base unit.",
        edit(
            sessions.offer,
            "to_base(request.max_spend, decimals, fraction_digits=2)",
            "int(float(request.max_spend) * 10**decimals)",
        ),
    ),
    session(
        "cents-through-a-float",
        "4.4/max-spend",
        "maxSpend is brought to cents as a float and cut: 0.29 loses a cent.",
        edit(
            sessions.offer,
            "to_base(request.max_spend, decimals, fraction_digits=2)",
            "int(float(request.max_spend) * 100) * 10 ** (decimals - 2)",
        ),
    ),
    session(
        "third-digit-is-dropped",
        "4.4/max-spend",
        "A maxSpend of 1.009 is taken for 1.00.",
        edit(
            sessions.offer,
            "to_base(request.max_spend, decimals, fraction_digits=2)",
            "to_base(request.max_spend[: request.max_spend.find('.') + 3], decimals)",
        ),
    ),
    session(
        "deposit-of-one-token",
        "4.4/max-spend",
        "The deposit is 1.00, whatever maxSpend says.",
        edit(sessions.offer, "issue(SESSIONS, deposit_base,", "issue(SESSIONS, 1_000_000,"),
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
        edit(
            app.create_session,
            "web.answer(sessions.offer(service, web.parse(body, SessionRequest)), 402)",
            'web.answer({"sessionId": "session_" + "0" * 40}, 201)',
        ),
    ),
    session(
        "budget-by-the-repeated-body",
        "5/session-debit",
        "The budget is the maxSpend of the repeated request, not what was deposited.",
        edit(
            app.create_session,
            "        if session is not None:\n",
            "        if session is not None:\n"
            "            asked = sessions.offer(service, web.parse(body, SessionRequest))\n"
            "            service.store._db.execute(\n"
            "                'UPDATE sessions SET deposited = ? WHERE payment_id = ?',\n"
            "                (int(asked.payment_requirements.max_amount_required), payment_id),\n"
            "            )\n"
            "            session = service.store.session_paid_by(payment_id)\n",
        ),
    ),
    session(
        "a-session-each-time",
        "3/deposit-makes-session",
        "Every repetition of the paid request opens one more session from the same deposit.",
        edit(
            app.create_session,
            "        if session is not None:\n",
            "        if session is not None:\n"
            "            from tests.mutants.session import one_more\n"
            "            session = one_more(service, payment_id, session.deposited)\n",
        ),
        schema("payment_id TEXT NOT NULL UNIQUE REFERENCES", "payment_id TEXT NOT NULL REFERENCES"),
    ),
    session(
        "any-payment-funds-a-session",
        "3/deposit-makes-session",
        "The payment of a quote opens a session with the budget the body asks for.",
        edit(
            app.create_session,
            "gate.is_entitled(service, payment_id, SESSIONS)",
            "service.store.payment(payment_id)",
            "        if session is not None:\n",
            "        if session is None:\n"
            "            asked = sessions.offer(service, web.parse(body, SessionRequest))\n"
            "            deposited = int(asked.payment_requirements.max_amount_required)\n"
            "            from tests.mutants.session import one_more\n"
            "            session = one_more(service, payment_id, deposited)\n"
            "        if session is not None:\n",
        ),
    ),
    session(
        "ids-are-called-sess",
        "2.6/id-prefix",
        "Session ids begin with sess_.",
        edit(granting.session_id, '"session_" +', '"sess_" +'),
    ),
    session(
        "remaining-is-the-deposit",
        "2.6/remaining",
        "The remaining budget that is shown never shrinks.",
        edit(sessions.view, "remaining=str(session.remaining)", "remaining=str(session.deposited)"),
    ),
    session(
        "last-unit-is-refused",
        "5/session-condition",
        "A session needs more budget than the request costs.",
        edit(gate.can_spend, "remaining >= amount", "remaining > amount"),
    ),
    session(
        "budget-without-end",
        "5/session-debit",
        "A session is served however little is left of its budget.",
        edit(gate.can_spend, "session.remaining >= amount_base", "True"),
        edit(Store.debit, "deposited - released >= ?", "? > 0"),
        schema(" CHECK (released BETWEEN 0 AND deposited)", ""),
    ),
    session(
        "never-debited",
        "5/session-debit",
        "A served request does not raise released.",
        edit(Store.debit, "released = released + ?", "released = released + 0 * ?"),
    ),
    session(
        "debited-by-half",
        "5/session-debit",
        "A served request raises released by half its price.",
        edit(Store.debit, "released = released + ?", "released = released + ? / 2"),
    ),
    session(
        "debited-twice",
        "5/session-condition",
        "A served request is debited twice.",
        edit(
            app.perp_quote,
            "if not gate.spend(service, granted):",
            "if not gate.spend(service, granted) or not gate.spend(service, granted):",
        ),
    ),
    session(
        "debited-before-the-body-is-read",
        "kit/5/debit-only-when-served",
        "A session is debited for a request whose body turns out to be invalid.",
        edit(
            app.perp_quote,
            "    order: QuoteRequest",
            "    if not gate.spend(service, granted):\n"
            "        return payment_required(service, request, QUOTE, price)\n"
            "    order: QuoteRequest",
            "    if not gate.spend(service, granted):\n"
            "        return payment_required(service, request, QUOTE, price)\n"
            "    return content",
            "    return content",
        ),
    ),
    session(
        "served-after-expiry",
        "3/expiry-refund",
        "A session is spent on after its time has passed.",
        edit(
            gate.can_spend,
            'and session.status == "active"\n        and service.clock.now_ms() < session.expires_ms',
            "",
        ),
        edit(Store.debit, "AND status = 'active' AND expires_ms > ?", "AND ? > 0"),
        needs="clock",
    ),
    session(
        "expires-at-once",
        "3/expiry-refund",
        "The duration is taken for milliseconds, so a session ends before it is spent.",
        edit(granting.grant, "stored.duration * unit_ms", "stored.duration"),
        needs="clock",
        broad="no session lives long enough for the checks of sessions",
    ),
    session(
        "comes-back-to-life",
        "3/refund-once",
        "Repeating the paid request renews an expired session, although it was refunded.",
        edit(
            app.create_session,
            "        if session is not None:\n",
            "        if session is not None and session.status == 'expired':\n"
            "            sql = \"UPDATE sessions SET status = 'active', expires_ms = ? WHERE payment_id = ?\"\n"
            "            in_an_hour_ms = service.clock.now_ms() + 3600000\n"
            "            service.store._db.execute(sql, (in_an_hour_ms, payment_id))\n"
            "            session = service.store.session_paid_by(payment_id)\n"
            "        if session is not None:\n",
        ),
        needs="clock",
    ),
    session(
        "never-expires",
        "3/expiry-refund",
        "The duration is taken a thousand times too long.",
        edit(granting.grant, "stored.duration * unit_ms", "stored.duration * unit_ms * 1000"),
        needs="clock",
    ),
    session(
        "never-refunded",
        "3/expiry-refund",
        "An expired session's balance stays with the merchant.",
        edit(sessions.expire, "service.store.refunds_due(), 0", "[], 0"),
        needs="clock world",
    ),
    session(
        "whole-deposit-refunded",
        "3/expiry-refund",
        "What was spent is refunded too.",
        edit(Store.expire, "payer, deposited - released, ?", "payer, deposited, ?"),
        needs="clock world",
    ),
    session(
        "refunded-to-the-merchant",
        "3/expiry-refund",
        "The refund goes to the merchant's own wallet.",
        edit(
            sessions._transfer,
            "to=parse_address(refund.to_address)",
            "to=settings.wallet",
            "pay_to=refund.to_address",
            "pay_to=checksum(settings.wallet)",
        ),
        needs="clock world",
    ),
    session(
        "refunded-twice",
        "3/refund-once",
        "A refund is sent twice, under two nonces, to be sure.",
        edit(
            sessions.pay_back,
            "    except (Unavailable, OutcomeUnknown)",
            "        if not state.use:\n"
            "            await _transfer(service, refund, keccak256(nonce))\n"
            "    except (Unavailable, OutcomeUnknown)",
        ),
        needs="clock world",
    ),
    session(
        "refunded-again-after-a-lost-answer",
        "3/refund-once",
        "A refund whose answer is lost is signed anew, with another nonce, and paid twice.",
        edit(
            sessions.pay_back,
            "refund_nonce(refund.session_id)",
            "keccak256(refund.session_id.encode() + str(service.clock.now()).encode())",
        ),
        needs="clock world",
    ),
)
