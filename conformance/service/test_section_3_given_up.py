"""Section 3: a refund that the facilitator refuses again and again is not given up."""

from itertools import pairwise

from x402sim.events import Note
from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.background import (
    CLOCK_END_S,
    GRACE_S,
    LONG_S,
    open_ending,
    unit_s,
    until_over,
    within_s,
)
from x402sim.suite.service.case import PATIENCE_S, session_case
from x402sim.suite.service.control_api import SETTLE
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Lacking

TRIES = 7
"""Attempts that fail, if they come soon: some services give up after five."""
LEAST_S, MOST_S = 10, 120
"""How long attempts fail at least, and in a patient run."""
PAUSES = 4
"""The next attempt may take so many times the longest pause before: most services double pauses."""
NEXT_S = 60
"""How long the next attempt may take in any case."""


def _end_s(setting: Setting) -> float:
    return setting.target.sessions.shortest * unit_s(setting) + GRACE_S


def _fails_s(setting: Setting) -> float:
    """Return how long the facilitator fails, after the session has ended."""
    return MOST_S if setting.options.patient else max(LEAST_S, PATIENCE_S - _end_s(setting))


@session_case(
    "3/refund-once",
    title="A refund that the facilitator refuses for a while is made when it works again.",
    ground=derived(
        "3: A session expires",
        so="The unspent balance is refunded; the specification gives no refund up.",
    ),
    needs="funds, sessions, world",
    waits=lambda setting: _end_s(setting) + _fails_s(setting),
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
