"""Section 3: a session expires, and then what is left of its deposit is refunded, once.

The specification shows neither the unit of a duration nor how soon a refund comes. The target
file can say both; otherwise the suite waits for a while, and does not judge what may be later.
"""

from x402sim.protocol.money import to_decimal
from x402sim.spec.ground import derived, ours
from x402sim.suite.answers import OpenSession
from x402sim.suite.check import check
from x402sim.suite.expect import expect, expect_not_served, expect_served
from x402sim.suite.probe import Probe
from x402sim.suite.setting import Setting
from x402sim.suite.verdict import Skipped

DURATION = 60
ENDED_S = 3960
"""After this, a session of 60 seconds or 60 minutes has expired and was swept."""
EARLY_S = 5
"""Within this, a session of a usual duration does not end."""
GRACE_S = 2
A_WHILE_S, LONG_S = 15, 300
"""How long a refund is waited for, at once and in a patient run."""
IN_ALL_S = 340
"""How long a patient run waits for end and refund."""


def _units_s(setting: Setting) -> tuple[int, ...]:
    """Return what a unit of duration may be, in seconds: the known one, or those to try."""
    known_s = setting.target.sessions.duration_unit_s
    return (known_s,) if known_s else (1, 60) if setting.patient else (1,)


def _end_s(setting: Setting) -> float:
    """Return how long a session lasts that ends soon, at most."""
    if setting.advance is not None:
        return ENDED_S
    return setting.target.sessions.shortest * _units_s(setting)[-1] + GRACE_S


def _refunded_s(setting: Setting) -> float:
    """Return how long the refund of a session that ends soon takes, at most."""
    within_s = setting.target.sessions.refund_within_s
    if setting.patient and not within_s:
        return IN_ALL_S
    return _end_s(setting) + (within_s or A_WHILE_S)


def _early_s(_: Setting) -> float:
    return EARLY_S


async def _open(probe: Probe, requests: int) -> OpenSession:
    """Open a session that ends soon, with a payer of its own."""
    max_spend, soon = await probe.budget_for(requests), _soon(probe)
    offered = await probe.ask_session(max_spend, soon)
    if 400 <= offered.status < 500 and offered.status != 402:
        raise Skipped(f"no session of duration {soon}, see sessions.shortest: {offered.summary}")
    return await probe.open_session(max_spend, duration=soon)


def _soon(probe: Probe) -> int:
    """Return a duration that ends soon."""
    return probe.target.sessions.shortest if probe.setting.advance is None else DURATION


async def _spend(probe: Probe, session: OpenSession, requests: int) -> None:
    """Spend a session that ends soon; raises `Skipped` if it has ended already."""
    for _ in range(requests):
        answer = await probe.ask(session_id=session.session_id)
        if not answer.has_content and probe.setting.advance is None:
            raise Skipped(f"its session was over too soon, see sessions.shortest: {answer.summary}")
        expect_served(answer)


async def _wait_for_the_end(probe: Probe, session: OpenSession) -> None:
    """Fail if a session is served after its end; raises `Skipped` if that may be later.

    Each look at the session costs one request, if it is still served.
    """
    begun_s = probe.clock.now()
    ends_s = [probe.target.sessions.shortest * unit_s for unit_s in _units_s(probe.setting)]
    if probe.setting.advance is not None:
        ends_s = [ENDED_S]
    for end_s in ends_s:
        await probe.wait(begun_s + end_s + GRACE_S - probe.clock.now())
        answer = await probe.ask(session_id=session.session_id)
        if not answer.has_content:
            break
    is_known = probe.setting.advance is not None or probe.target.sessions.duration_unit_s
    if answer.has_content and not is_known:
        raise Skipped(
            f"after {ends_s[-1]} s a session of duration {probe.target.sessions.shortest} is not "
            "over, and the unit is not known: set sessions.duration_unit_s"
        )
    expect_not_served(answer)


async def _expect_refunds(
    probe: Probe, session: OpenSession, *amounts_base: int, begun_s: float
) -> None:
    """Fail unless exactly these amounts are refunded to the payer of an expired session.

    Raises `Skipped` if they may still come, because nobody knows how late that may be.
    """
    wanted, now_s = list(amounts_base), probe.clock.now()
    within_s = float(probe.target.sessions.refund_within_s or A_WHILE_S)
    if probe.setting.patient and not probe.target.sessions.refund_within_s:
        within_s = min(LONG_S, max(0.0, begun_s + IN_ALL_S - now_s))

    async def are_there() -> bool:
        return len(await probe.world.received(session.paid.payer)) >= len(wanted)

    is_there = await probe.eventually(are_there, within_s)
    is_known = probe.setting.advance is not None or within_s >= LONG_S
    if not is_there and not (is_known or probe.target.sessions.refund_within_s):
        raise Skipped(
            f"no refund within {within_s:.0f} s, and how late it may be is not known: set "
            "sessions.refund_within_s, or give --patient"
        )
    refunds = await probe.world.received(session.paid.payer)
    deposit, receipt = session.paid.challenge.amount_base, session.paid.receipt
    what = f"refunds of a deposit of {deposit}, on the ledger"
    expect(what, refunds, wanted, show=receipt.show)


@check(
    "3/expiry-refund", baseline="session", needs="funds, sessions", deposits="0.02", waits=_end_s
)
async def an_expired_session_serves_nothing_more(probe: Probe) -> None:
    """When its duration is over, a session with budget left serves nothing more."""
    await _wait_for_the_end(probe, await _open(probe, 2))


@check(
    "3/expiry-refund",
    baseline="session",
    needs="funds, sessions, world",
    deposits="0.08",
    waits=_refunded_s,
)
async def what_is_left_is_refunded(probe: Probe) -> None:
    """Exactly the unspent amount of an expired session is refunded."""
    price_base, begun_s = (await probe.challenge()).amount_base, probe.clock.now()
    spent = await _open(probe, 1)
    await _spend(probe, spent, spent.paid.challenge.amount_base // price_base)
    partly = await _open(probe, 3)
    await _spend(probe, partly, 1)
    untouched = await _open(probe, 2)
    await _wait_for_the_end(probe, await _open(probe, 2))
    deposit_base = untouched.paid.challenge.amount_base
    await _expect_refunds(probe, untouched, deposit_base, begun_s=begun_s)
    rest_base = partly.paid.challenge.amount_base - price_base
    await _expect_refunds(probe, partly, rest_base, begun_s=begun_s)
    rest_base = spent.paid.challenge.amount_base % price_base
    await _expect_refunds(probe, spent, *([rest_base] if rest_base else []), begun_s=begun_s)


@check(
    "3/expiry-refund",
    ground=derived(
        "3: A session expires",
        "4.4: duration",
        step="The refund comes on expiration, and a session of an hour has not expired after "
        "seconds.",
    ),
    baseline="session",
    needs="funds, sessions",
    deposits="0.02",
    waits=_early_s,
)
async def nothing_ends_early(probe: Probe) -> None:
    """A session that has not expired is served, and nothing is refunded."""
    session = await probe.open_session(await probe.budget_for(2))
    await probe.wait(EARLY_S)
    expect_served(await probe.ask(session_id=session.session_id))
    if probe.world.exists:
        expect("refunds before the end", await probe.world.received(session.paid.payer), [])


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
        deposit_base = session.paid.challenge.amount_base
        await _expect_refunds(probe, session, deposit_base, begun_s=probe.clock.now())


@check(
    "3/refund-once",
    baseline="session",
    needs="funds, sessions, world",
    deposits="0.04",
    waits=lambda setting: _refunded_s(setting) + EARLY_S,
)
async def what_was_refunded_stays_over(probe: Probe) -> None:
    """Claiming a session again after its refund yields neither the session nor a second refund."""
    begun_s, session = probe.clock.now(), await _open(probe, 2)
    deposit = session.paid.challenge
    await _wait_for_the_end(probe, await _open(probe, 2))
    await _expect_refunds(probe, session, deposit.amount_base, begun_s=begun_s)
    max_spend = to_decimal(deposit.amount_base, 6)
    again = await probe.ask_session(max_spend, _soon(probe), payment_id=deposit.payment_id)
    ids = {session.session_id, again.session_id or session.session_id}
    for session_id in sorted(ids):
        expect_not_served(await probe.ask(session_id=session_id))
    await probe.wait(ENDED_S if probe.setting.advance is not None else EARLY_S)
    await _expect_refunds(probe, session, deposit.amount_base, begun_s=begun_s)
