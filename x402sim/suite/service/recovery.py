"""Waits until the target's background was seen to run again, after a case has disturbed it.

What shows it is what has shown it in this run before: a query of the indexer, the refund of a
session. A target that has shown neither is not waited for.
"""

from collections.abc import Awaitable, Callable

from x402sim.suite.service.check import PATIENCE_S
from x402sim.suite.service.ending import GRACE_S, open_ending, unit_s
from x402sim.suite.service.indexing import turn_s, tx_hash
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import CheckFailed, Inconclusive, Skipped

RECOVERY_S = 120.0
"""How long it may take: a call of the facilitator hangs for a minute, and others after it."""
LOOK_S = 0.5


def usual_s(setting: Setting) -> float:
    """Return how long it takes usually: an interval of the indexer, or a session and its refund."""
    waits_s = (setting.target.indexer.interval_s, _lasts_s(setting) + GRACE_S)
    return max((each for each in waits_s if each <= PATIENCE_S), default=0.0)


Look = Callable[[], Awaitable[bool]]


async def recover(setting: Setting) -> None:
    """Return when the background was seen to run again, or after `RECOVERY_S`.

    What stands still for longer does so without anybody's fault.
    """
    company = setting.scheduler.company
    is_able = setting.control is not None and setting.advance is None and not setting.stopped
    if is_able and company.unrecovered:
        async with setting.scheduler.turn:
            await _see(Probe(setting))
    company.recovered()


async def _see(probe: Probe) -> None:
    """Make what the background will deal with, and wait until it was seen to."""
    end_s = probe.clock.now() + RECOVERY_S
    try:
        looks = [*await _indexes(probe), *await _refunds(probe)]
        while looks and probe.clock.now() < end_s:
            await probe.wait(LOOK_S)
            looks = [look for look in looks if not await look()]
    except (CheckFailed, Inconclusive, Skipped) as problem:
        # the cases that come next meet it, too, and report it
        probe.setting.tell(f"whether the service has recovered was not seen: {problem}")
        return
    if looks:
        disturbers = ", ".join(probe.setting.scheduler.company.unrecovered)
        probe.setting.tell(
            f"for {RECOVERY_S:.0f} s after the faults of {disturbers}, the "
            "service was not seen to do again in the background what it did before"
        )


async def _indexes(probe: Probe) -> list[Look]:
    """Pay, and return what tells whether the indexer has asked for it."""
    if turn_s(probe.setting) > PATIENCE_S or not await probe.world.queries():
        return []
    bought = tx_hash(await probe.buy())

    async def is_queried() -> bool:
        return bool(await probe.world.first_queries([bought]))

    return [is_queried]


def _lasts_s(setting: Setting) -> float:
    return setting.target.sessions.shortest * unit_s(setting)


async def _refunds(probe: Probe) -> list[Look]:
    """Open a session that ends soon, and return what tells whether it was refunded."""
    if not probe.setting.has_refunded or _lasts_s(probe.setting) > PATIENCE_S:
        return []
    payer = (await open_ending(probe, await probe.budget_for(1))).session.paid.payer

    async def is_refunded() -> bool:
        return bool(await probe.world.received(payer))

    return [is_refunded]
