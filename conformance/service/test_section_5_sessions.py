"""Section 5: a session is served while its budget lasts, and debited for each served request.

Budgets are exact, in base units: 0.29 of the token pay for 29 quotes of 0.01, although
0.29 / 0.01 is less than 29 in floating point.
"""

import asyncio
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.protocol.money import to_base, to_decimal
from x402sim.spec.ground import derived, ours
from x402sim.suite.service import expect
from x402sim.suite.service.answers import OpenSession, read_402
from x402sim.suite.service.case import case, session_case, unpaid_case
from x402sim.suite.service.inputs import other_orders
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.second import second_path
from x402sim.suite.verdict import Inconclusive, NotApplicable, as_json

AT_ONCE = 20
NO_PROOF = derived(
    "5: X-Session-Id",
    "5: X-Payment-Id",
    "5: Access to protected endpoints",
    so="A proof is the id of a session in its header; anything else in it is no proof.",
)
SPENT = derived(
    "5: When deposited - released",
    "3: Each accepted request",
    "5: Access to protected endpoints",
    so="A session pays while its budget suffices; what it cannot pay for has no proof.",
)
LONG = len("session_") + 8
INVENTED = ("", "session_", "session_x", "null", "*", "%", "session_%", "' OR '1'='1", "__proto__")
PATTERNS = ("session_%", "session_*", "%", "' OR '1'='1", "session_' OR '1'='1' --")
BAD_BODIES: tuple[Any, ...] = (
    [],
    "quote",
    7,
    {"pair": 7, "side": None, "leverage": [], "sizeUsd": {}},
)


async def _open(
    probe: Probe, requests: int, payer: Wallet | None = None
) -> tuple[OpenSession, int]:
    """Open a session for this many requests; return it, and how many its deposit pays for."""
    price_base = (await probe.challenge()).amount_base
    max_spend = await probe.budget_for(requests)
    session = await probe.open_session(max_spend, payer)
    if session.paid.challenge.amount_base != to_base(max_spend, 6):
        raise Inconclusive("the deposit is not maxSpend, see 4.4/max-spend")
    return session, to_base(max_spend, 6) // price_base


async def _burst(probe: Probe, session: OpenSession, requests: int) -> int:
    asked = (probe.ask(session_id=session.session_id) for _ in range(requests))
    return sum(answer.has_content for answer in await asyncio.gather(*asked))


@case(
    "5/session-condition",
    title="A deposit for one or 29 requests pays for all of them, in headers of any case.",
    ground=derived(
        "5: X-Session-Id",
        "5: When deposited - released",
        so="The budget lasts for the requests it pays for; HTTP ignores the case of header names.",
    ),
    needs="funds, sessions",
    deposits="0.30",
)
async def all_of_the_budget_can_be_spent(probe: Probe) -> None:
    session, _ = await _open(probe, 1)  # a budget of exactly the price is enough
    expect.served(await probe.ask(session_id=session.session_id))
    session, worth = await _open(probe, 29)
    endpoint, served = probe.target.protected, 0
    for name in (probe.target.sessions.header.lower(), probe.target.sessions.header.upper()):
        sent = {name: session.session_id}
        answer = await probe.send(
            endpoint.method, endpoint.path, json=probe.usual_body, headers=sent
        )
        expect.served(answer)
        served += 1
    served += await probe.drain(session.session_id, worth - served)
    expect.equal("requests served for the whole deposit", served, worth)


@case(
    "5/session-condition",
    title="A deposit for 41 requests pays for 41, also if they are concurrent.",
    needs="world, sessions",
    decisive=False,
)
async def a_larger_budget_can_be_spent_at_once(probe: Probe) -> None:
    session, worth = await _open(probe, 41)
    served = 0
    for _ in range(worth // AT_ONCE):
        served += await _burst(probe, session, AT_ONCE)
    served += await probe.drain(session.session_id, worth - served)
    expect.equal("requests served for the whole deposit", served, worth)


@unpaid_case(
    "5/session-condition",
    title="The id of a session that does not exist grants nothing.",
    ground=NO_PROOF,
    needs="sessions",
    decisive="a session that exists",
)
async def an_invented_session_is_worth_nothing(probe: Probe) -> None:
    challenge = await probe.challenge()
    for session_id in (*INVENTED, challenge.payment_id, "session_" + "a" * 8000):
        expect.withheld(await probe.ask(session_id=session_id, may_break=True))


@session_case(
    "5/session-condition",
    title="A session id is no payment id, and a deposit's payment id no session id.",
    ground=NO_PROOF,
    deposits="0.02",
    decisive="a session that exists",
)
async def each_id_in_its_own_header(probe: Probe) -> None:
    session, _ = await _open(probe, 1)
    expect.not_served(await probe.ask(payment_id=session.session_id), is_402=True)
    expect.withheld(await probe.ask(session_id=session.paid.challenge.payment_id))
    if len(session.session_id) > LONG:  # else a part of the id may be another session's id
        expect.withheld(await probe.ask(session_id=session.session_id[:-1]))
    expect.withheld(await probe.ask(session_id=session.session_id + "A" * 8))
    for pattern in PATTERNS:  # while a session exists that a pattern could find
        expect.withheld(await probe.ask(session_id=pattern))


@session_case(
    "5/session-debit",
    title="Requesting more after the deposit is paid does not increase the budget.",
    ground=derived(
        "2.6: Remaining budget",
        "3: Each accepted request",
        so="The budget is what was deposited; only deposits raise it.",
    ),
    deposits="0.01",
)
async def a_budget_is_what_was_deposited(probe: Probe) -> None:
    _, challenge = await probe.deposit(1)
    paid, price_base = await probe.pay(challenge), (await probe.challenge()).amount_base
    more = await probe.budget_for(5)
    answer = await probe.ask_session(more, payment_id=paid.challenge.payment_id)
    session_id = paid.receipt.session_id or answer.session_id
    if session_id is not None:
        session, worth = OpenSession(session_id, paid, answer), challenge.amount_base // price_base
        await _spends_at_most(probe, session, worth)


@session_case(
    "5/session-debit",
    title="Of many concurrent requests, and of later ones, no more are served than were paid for.",
    ground=SPENT,
    deposits="0.04",
    decisive=False,
)
async def no_unit_is_spent_twice(probe: Probe) -> None:
    for requests in (1, 3):
        await _spends_at_most(probe, *await _open(probe, requests), at_once=requests + 7)


async def _spends_at_most(
    probe: Probe, session: OpenSession, worth: int, *, at_once: int = 0
) -> None:
    """Spend a session, first with concurrent requests; fail if more are served than paid for."""
    served = await _burst(probe, session, at_once)
    served += await probe.drain(session.session_id, worth + 1)
    served += await probe.drain(session.session_id, 1)
    last = probe.last_served
    shown = last.show if last else None
    expect.holds(f"at most {worth} requests served", served <= worth, f"{served} were", shown)


@session_case(
    "5/session-debit",
    title="A request that is answered with an error is not debited.",
    ground=derived(
        "3: Each accepted request",
        "5: When deposited - released",
        so="Only an accepted request that is served raises released; an error does not.",
    ),
    deposits="0.02",
)
async def a_bad_request_costs_nothing(probe: Probe) -> None:
    session, _ = await _open(probe, 2)
    for body in BAD_BODIES:
        if (await probe.ask(session_id=session.session_id, body=body)).status < 400:
            raise NotApplicable(f"the target accepts the body {as_json(body)}")
    expect.served(await probe.ask(session_id=session.session_id))


@session_case(
    "5/session-debit",
    title="A session serves as many requests as its deposit pays for, whatever is ordered.",
    ground=derived(
        "3: Each accepted request",
        "8: Quote price",
        so="What is debited is the amount required, and a quote has one price, for any order.",
    ),
    deposits="0.20",
)
async def every_order_costs_the_same(probe: Probe) -> None:
    probe.require_price()
    orders = other_orders(probe)
    session, worth = await _open(probe, len(orders) + 2)
    served = 0
    for order in orders:
        served += (await probe.ask(session_id=session.session_id, body=order)).has_content
    served += await probe.drain(session.session_id, worth + 1 - served)
    last = probe.last_served
    expect.equal("requests served in all", served, worth, last.show if last else None)


@session_case(
    "5/session-debit",
    title="A session that pays for a second path is debited by the price of that path.",
    ground=derived(
        "5: When deposited - released", so="The amount is that of the endpoint that is requested."
    ),
    deposits="0.04",
)
async def another_path_costs_its_own_price(probe: Probe) -> None:
    other, price_base = await second_path(probe), (await probe.challenge()).amount_base
    other_base = read_402(await other.ask(probe)).amount_base
    session, worth = await _open(probe, 2 + -(-other_base // price_base))
    answer = await other.ask(probe, session_id=session.session_id)
    if not 200 <= answer.status < 300:
        raise NotApplicable(f"a session does not pay for {other.path}: {answer.summary}")
    left = (session.paid.challenge.amount_base - other_base) // price_base
    served = await probe.drain(session.session_id, worth + 1)
    expect.equal(f"requests served after one for {other.path}", served, left)


@session_case(
    "5/session-debit",
    title="A request for a path that costs more than a session has left is not debited.",
    ground=derived(
        "3: Each accepted request",
        "5: When deposited - released",
        so="Only a request that is served raises released.",
    ),
    deposits="0.04",
)
async def what_it_cannot_pay_for_costs_nothing(probe: Probe) -> None:
    other, price_base = await second_path(probe), (await probe.challenge()).amount_base
    fits = (read_402(await other.ask(probe)).amount_base - 1) // price_base
    if fits == 0:
        raise NotApplicable(f"{other.path} costs no more than {probe.target.protected.path}")
    session, worth = await _open(probe, fits)
    if worth > fits:
        raise NotApplicable("the smallest deposit pays for both paths (sessions.smallest)")
    for _ in range(2):
        expect.withheld(await other.ask(probe, session_id=session.session_id))
    served = await probe.drain(session.session_id, worth + 1)
    expect.equal("requests served after what could not be paid for", served, worth)


@session_case(
    "5/session-debit",
    title="Three sessions spent in turns, two of one payer, each serve their own deposit.",
    ground=derived(
        "2.6: A session is identified",
        "2.6: Remaining budget",
        so="Each session id finds the deposited and released amounts of its own session.",
    ),
    needs="funds, sessions, world",
)
async def each_session_spends_its_own_budget(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    owners = {2: payer, 3: payer, 5: None}
    opened = [await _open(probe, requests, of) for requests, of in owners.items()]
    served = [await probe.drain(session.session_id, 1) for session, _ in opened]
    bursts = [_burst(probe, session, worth + 1) for session, worth in opened]
    for number, more in enumerate(await asyncio.gather(*bursts)):
        session, worth = opened[number]
        served[number] += more + await probe.drain(session.session_id, max(0, worth - more))
    expect.equal("requests served by each session", served, [worth for _, worth in opened])


@session_case(
    "5/session-debit",
    title="Before and after a restart, also claimed again, a deposit serves what it pays for.",
    ground=derived(
        "3: Each accepted request",
        "2.6: Remaining budget",
        "3: A session has deposited",
        so="What was released stays released, before and after a restart.",
    ),
    needs="funds, sessions, restart",
    deposits="0.02",
    decisive=False,
)
async def a_restart_gives_nothing_back(probe: Probe) -> None:
    session, worth = await _open(probe, 2)
    served = await probe.drain(session.session_id, 1)
    await probe.restart()
    served += await probe.drain(session.session_id, worth)
    deposit = session.paid.challenge
    again = await probe.ask_session(
        to_decimal(deposit.amount_base, 6), payment_id=deposit.payment_id
    )
    if again.session_id not in (None, session.session_id):
        served += await probe.drain(again.session_id, worth)
    expect.holds(f"at most {worth} requests served", served <= worth, f"{served} were")


@case(
    "5/session-survives-restart",
    title="After a restart, a session still has the budget that it had.",
    ground=ours(
        "1: Alternatively, a client funds",
        because="A payer should not lose a settled deposit when the service restarts.",
    ),
    needs="funds, sessions, restart",
    deposits="0.02",
)
async def a_session_survives_a_restart(probe: Probe) -> None:
    session, worth = await _open(probe, 2)
    expect.served(await probe.ask(session_id=session.session_id))
    await probe.restart()
    served = await probe.drain(session.session_id, worth)
    shown = probe.last_served.show if probe.last_served and served >= worth else None
    expect.equal("requests served after the restart", served, worth - 1, shown)
