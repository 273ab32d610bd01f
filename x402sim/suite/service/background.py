"""The background of a target: refunds of ended sessions, and the indexer.

A clock that turns is advanced beyond a session's end; otherwise the judge waits. The specification
shows no field for the end: a time beside the session's id counts, under a name such as expiresAt.
The log of the world's explorer shows the indexer, which takes at most a hundred of the newest
payments in a run: a case that watches the next run pays after all cases without a wait.

After a case has disturbed the background, `recover` waits for a refund or a query of the indexer,
if the run has seen such a sign of life before.
"""

import math
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.suite.service import expect
from x402sim.suite.service.answers import OpenSession, Paid, TargetAnswer, filled, walk
from x402sim.suite.service.case import PATIENCE_S, Waits, case, session_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import CheckFailed, Inconclusive, Lacking, NotApplicable, Skipped
from x402sim.world.faults import Fault

CLOCK_DURATION, CLOCK_END_S = 60, 3960
"""A duration where the clock turns, in seconds or minutes, and the seconds until its end."""
GRACE_S = 2
SOON_S, LONG_S = 15, 300
"""Seconds to wait for a refund of unknown time, at once and in a patient run."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A session that ends soon: the base units spent, and when the session began (Unix seconds)."""

    session: OpenSession
    spent_base: int
    begun_s: float
    duration: int

    @property
    def unspent_base(self) -> int:
        """The base units to refund."""
        return self.session.paid.challenge.amount_base - self.spent_base


def unit_s(setting: Setting) -> int:
    """Return the seconds in a unit of duration; 1 if unknown."""
    return setting.target.sessions.duration_unit_s or 1


def end_s(setting: Setting) -> float:
    """Return the most seconds until the end of a session that ends soon."""
    return setting.target.sessions.shortest * unit_s(setting) + GRACE_S


def refunded_s(setting: Setting) -> float:
    """Return the most seconds until the refund of a session that ends soon."""
    return end_s(setting) + within_s(setting)


def in_trouble_s(setting: Setting) -> float:
    """Return the most seconds until a refund whose first attempt fails."""
    return refunded_s(setting) + (within_s(setting) if setting.options.patient else 0)


def within_s(setting: Setting) -> float:
    """Return the seconds to wait for a refund after the end of its session."""
    return max(
        setting.target.sessions.refund_within_s, LONG_S if setting.options.patient else SOON_S
    )


refund_case = partial(session_case, needs="funds, sessions, world", waits=refunded_s)
"""Make a check of the refund of a session that ends soon."""


async def open_ending(
    probe: Probe, max_spend: str, payer: Wallet | None = None, *, spends: int = 0, lasts_s: int = 0
) -> Ending:
    """Open a session that ends soon, not before `lasts_s`, and spend some requests of it."""
    duration = max(probe.target.sessions.shortest, -(-lasts_s // unit_s(probe.setting)))
    if probe.setting.advance is not None:
        duration = CLOCK_DURATION
    offered = await probe.ask_session(max_spend, duration)
    if 400 <= offered.status < 500 and offered.status != 402:
        cure = "see sessions.shortest"
        raise Skipped(f"no session of {max_spend} for {duration}, {cure}: {offered.summary}")
    session = await probe.open_session(max_spend, payer, duration=duration)
    begun_s = probe.clock.now()  # now, not earlier: the deposit may have taken long
    price_base = (await probe.challenge()).amount_base
    await spend(probe, session, spends)
    return Ending(session, spends * price_base, begun_s, duration)


async def spend(probe: Probe, session: OpenSession, requests: int) -> None:
    """Spend a session that ends soon; raises `Skipped` if the session has ended already."""
    for _ in range(requests):
        answer = await probe.ask(session_id=session.session_id)
        if not answer.has_content and probe.setting.advance is None:
            raise Skipped(f"its session was over too soon, see sessions.shortest: {answer.summary}")
        expect.served(answer)


async def until_over(probe: Probe, ending: Ending) -> None:
    """Wait for the end of a session; raises as `answered_at_its_end`.

    Raises `Inconclusive` if the session is still served: the request has then spent budget.
    """
    if (await answered_at_its_end(probe, ending)).has_content:
        raise Inconclusive(f"a session of duration {ending.duration} is served after its end")


async def answered_at_its_end(probe: Probe, ending: Ending) -> TargetAnswer:
    """Wait for the end of a session, and return the answer to a request with the session.

    Raises `Skipped` if the end may be later.
    """
    has_clock = probe.setting.advance is not None
    end_s = CLOCK_END_S if has_clock else ending.duration * unit_s(probe.setting)
    await probe.wait(ending.begun_s + end_s + GRACE_S - probe.clock.now())
    answer = await probe.ask(session_id=ending.session.session_id)
    if answer.has_content and not (has_clock or probe.target.sessions.duration_unit_s):
        raise Skipped("its session is not over, and the unit of duration is not known")
    return answer


async def expect_refunded(
    probe: Probe, *endings: Ending, is_in_trouble: bool = False, until_s: float = math.inf
) -> None:
    """Fail unless the payers of ended sessions get back their unspent deposits.

    More is a failure in any case, also if it comes later. Less raises `Skipped` if the rest may
    still come: at an unknown time, or because the first attempt `is_in_trouble`. A refund of
    unknown time is waited for until `until_s` (Unix seconds) at most.
    """
    payers = {each.session.paid.payer.address: each.session.paid.payer for each in endings}
    wanted = dict.fromkeys(payers, 0)
    for each in endings:
        wanted[each.session.paid.payer.address] += each.unspent_base

    async def received() -> dict[str, int]:
        return {it: sum(await probe.world.received(payer)) for it, payer in payers.items()}

    def are_there(found: dict[str, int]) -> bool:
        return all(found[payer] >= wanted[payer] for payer in wanted)

    is_known, left_s = probe.target.sessions.refund_within_s > 0, within_s(probe.setting)
    if not is_known:
        left_s = min(left_s, max(0.0, until_s - probe.clock.now()))
    if is_in_trouble:  # a second attempt may come although the first has succeeded
        await probe.wait(SOON_S)
        left_s += (left_s if probe.setting.options.patient else 0) - SOON_S
    found = await probe.eventually(received, left_s, are_there)
    is_long = probe.setting.options.patient and left_s >= LONG_S
    is_due = (is_known and not is_in_trouble) or is_long or probe.setting.advance is not None
    for payer, base in wanted.items():
        if found[payer] > base or is_due:
            deposit = next(it for it in endings if it.session.paid.payer.address == payer)
            show = deposit.session.paid.receipt.show
            what, seen = "refunds of one payer in all, on the ledger", f"{found[payer]} base units"
            short = probe.world.loss(base - found[payer], "what is left of a deposit, not refunded")
            over = probe.world.loss(found[payer] - base, "what the service refunded beyond its due")
            expect.equal(what, seen, f"{base} base units", show, short or over)
    if are_there(found):
        probe.setting.has_refunded |= any(wanted.values())
    else:
        raise Lacking(
            f"{left_s:.0f} s after the end a refund had not come, and how late it may be is not "
            "known: set sessions.refund_within_s, and give --patient"
        )


_END = re.compile(r"(expires|expiry|expiration|ends|validuntil|end)(at|on|time|date|ts|ms|s)*")
"""The name of a field with an end, in lower case and without underscores."""
MS = 10**11
"""A larger number is a time in milliseconds."""
SOONEST_S = 10**9
"""A smaller number is no time, but perhaps a duration."""


async def reported_end_s(probe: Probe, session: OpenSession) -> float | None:
    """Return the end of a session in Unix seconds, as the target reports it, or None."""
    answers = [session.answer, session.paid.receipt]
    if view := probe.target.sessions.view:
        answers.append(await probe.send("GET", filled(view, "sessionId", session.session_id)))
    found = (ends_s(answer.body, session.session_id) for answer in answers)
    return next((each for each in found if each is not None), None)


def ends_s(body: Any, session_id: str) -> float | None:
    """Return the time beside a session's id, in Unix seconds; None without a time."""
    for _, each in walk(body):
        is_it = isinstance(each, dict) and session_id in each.values()
        for name, value in each.items() if is_it else ():
            if _END.fullmatch(name.replace("_", "").lower()) and (time_s := _time_s(value)):
                return time_s
    return None


def _time_s(value: Any) -> float | None:
    """Return a time in Unix seconds: a number of (milli)seconds, or ISO 8601; None for others."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if number >= SOONEST_S:
        return number / 1000 if number > MS else number
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


# --- the indexer -----------------------------------------------------------------------------


SLACK_S = 10
"""Seconds after its interval until which the indexer may query."""
TRIES = 4
MOMENT_S = 0.5
PAUSE_S = 5
"""Longer than a run pauses between two queries."""


def turn_s(setting: Setting) -> float:
    """Return the most seconds until the indexer has run once."""
    return setting.target.indexer.interval_s + SLACK_S


indexer_case = partial(case, needs="funds, world", late=True)
"""Make a check of the indexer's runs after all other checks have acted."""


async def late(probe: Probe) -> None:
    """Return once a payment made next is among the newest in the indexer's next run."""
    await probe.setting.scheduler.wait_for_the_first()
    await probe.setting.scheduler.wait_for_the_rest()


async def buy_late(probe: Probe) -> Paid:
    """Pay for the resource, as one of the newest payments in the indexer's next run."""
    await late(probe)
    return await probe.buy()


def tx_hash(paid: Paid) -> str:
    """Return the hash of a payment's transaction, in lower case; raises `Inconclusive`."""
    found = paid.receipt.at(paid.receipt.target.receipt.tx_hash)
    if not isinstance(found, str) or not found:
        raise Inconclusive(f"the receipt has no transaction hash: {found!r}")
    return found.lower()


# --- queries to the explorer, run by run ----------------------------------------------------


def turns_s(turns: int) -> Waits:
    """Return the most seconds until the indexer has run `turns` times."""
    return lambda setting: turns * setting.target.indexer.interval_s + SLACK_S


UNKNOWN_TO_THE_NODE = Fault(
    victim="rpc",
    does="answer",
    status=200,
    body='{"jsonrpc":"2.0","id":1,"result":null}',
    times=None,
)


async def held(probe: Probe, fault: Fault, payer: Wallet | None = None) -> str:
    """Pay, and inject the explorer's answer about the transaction; return the hash.

    The node does not know the transaction, so a target that also queries the node learns no block.
    The log has the query. Raises `Skipped` if the indexer always comes first.
    """
    for _ in range(TRIES):
        begun_s = probe.clock.now()
        bought = tx_hash(await probe.buy(payer))
        await probe.world.lasting_fault(fault, bought)
        await probe.world.lasting_fault(UNKNOWN_TO_THE_NODE, bought)
        if not await probe.world.first_queries([bought], begun_s):
            return bought
    raise NotApplicable("the target asks the explorer for a payment as soon as it is settled")


async def next_run(probe: Probe, hashes: Collection[str], since_s: float) -> dict[str, float]:
    """Wait one turn at most until all hashes were queried since a time; return the times."""
    return await probe.eventually(
        lambda: probe.world.first_queries(hashes, since_s),
        turn_s(probe.setting),
        lambda found: len(found) == len(hashes),
    )


async def until_quiet(probe: Probe) -> None:
    """Wait until a run is over: no query comes for a while. At most one turn is waited for.

    Where the clock turns, the run is due at once, and takes a moment of real time.
    """
    gap_s = min(PAUSE_S, probe.target.indexer.interval_s / 4)
    end_s, seen = probe.clock.now() + turn_s(probe.setting), -1
    while seen != (seen := len(await probe.world.queries())) and probe.clock.now() < end_s:
        if probe.setting.advance is None:
            await probe.wait(gap_s)
        else:
            await probe.clock.sleep(MOMENT_S)


# --- recovery of the background --------------------------------------------------------------


RECOVERY_S = 120.0
"""Seconds for a recovery: a call of the facilitator hangs for a minute, and others follow."""
LOOK_S = 0.5


def usual_s(setting: Setting) -> float:
    """Return the usual seconds: an interval of the indexer, or a session and its refund."""
    waits_s = (setting.target.indexer.interval_s, end_s(setting))
    return max((each for each in waits_s if each <= PATIENCE_S), default=0.0)


Look = Callable[[], Awaitable[bool]]


async def recover(setting: Setting) -> None:
    """Return once the background was seen to run again, or after `RECOVERY_S`.

    A background that stands still for longer does so without a case's fault.
    """
    overlaps = setting.scheduler.overlaps
    is_able = setting.control is not None and setting.advance is None and not setting.stopped
    if is_able and overlaps.unrecovered:
        async with setting.scheduler.turn:
            await _see(Probe(setting))
    overlaps.recovered()


async def _see(probe: Probe) -> None:
    """Give the background a payment and a session to process, and wait until both are done."""
    end_s = probe.clock.now() + RECOVERY_S
    try:
        looks = [*await _indexes(probe), *await _refunds(probe)]
        while looks and probe.clock.now() < end_s:
            await probe.wait(LOOK_S)
            looks = [look for look in looks if not await look()]
    except (CheckFailed, Inconclusive, Skipped) as problem:
        # the next cases meet the same problem, and report it
        probe.setting.tell(f"whether the service has recovered was not seen: {problem}")
        return
    if looks:
        unrecovered = probe.setting.scheduler.overlaps.unrecovered
        disturbers = ", ".join(dict.fromkeys(case.id for case in unrecovered))
        probe.setting.tell(
            f"for {RECOVERY_S:.0f} s after the faults of {disturbers}, the "
            "service was not seen to do again in the background what it did before"
        )


async def _indexes(probe: Probe) -> list[Look]:
    """Pay, and return a function that tells whether the indexer has queried the payment."""
    if turn_s(probe.setting) > PATIENCE_S or not await probe.world.queries():
        return []
    bought = tx_hash(await probe.buy())

    async def is_queried() -> bool:
        return bool(await probe.world.first_queries([bought]))

    return [is_queried]


async def _refunds(probe: Probe) -> list[Look]:
    """Open a session that ends soon, and return a function that tells whether the refund came."""
    if not probe.setting.has_refunded or end_s(probe.setting) > PATIENCE_S:
        return []
    payer = (await open_ending(probe, await probe.budget_for(1))).session.paid.payer

    async def is_refunded() -> bool:
        return bool(await probe.world.received(payer))

    return [is_refunded]
