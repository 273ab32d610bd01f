"""Section 3: the rest of a session is refunded, and not more, whatever happens meanwhile.

Several sessions of one payer, deposits of odd sizes, a facilitator in trouble, once or again and
again, a restart.
"""

import asyncio
from functools import partial
from itertools import pairwise

from x402sim.events import Note
from x402sim.protocol.money import to_base, to_decimal
from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.answers import read_402
from x402sim.suite.service.background import (
    CLOCK_END_S,
    LONG_S,
    Ending,
    answered_at_its_end,
    end_s,
    expect_refunded,
    in_trouble_s,
    open_ending,
    refund_case,
    refunded_s,
    unit_s,
    until_over,
    within_s,
)
from x402sim.suite.service.case import PATIENCE_S, session_case
from x402sim.suite.service.control_api import NOT_SETTLED, SETTLE
from x402sim.suite.service.probe import CENT_BASE, Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Lacking, NotApplicable
from x402sim.world.faults import Fault

ODD_CENTS = 434
"""With a cent more, 4.35: as a binary fraction, 4.35 is less."""
LONG = 86_400
"""A duration that outlasts a short session, in seconds or minutes."""
RESTART_S = 6
"""Longer than a restart takes, mostly."""
USED_S, USED_AT = 8, (0.4, 0.8)
"""The parts of a session's duration at which the case uses it; another check may act then."""
DONE = partial(SETTLE, does="answer", work_done=True)
TROUBLE: dict[str, Fault] = {
    "its answer is lost": SETTLE(does="lose answer"),
    "it is answered 504, and done": DONE(status=504),
    "it is answered with an empty object, and done": DONE(status=200, body="{}"),
    "it is answered late": SETTLE(does="delay answer", seconds=4),
    "it is refused": SETTLE(does="refuse"),
    "it is answered 500": SETTLE(does="answer", status=500),
    "it fails, says a 200": SETTLE(does="answer", status=200, body=NOT_SETTLED),
}
"""Faults of the first attempt at a refund."""
REFUNDED = "funds, sessions, world"
TRIES = 7
"""Attempts that fail, if they come soon: some services give up after five."""
LEAST_S, MOST_S = 10, 120
"""How long attempts fail at least, and in a patient run."""
PAUSES = 4
"""The next attempt may take so many times the longest pause before: most services double pauses."""
NEXT_S = 60
"""How long the next attempt may take in any case."""
UNSPENT = derived(
    "3: A session expires",
    "2.6: Remaining budget",
    so="All refunds of a session together are its unspent balance, after any number of tries.",
)


@refund_case(
    "3/expiry-refund",
    title=(
        "A payer of several sessions gets the rest of each, and odd amounts are refunded exactly."
    ),
    ground=UNSPENT,
)
async def each_session_is_refunded(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    two, three = await probe.budget_for(2), await probe.budget_for(3)
    odd = to_decimal(to_base(await probe.budget_for(1), 6) + ODD_CENTS * CENT_BASE, 6)
    endings = await asyncio.gather(  # they end at the same time
        open_ending(probe, two, payer, spends=1),
        open_ending(probe, two, payer, spends=1),
        open_ending(probe, three, payer),
        open_ending(probe, odd, spends=1),
        open_ending(probe, two),
    )
    await until_over(probe, endings[0])
    await expect_refunded(probe, *endings)


@refund_case(
    "3/expiry-refund",
    title=("When one of two sessions of a payer is over, it is refunded, and the other is served."),
    ground=UNSPENT,
)
async def each_session_has_its_own_end(probe: Probe) -> None:
    payer, max_spend = await probe.wallets.payer(), await probe.budget_for(2)
    longer = await probe.ask_session(max_spend, LONG)
    if longer.status != 402:
        raise NotApplicable(f"no session of duration {LONG}: {longer.summary}")
    paid = await probe.pay(read_402(longer), payer)
    other = await probe.claim(paid, max_spend, LONG)
    over = await open_ending(probe, max_spend, payer)
    await until_over(probe, over)
    expect.served(await probe.ask(session_id=other.session_id))
    await expect_refunded(probe, over)


@refund_case(
    "3/expiry-refund",
    title="Refused deposits and unpaid deposits are not refunded.",
    ground=UNSPENT,
)
async def what_was_not_deposited_is_not_refunded(probe: Probe) -> None:
    payer, by = await probe.wallets.payer(), probe.wallets.stranger()
    paid = await open_ending(probe, await probe.budget_for(2))
    unpaid = read_402(await probe.ask_session(await probe.budget_for(2), paid.duration))
    expect.refused(await probe.settle(unpaid, probe.wallets.sign(unpaid, payer, by=by)))
    await until_over(probe, paid)
    await expect_refunded(probe, paid)
    expect.equal("refunds of what was not deposited", await probe.world.received(payer), [])


def _fails_s(setting: Setting) -> float:
    """Return how long the facilitator fails, after the session has ended."""
    return MOST_S if setting.options.patient else max(LEAST_S, PATIENCE_S - end_s(setting))


@session_case(
    "3/refund-once",
    title="A refund that the facilitator refuses for a while is made when it works again.",
    ground=derived(
        "3: A session expires",
        so="The unspent balance is refunded; the specification gives no refund up.",
    ),
    needs=REFUNDED,
    waits=lambda setting: end_s(setting) + _fails_s(setting),
    disturbs=True,
)
async def a_refund_is_not_given_up(probe: Probe) -> None:
    since, has_clock = await probe.world.next_event(), probe.setting.advance is not None
    ending = await open_ending(probe, await probe.budget_for(2))
    payer = ending.session.paid.payer

    tried: list[float] = []

    async def tries_s() -> list[float]:
        nonlocal since  # a world's journal may be long: each call reads only the new part
        for entry in await probe.world.journal(since):
            since = entry.seq + 1
            if isinstance(note := entry.event, Note) and note.data.get("contains") == payer.address:
                tried.append(entry.at_ms / 1000)
        return tried

    async def refunded_base() -> int:
        return sum(await probe.world.received(payer))

    await probe.world.lasting_fault(SETTLE(does="refuse", times=None), payer.address)
    await until_over(probe, ending)
    fails_s = TRIES * CLOCK_END_S if has_clock else _fails_s(probe.setting)
    tried_s = await probe.eventually(tries_s, fails_s, lambda found: len(found) >= TRIES)
    await probe.world.clear_faults()
    longest_s = max((later - one for one, later in pairwise(tried_s)), default=0.0)
    is_patient = probe.setting.options.patient
    left_s = max(within_s(probe.setting), PAUSES * longest_s, LONG_S if is_patient else NEXT_S)
    left_s = CLOCK_END_S if has_clock else left_s
    base = await probe.eventually(refunded_base, left_s, lambda found: found >= ending.unspent_base)
    is_due = has_clock or is_patient or probe.target.sessions.refund_within_s > 0
    if base < ending.unspent_base and not is_due:
        raise Lacking(
            f"{left_s:.0f} s after the facilitator works again a refund had not come, and how late "
            "it may be is not known: set sessions.refund_within_s, and give --patient"
        )
    what = f"refunds, on the ledger, {left_s:.0f} s after the facilitator works again"
    failed = f", after {len(tried_s)} attempts that failed"
    expect.equal(what + failed, f"{base} base units", f"{ending.unspent_base} base units")


@session_case(
    "3/refund-once",
    title="Whatever befalls the first try, a refund is exactly the unspent amount.",
    ground=UNSPENT,
    needs=REFUNDED,
    waits=in_trouble_s,
    decisive="one refund",
    disturbs=True,
)
async def a_refund_comes_once_whatever_fails(probe: Probe) -> None:
    endings: list[Ending] = []
    for trouble in TROUBLE.values():
        ending = await open_ending(probe, await probe.budget_for(2), spends=len(endings) % 2)
        await probe.world.lasting_fault(trouble, ending.session.paid.payer.address)
        endings.append(ending)
    await until_over(probe, endings[-1])
    if probe.setting.advance is not None:  # a second attempt, and a third, have their time
        for _ in range(3):
            await probe.wait(CLOCK_END_S)
    await expect_refunded(probe, *endings, is_in_trouble=True)


@session_case(
    "3/refund-once",
    title="After a restart, no refund comes again; a session that goes on is refunded later.",
    ground=UNSPENT,
    needs=f"{REFUNDED}, restart",
    waits=refunded_s,
    decisive="one refund",
)
async def a_restart_refunds_nothing_twice(probe: Probe) -> None:
    over = await open_ending(probe, await probe.budget_for(2), spends=1)
    await until_over(probe, over)
    await expect_refunded(probe, over)
    await probe.setting.scheduler.wait_for_the_restart()
    open_still = await open_ending(probe, await probe.budget_for(4), spends=1, lasts_s=RESTART_S)
    await probe.restart()
    session_id, price_base = open_still.session.session_id, over.spent_base
    served = (await probe.ask(session_id=session_id)).has_content
    spent_base = open_still.spent_base + served * price_base
    kept = Ending(open_still.session, spent_base, open_still.begun_s, open_still.duration)
    await until_over(probe, kept)
    # Where sessions are kept is open: a target may forget a session that it serves no more.
    await expect_refunded(probe, over, *([kept] if served else []))


@session_case(
    "3/expiry-refund",
    title="A session in use until shortly before its end serves nothing after its end.",
    ground=derived(
        "3: A session expires",
        "4.4: duration",
        so="duration is the length of the session, not of a pause: use does not move the end.",
    ),
    deposits="0.04",
    waits=lambda setting: max(setting.target.sessions.shortest * unit_s(setting), USED_S) + 4,
    decisive="its end",
    late=True,
)
async def a_session_in_use_ends_too(probe: Probe) -> None:
    # else another check may act when the session should be used
    await probe.setting.scheduler.wait_for_the_rest()
    ending = await open_ending(probe, await probe.budget_for(4), lasts_s=USED_S)
    begun_s, session_id = ending.begun_s, ending.session.session_id
    lasts_s = ending.duration * unit_s(probe.setting)
    for part in USED_AT if probe.setting.advance is None else ():
        await probe.wait(begun_s + part * lasts_s - probe.clock.now())
        await probe.ask(session_id=session_id)
    expect.not_served(await answered_at_its_end(probe, ending))
