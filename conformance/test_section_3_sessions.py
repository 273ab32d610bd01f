"""Section 3: a deposit opens one session of its own amount, and the rest is refunded once."""

import asyncio

from x402sim.payer.wallet import Wallet
from x402sim.protocol.money import to_decimal
from x402sim.spec.ground import derived, ours
from x402sim.suite.answers import OpenSession, TargetAnswer, read_402
from x402sim.suite.check import check
from x402sim.suite.control_api import eventually
from x402sim.suite.expect import expect, expect_not_served, expect_served
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Inconclusive

DURATION = 60
ENDED_S = 3960
"""After this, a session of 60 seconds or 60 minutes has expired and was swept."""
NOBODY = "0x" + "00" * 20
"""The sender of minted tokens."""


async def _spend(probe: Probe, session_ids: set[str], limit: int) -> int:
    """Request with each session until refused, `limit` times at most; return what was served."""
    served = 0
    for session_id in sorted(session_ids):
        while served < limit:
            if not (await probe.ask(session_id=session_id)).has_content:
                break
            served += 1
    return served


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
    served = await _spend(probe, session_ids, fits + 1)
    expect(f"requests served for a deposit of {max_spend}", served, fits)


@check("3/deposit-makes-session", baseline="session", needs="funds, sessions", deposits="0.01")
async def a_small_deposit_makes_no_big_session(probe: Probe) -> None:
    """A small deposit's id in a request for a large session opens the small one at most."""
    small = await probe.budget_for(1)
    challenge = read_402(await probe.ask_session(small))
    paid = await probe.pay(challenge)
    big = await probe.ask_session("50.00", payment_id=challenge.payment_id)
    right = await probe.ask_session(small, payment_id=challenge.payment_id)
    ids = _ids(paid.receipt, big, right)
    await _expect_budget(probe, ids, small, challenge.amount_base)


@check("3/deposit-makes-session", baseline="session", needs="funds, sessions", deposits="0.02")
async def one_deposit_makes_one_session(probe: Probe) -> None:
    """A deposit that is settled and claimed many times, also concurrently, counts once."""
    max_spend = await probe.budget_for(2)
    challenge, payer = read_402(await probe.ask_session(max_spend)), await probe.money.payer()
    header = probe.money.sign(challenge, payer)
    receipts = await asyncio.gather(*(probe.settle(challenge, header) for _ in range(3)))
    if all(receipt.status != 200 for receipt in receipts):
        raise Inconclusive(f"the deposit was not settled: {receipts[0].summary}")
    claims = [probe.ask_session(max_spend, payment_id=challenge.payment_id) for _ in range(5)]
    answers = [*receipts, *await asyncio.gather(*claims)]
    answers.append(await probe.settle(challenge, header))
    answers.append(await probe.ask_session(max_spend, payment_id=challenge.payment_id))
    await _expect_budget(probe, _ids(*answers), max_spend, challenge.amount_base)
    await probe.world.expect_payments(payer, challenge.amount_base)


@check("3/deposit-makes-session", baseline="session", needs="funds, sessions", pays=1)
async def a_payment_for_something_else_makes_no_session(probe: Probe) -> None:
    """The id of a paid quote opens no session."""
    paid = await probe.buy()
    answer = await probe.ask_session(
        await probe.budget_for(1), payment_id=paid.challenge.payment_id
    )
    await _grants_nothing(probe, answer)


@check("3/deposit-makes-session", baseline="session", needs="funds, sessions")
async def an_unpaid_deposit_makes_no_session(probe: Probe) -> None:
    """A session whose deposit is not settled cannot be claimed."""
    max_spend = await probe.budget_for(1)
    challenge = read_402(await probe.ask_session(max_spend))
    answer = await probe.ask_session(max_spend, payment_id=challenge.payment_id)
    await _grants_nothing(probe, answer)


async def _grants_nothing(probe: Probe, answer: TargetAnswer) -> None:
    session_id = answer.session_id
    if session_id is not None:
        expect_not_served(await probe.ask(session_id=session_id))


# --- the end of a session ----------------------------------------------------------------


async def _refunds(probe: Probe, payer: Wallet) -> list[int]:
    """Return the refunds of a payer, from the ledger."""
    moved = await probe.world.get("transfers")
    return [
        int(each["amount"])
        for each in moved
        if each["to"] == payer.address and each["from"] not in (NOBODY, payer.address)
    ]


async def _open(probe: Probe, requests: int) -> OpenSession:
    """Open a session that ends soon, with a payer of its own."""
    max_spend = await probe.budget_for(requests)
    challenge = read_402(await probe.ask_session(max_spend, DURATION))
    paid = await probe.pay(challenge)
    answer = await probe.ask_session(max_spend, DURATION, payment_id=challenge.payment_id)
    ids = _ids(paid.receipt, answer)
    if not ids:
        raise Inconclusive("no session id was given after the deposit was paid")
    return OpenSession(ids.pop(), paid, answer)


async def _expect_refunds(probe: Probe, session: OpenSession, *amounts_base: int) -> None:
    """Fail unless exactly these amounts are refunded to the payer of a session."""
    wanted = list(amounts_base)

    async def are_there() -> bool:
        return await _refunds(probe, session.paid.payer) == wanted

    await eventually(probe.clock, are_there)
    refunds = await _refunds(probe, session.paid.payer)
    deposit = session.paid.challenge.amount_base
    expect(f"refunds of a deposit of {deposit}, on the ledger", refunds, wanted)


@check(
    "3/expiry-refund", baseline="session", needs="funds, sessions, world, clock", deposits="0.06"
)
async def what_is_left_is_refunded(probe: Probe) -> None:
    """An expired session serves nothing more, and exactly the unspent amount is refunded."""
    price_base = (await probe.challenge()).amount_base
    partly, spent, untouched = [await _open(probe, requests) for requests in (3, 1, 2)]
    expect_served(await probe.ask(session_id=partly.session_id))
    await _spend(probe, {spent.session_id}, 100)
    await probe.world.advance(ENDED_S)
    expect_not_served(await probe.ask(session_id=partly.session_id))
    await _expect_refunds(probe, partly, partly.paid.challenge.amount_base - price_base)
    rest = spent.paid.challenge.amount_base % price_base
    await _expect_refunds(probe, spent, *([rest] if rest else []))
    await _expect_refunds(probe, untouched, untouched.paid.challenge.amount_base)


@check(
    "3/expiry-refund",
    ground=derived(
        "3: A session expires",
        "5: When deposited - released",
        step="It is refunded on expiration; until then its budget can be spent.",
    ),
    baseline="session",
    needs="funds, sessions, world, clock",
    deposits="0.02",
)
async def nothing_is_refunded_before_the_end(probe: Probe) -> None:
    """A session that has not expired is served, and nothing is refunded."""
    session = await _open(probe, 2)
    await probe.world.advance(DURATION // 2)
    expect_served(await probe.ask(session_id=session.session_id))
    await _expect_refunds(probe, session)


@check(
    "3/refund-once",
    document="kit",
    ground=ours(
        "The specification says nothing about failures behind the service. Whatever fails, a "
        "payer should get the rest back, and get it once.",
        "3: A session expires",
    ),
    needs="funds, sessions, world, clock",
    deposits="0.06",
)
async def a_refund_comes_once_whatever_fails(probe: Probe) -> None:
    """A refund comes once, whether its answer is lost, the service crashes, or it is refused."""
    for how, times in (("lose answer", 1), ("crash after", 1), ("refuse", 3)):
        session = await _open(probe, 2)
        fault = {"victim": "facilitator", "path": "/settle", "does": how, "times": times}
        await probe.world.fault({**fault, "contains": session.paid.payer.address})
        for _ in range(times + 1):
            await probe.world.advance(ENDED_S)
        await _expect_refunds(probe, session, session.paid.challenge.amount_base)


@check("3/refund-once", baseline="session", needs="funds, sessions, world, clock", deposits="0.02")
async def what_was_refunded_stays_over(probe: Probe) -> None:
    """Claiming a session again after its refund yields neither the session nor a second refund."""
    session = await _open(probe, 2)
    deposit = session.paid.challenge
    await probe.world.advance(ENDED_S)
    max_spend = to_decimal(deposit.amount_base, 6)
    again = await probe.ask_session(max_spend, DURATION, payment_id=deposit.payment_id)
    for session_id in {session.session_id, *_ids(again)}:
        expect_not_served(await probe.ask(session_id=session_id))
    await probe.world.advance(ENDED_S)
    await _expect_refunds(probe, session, deposit.amount_base)
