"""Section 3: a deposit opens one session, of the deposit's amount."""

import asyncio

from x402sim.suite.service import expect
from x402sim.suite.service.answers import TargetAnswer
from x402sim.suite.service.case import session_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive


def _ids(*answers: TargetAnswer) -> set[str]:
    found = (answer.session_id for answer in answers)
    return {session_id for session_id in found if session_id}


async def _expect_budget(
    probe: Probe, session_ids: set[str], max_spend: str, deposit_base: int
) -> None:
    """Fail if the sessions together serve more than one deposit pays for."""
    if not session_ids:
        raise Inconclusive(f"no session id was given for a settled deposit of {max_spend}")
    fits = deposit_base // (await probe.challenge()).amount_base
    served = 0
    for session_id in sorted(session_ids):
        served += await probe.drain(session_id, fits + 1 - served)
    last = probe.last_served if served > fits else None
    what = f"requests served for a deposit of {max_spend}"
    expect.equal(what, served, fits, last.show if last else None)


@session_case(
    "3/deposit-makes-session",
    title="A small deposit's id in a request for a large session opens the small one at most.",
    deposits="0.01",
    decisive="one session of its amount",
)
async def a_small_deposit_makes_no_big_session(probe: Probe) -> None:
    small, challenge = await probe.deposit(1)
    paid = await probe.pay(challenge)
    big = await probe.ask_session("50.00", payment_id=challenge.payment_id)
    right = await probe.ask_session(small, payment_id=challenge.payment_id)
    ids = _ids(paid.receipt, big, right)
    await _expect_budget(probe, ids, small, challenge.amount_base)


@session_case(
    "3/deposit-makes-session",
    title="A deposit that is settled and claimed many times, also concurrently, counts once.",
    deposits="0.02",
    decisive="one session of its amount",
)
async def one_deposit_makes_one_session(probe: Probe) -> None:
    (max_spend, challenge), payer = await probe.deposit(2), await probe.wallets.payer()
    header = probe.wallets.sign(challenge, payer)
    receipts = await asyncio.gather(*(probe.settle(challenge, header) for _ in range(3)))
    if not any(receipt.may_be_receipt for receipt in receipts):
        raise Inconclusive(f"the deposit was not settled: {receipts[0].summary}")
    claims = [probe.ask_session(max_spend, payment_id=challenge.payment_id) for _ in range(5)]
    answers = [*receipts, *await asyncio.gather(*claims)]
    answers.append(await probe.settle(challenge, header))
    answers.append(await probe.ask_session(max_spend, payment_id=challenge.payment_id))
    await _expect_budget(probe, _ids(*answers), max_spend, challenge.amount_base)
    await probe.world.expect_payments(payer, challenge.amount_base)


@session_case(
    "3/deposit-makes-session",
    title="Neither the id of a paid quote nor that of an unpaid deposit opens a session.",
    pays=1,
)
async def a_payment_for_something_else_makes_no_session(probe: Probe) -> None:
    paid, (max_spend, unpaid) = await probe.buy(), await probe.deposit(1)
    answers = [
        await probe.ask_session(max_spend, payment_id=each.payment_id)
        for each in (paid.challenge, unpaid)
    ]
    await probe.expect_no_session(*answers, paid.receipt)
