"""Section 3: a session expires, and then the rest of its deposit is refunded, once.

The specification shows neither the unit of a duration nor the time of a refund. The target
file can state both; otherwise the suite waits for a while, and does not judge later events.
"""

from x402sim.protocol.money import to_base, to_decimal
from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.background import (
    CLOCK_END_S,
    GRACE_S,
    expect_refunded,
    open_ending,
    reported_end_s,
    within_s,
)
from x402sim.suite.service.case import session_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Lacking, Skipped

EARLY_S = 5
"""Seconds within which a session of a usual duration does not end."""
REFUNDED = "funds, sessions, world"
IN_ALL_S = 340
"""How long a patient run waits for end and refund."""


def _units_s(setting: Setting) -> tuple[int, ...]:
    """Return the possible seconds in a unit of duration: the known value, or values to try."""
    known_s = setting.target.sessions.duration_unit_s
    return (known_s,) if known_s else (1, 60) if setting.options.patient else (1,)


def _end_s(setting: Setting) -> float:
    """Return the most seconds that a session lasts that ends soon."""
    if setting.advance is not None:
        return CLOCK_END_S
    return setting.target.sessions.shortest * _units_s(setting)[-1] + GRACE_S


def _refunded_s(setting: Setting) -> float:
    """Return the most seconds until the refund of a session that ends soon."""
    in_all_s = _end_s(setting) + within_s(setting)
    return in_all_s if setting.target.sessions.refund_within_s else min(in_all_s, IN_ALL_S)


async def _let_one_end(probe: Probe) -> None:
    """Open a session that ends soon; fail if it is served after its end.

    Raises `Skipped` if the end may be later. Each request with a session that is still served costs
    its price.
    """
    session = (await open_ending(probe, await probe.budget_for(2))).session
    begun_s, shortest = probe.clock.now(), probe.target.sessions.shortest
    ends_s = [float(shortest * unit_s) for unit_s in _units_s(probe.setting)]
    reported_s = await reported_end_s(probe, session)
    is_reported = reported_s is not None and not probe.target.sessions.duration_unit_s
    if probe.setting.advance is not None:
        ends_s = [CLOCK_END_S]
    elif is_reported and reported_s is not None:
        if reported_s - begun_s > _end_s(probe.setting):
            raise Lacking(
                f"the session names an end in {reported_s - begun_s:.0f} s: give --patient"
            )
        ends_s = [max(0.0, reported_s - begun_s)]
    for end_s in ends_s:
        await probe.wait(begun_s + end_s + GRACE_S - probe.clock.now())
        answer = await probe.ask(session_id=session.session_id)
        if not answer.has_content:
            break
    is_known = is_reported or probe.setting.advance is not None
    if answer.has_content and not (is_known or probe.target.sessions.duration_unit_s):
        raise Skipped(
            f"after {ends_s[-1]:.0f} s a session of duration {shortest} is not over, does not say "
            "when it ends, and the unit is not known: set sessions.duration_unit_s"
        )
    expect.withheld(answer)


@session_case(
    "3/expiry-refund",
    title="When its duration is over, a session with budget left serves nothing more.",
    deposits="0.02",
    waits=_end_s,
    decisive="its end",
)
async def an_expired_session_serves_nothing_more(probe: Probe) -> None:
    await _let_one_end(probe)


@session_case(
    "3/expiry-refund",
    title="Exactly the unspent amount of an expired session is refunded.",
    needs=REFUNDED,
    waits=_refunded_s,
    decisive="its end",
)
async def what_is_left_is_refunded(probe: Probe) -> None:
    price_base, until_s = (await probe.challenge()).amount_base, probe.clock.now() + IN_ALL_S
    whole = await probe.budget_for(1)
    spent = await open_ending(probe, whole, spends=to_base(whole, 6) // price_base)
    partly = await open_ending(probe, await probe.budget_for(3), spends=1)
    untouched = await open_ending(probe, await probe.budget_for(2))
    await _let_one_end(probe)
    await expect_refunded(probe, untouched, partly, spent, until_s=until_s)


@session_case(
    "3/expiry-refund",
    title="A session that has not expired is served, and nothing is refunded.",
    ground=derived(
        "3: A session expires",
        "4.4: duration",
        so="A refund comes on expiration; an hour's session does not expire after seconds.",
    ),
    deposits="0.02",
    waits=lambda _: EARLY_S,
)
async def nothing_ends_early(probe: Probe) -> None:
    session = await probe.open_session(await probe.budget_for(2))
    await probe.wait(EARLY_S)
    expect.served(await probe.ask(session_id=session.session_id))
    if probe.world.exists:
        expect.equal("refunds before the end", await probe.world.received(session.paid.payer), [])


@session_case(
    "3/refund-once",
    title="A refunded session, claimed again, is neither served nor refunded again.",
    needs=REFUNDED,
    waits=lambda setting: _refunded_s(setting) + EARLY_S,
)
async def what_was_refunded_stays_over(probe: Probe) -> None:
    until_s = probe.clock.now() + IN_ALL_S
    kept = await open_ending(probe, await probe.budget_for(2))
    session, deposit = kept.session, kept.session.paid.challenge
    await _let_one_end(probe)
    await expect_refunded(probe, kept, until_s=until_s)
    max_spend = to_decimal(deposit.amount_base, 6)
    again = await probe.ask_session(max_spend, kept.duration, payment_id=deposit.payment_id)
    ids = {session.session_id, again.session_id or session.session_id}
    for session_id in sorted(ids):
        expect.withheld(await probe.ask(session_id=session_id))
    await probe.wait(CLOCK_END_S if probe.setting.advance is not None else EARLY_S)
    await expect_refunded(probe, kept)
