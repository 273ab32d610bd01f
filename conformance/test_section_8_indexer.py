"""Section 8: which payments the indexer queries from the chain explorer, and when.

The explorer is the world's. Each transaction hash gets a harmless fault (one request arrives
twice); the faults that were used up show which payments were queried.
"""

import asyncio
from itertools import pairwise

from x402sim.spec.ground import derived
from x402sim.suite.check import check
from x402sim.suite.control_api import eventually
from x402sim.suite.expect import expect, require
from x402sim.suite.indexing import buy_late, turn_s, tx_hash
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Skipped

INTERVAL_S = 300
BATCH = 100
NEVER_S = 366 * 86400
PAUSE_S = 5
"""Longer than a run pauses between two queries."""
STEP_S = 30
TOGETHER = 25
PARTS, NEARLY = 4, 0.8
"""An interval has this many parts; runs that are this share of it apart are an interval apart."""
AT_ONCE_S = 5
"""A query within this after a payment may belong to its settlement."""
DEEP = 100
"""The blocks after which no target expects a reorganisation any more."""


async def _watch(probe: Probe, hashes: list[str]) -> None:
    """Watch for the first query about each of these transactions."""
    for each in hashes:
        fault = {"victim": "explorer", "does": "duplicate", "contains": each}
        await probe.world.fault(fault)


async def _asked(probe: Probe, hashes: list[str]) -> set[str]:
    """Return the watched transactions that were queried."""
    standing = {each["contains"] for each in await probe.world.get("faults")}
    return set(hashes) - standing


async def _catch_up(probe: Probe) -> None:
    """Let the indexer process the payments of other checks."""
    for _ in range(2):
        await probe.world.advance(INTERVAL_S + 1)


async def _run(probe: Probe, hashes: list[str], at_least: int = 1) -> set[str]:
    """Let the indexer run once; wait for queries, and return which of these it made.

    A run may take a while: it is over when no query comes within some seconds.
    """
    await probe.world.advance(INTERVAL_S)
    made = 0

    async def is_done() -> bool:
        return len(await _asked(probe, hashes)) >= at_least

    while not await eventually(probe.clock, is_done, PAUSE_S if made else 1):
        before, made = made, len(await _asked(probe, hashes))
        if made == before:
            break
    return await _asked(probe, hashes)


@check(
    "8/indexer-query",
    ground=derived(
        "8: Indexer behaviour",
        "8: Indexer batch",
        step="Only records whose block_number is null are asked about.",
    ),
    needs="world, clock",
)
async def each_transaction_is_asked_for(probe: Probe) -> None:
    """The indexer queries a payment's transaction until the explorer has answered, then no more.

    A reorganisation may undo a block: until it is deep, a target may look again.
    """
    await _catch_up(probe)
    hashes = [tx_hash(await probe.buy())]
    await _watch(probe, hashes)
    require("a query to the explorer", bool(await _run(probe, hashes)), "none")
    await probe.world.post("mine", {"blocks": DEEP})
    await probe.world.advance(INTERVAL_S)
    await _watch(probe, hashes)
    again = await _run(probe, hashes)
    require("no query after the block is stored, and deep", not again, "one more")


@check(
    "8/indexer-query",
    ground=derived(
        "8: Indexer behaviour",
        step="Each payment is queried, whatever came of the query for another.",
    ),
    needs="world, clock",
)
async def one_question_that_fails_stops_no_other(probe: Probe) -> None:
    """If the explorer fails for the newest payment, the indexer still queries an older one."""
    await _catch_up(probe)
    older = [tx_hash(await probe.buy())]
    await probe.world.advance(1)
    newer = tx_hash(await probe.buy())
    trouble = {"victim": "explorer", "does": "answer", "status": 500, "times": None}
    await probe.world.fault({**trouble, "contains": newer})
    await _watch(probe, older)
    require("a query about the older one", bool(await _run(probe, older)), "none")


@check(
    "8/indexer-query",
    ground=derived(
        "8: Indexer batch",
        "8: Indexer behaviour",
        step="While its block_number is null, a record is in the batch of every run.",
    ),
    needs="world, clock",
)
async def an_explorer_that_lags_is_asked_again(probe: Probe) -> None:
    """While the explorer does not know the transaction, the indexer queries it in every run."""
    await _catch_up(probe)
    await probe.world.post("explorer/lag", {"seconds": NEVER_S})
    hashes = [tx_hash(await probe.buy())]
    for run in range(1, 4):
        await _watch(probe, hashes)
        asked = await _run(probe, hashes)
        require(f"a query in run {run}", bool(asked), "none")


# --- without a clock that turns: the log of the world's explorer -------------------------


@check("8/indexer-query", needs="funds, world", pays=3, waits=turn_s)
async def every_transaction_is_asked_for(probe: Probe) -> None:
    """The indexer queries each of several payments by its transaction."""
    hashes = [tx_hash(await buy_late(probe)) for _ in range(3)]

    async def are_asked_for() -> bool:
        return len(await probe.world.first_queries(hashes)) == len(hashes)

    await probe.eventually(are_asked_for, turn_s(probe.setting))
    asked = len(await probe.world.first_queries(hashes))
    expect("payments that the explorer was asked for, of 3", asked, len(hashes))


@check("8/indexer-interval", needs="funds, world", pays=PARTS, waits=turn_s)
async def once_in_an_interval(probe: Probe) -> None:
    """The indexer runs once in an interval, not later and not more often.

    A target may ask for a payment as soon as it is settled, too; that is no run.
    """
    interval_s, bought_s = probe.target.indexer.interval_s, {}
    for _ in range(PARTS):
        bought = tx_hash(await buy_late(probe))
        bought_s[bought] = probe.clock.now()
        await probe.wait(interval_s / PARTS)
    first, first_s = next(iter(bought_s.items()))
    await probe.wait(first_s + turn_s(probe.setting) - probe.clock.now())
    asked_s = await probe.world.first_queries(bought_s)
    require(f"a run within {interval_s} s", first in asked_s, "no query")
    at_once_s = min(AT_ONCE_S, interval_s / PARTS / 2)
    runs_s = sorted(asked_s[it] for it in asked_s if asked_s[it] - bought_s[it] > at_once_s)
    gaps_s = [after - before for before, after in pairwise(runs_s)]
    often = [round(gap) for gap in gaps_s if at_once_s < gap < interval_s * NEARLY]
    require(f"runs {interval_s} s apart", not often, f"{often} s apart")


@check("8/indexer-batch", needs="funds, world", pays=1, waits=turn_s)
async def a_hundred_at_most(probe: Probe) -> None:
    """The next run of the indexer queries the newest payment, and a hundred in all at most."""
    bought = tx_hash(await buy_late(probe))
    made = len(await probe.world.get("transfers"))
    if made <= 2 * BATCH and probe.setting.advance is None:
        raise Skipped(f"there were {made} transfers only: run all checks")

    async def is_asked_for() -> bool:
        return bool(await probe.world.first_queries([bought]))

    asked = await probe.eventually(is_asked_for, turn_s(probe.setting))
    require("a query about the newest payment", asked, "none")
    gap_s = min(PAUSE_S, probe.target.indexer.interval_s / 2)
    await probe.wait(gap_s)
    its_s = (await probe.world.first_queries([bought]))[bought]
    run = _run_at(its_s, await probe.world.queries(), gap_s)
    require(f"at most {BATCH} queries in one run", len(run) <= BATCH, f"{len(run)}")


def _run_at(its_s: float, queries: list[tuple[str, float]], gap_s: float) -> set[str]:
    """Return what was asked for in the run at a time; gaps separate runs."""
    run: set[str] = set()
    before_s = its_s
    for asked, time_s in sorted(queries, key=lambda query: query[1]):
        if time_s - before_s > gap_s and time_s > its_s:
            break
        run = {asked} if time_s - before_s > gap_s else {*run, asked}
        before_s = time_s
    return run


@check("8/indexer-interval", needs="world, clock")
async def every_five_minutes(probe: Probe) -> None:
    """The indexer runs every 300 s."""
    await _catch_up(probe)
    await probe.world.post("explorer/lag", {"seconds": NEVER_S})
    await probe.buy()
    first = await probe.world.next_event()
    for _ in range(4 * INTERVAL_S // STEP_S):
        await probe.world.advance(STEP_S)
        await probe.clock.sleep(0.01)
    entries = await probe.world.journal(first)
    times = [each.at_ms / 1000 for each in entries if each.event.actor == "explorer"]
    begins = [now for before, now in pairwise([0.0, *times]) if now - before > STEP_S / 2]
    gaps = [round(after - before) for before, after in pairwise(begins)]
    is_regular = all(abs(gap - INTERVAL_S) <= STEP_S + 5 for gap in gaps)
    require("runs 300 s apart", len(gaps) >= 2 and is_regular, f"{gaps} s apart")


@check("8/indexer-batch", needs="world, clock")
async def a_hundred_the_newest(probe: Probe) -> None:
    """Of 101 payments without a block, a run queries the 100 newest; a later run, the oldest."""
    await _catch_up(probe)
    await probe.world.post("explorer/lag", {"seconds": NEVER_S})
    payer = await probe.money.payer()
    oldest = tx_hash(await probe.buy(payer))
    await probe.world.advance(2)
    newer: list[str] = []
    while len(newer) < BATCH:
        bought = await asyncio.gather(*(probe.buy(payer) for _ in range(TOGETHER)))
        newer += [tx_hash(each) for each in bought]
    hashes = [oldest, *newer]
    await _watch(probe, hashes)
    asked = await _run(probe, hashes, BATCH)
    require(f"at most {BATCH} queries", len(asked) <= BATCH, f"{len(asked)} in one run")
    require("all of the newest", asked == set(newer), f"{len(asked & set(newer))} of them")
    await probe.world.post("explorer/lag", {"seconds": 0})
    later = [await _run(probe, [oldest]) for _ in range(2)]
    require("the oldest in one of the next runs", any(later), "no query")
