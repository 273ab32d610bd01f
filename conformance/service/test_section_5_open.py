"""Section 5, where the specification is silent: observations, which cannot fail."""

from x402sim.spec.ground import silent
from x402sim.suite.service.case import case, paid_case
from x402sim.suite.service.probe import Probe

MOST = 5
"""The most requests sent with a session for one or two."""


@paid_case(
    "5/precedence",
    title="Which proof counts when X-Payment-Id and X-Session-Id are both sent.",
    ground=silent("5: Precedence when both headers"),
    needs="funds, sessions",
    deposits="0.02",
)
async def both_proofs_at_once(probe: Probe) -> None:
    payment_id = (await probe.buy()).challenge.payment_id
    session_id = (await probe.open_session(await probe.budget_for(2))).session_id
    both = await probe.ask(payment_id=payment_id, session_id=session_id)
    wrong_session = await probe.ask(payment_id=payment_id, session_id="session_x")
    wrong_payment = await probe.ask(payment_id="pay_x", session_id=session_id)
    left = await probe.drain(session_id, MOST)
    probe.observe(
        f"both: {both.status}, a good payment id with a bad session: {wrong_session.status}, "
        f"a bad payment id with a good session: {wrong_payment.status}; "
        f"of a session for 2 requests {left} were left"
    )


@case(
    "5/short-session",
    title="The answers for an unknown session, and for one whose budget is spent.",
    ground=silent("5: Behaviour when session budget"),
    needs="funds, sessions",
    deposits="0.01",
)
async def a_session_that_cannot_pay(probe: Probe) -> None:
    session_id = (await probe.open_session(await probe.budget_for(1))).session_id
    await probe.drain(session_id, MOST)
    spent, unknown = await probe.ask(session_id=session_id), await probe.ask(session_id="session_x")
    probe.observe(f"spent: {spent.summary}; unknown: {unknown.summary}")


@case(
    "5/agents-authentication",
    title="Whether GET /api/agents needs a payment.",
    ground=silent("5: Authentication required by GET"),
    needs="agents",
)
async def who_may_see_the_agents(probe: Probe) -> None:
    answer = await probe.send("GET", probe.target.agents.path)
    probe.observe(f"without proof of payment: {answer.status}")


@case(
    "5/submitted-by-others",
    title=("What happens if an authorization was submitted by someone else before its settlement."),
    ground=silent(
        why="The specification does not say whose transaction may carry out an authorization."
    ),
    needs="world",
)
async def someone_else_submits_the_authorization(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    await probe.wallets.submit(challenge, header, payer)
    answer = await probe.settle(challenge, header)
    served = await probe.ask(payment_id=challenge.payment_id)
    probe.observe(f"settlement: {answer.summary}; the request: {served.status}")
