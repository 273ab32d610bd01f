"""Section 8: which payments the indexer queries from the chain explorer, and when.

The explorer is the world's, and its log shows the queries. Where no clock turns, some intervals
are waited for.
"""

import asyncio
from functools import partial
from itertools import pairwise

from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.background import (
    buy_late,
    held,
    indexer_case,
    late,
    next_run,
    turn_s,
    turns_s,
    tx_hash,
    until_quiet,
)
from x402sim.suite.service.case import case
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import CheckFailed
from x402sim.world.faults import Fault

BATCH, TOGETHER = 100, 25
PARTS, NEARLY = 4, 0.8
"""The parts of an interval; runs at least `NEARLY` of an interval apart are an interval apart."""
AT_ONCE_S = 5
"""Seconds after a payment in which a query may belong to its settlement."""
LEAST_SLACK_S = 3
"""How late a run of an indexer with a short interval may be, at least, on a busy machine."""
DEEP = 100
"""The blocks after which no target expects a reorganisation any more."""
APART_S = 1.2
"""Payments so many seconds apart have different times, also in whole seconds."""
RUNS = 2
EXPLORER = partial(Fault, victim="explorer", times=None)
ANSWER = partial(EXPLORER, does="answer", work_done=True)
NOT_FOUND = '{"jsonrpc":"2.0","id":1,"status":"0","message":"Transaction not found","result":'
UNKNOWN = ANSWER(status=200, body=NOT_FOUND + "null}")
WAITS = ANSWER(
    status=200,
    body=NOT_FOUND + '{"blockHash":null,"blockNumber":null,"transactionIndex":null}}',
)
NO_BLOCK: dict[str, Fault] = {
    "whose query is not answered": EXPLORER(does="lose answer"),
    "that the explorer does not know": UNKNOWN,
    "that is in no block yet": WAITS,
    "whose query is answered with a web page": ANSWER(
        status=200, body="<html>Too many requests</html>", content_type="text/html"
    ),
    "whose query is answered 500": ANSWER(status=500),
}
"""The explorer's answers about a payment without a block, in any dialect; the oldest first."""


@indexer_case(
    "8/indexer-query",
    title="In every run, the indexer queries each payment for which it has got no block yet.",
    ground=derived(
        "8: Indexer batch",
        "8: Indexer behaviour",
        so="While its block_number is null, a record is in the batch of every run, and queried.",
    ),
    waits=turns_s(RUNS),
)
async def what_has_no_block_is_asked_for_again(probe: Probe) -> None:
    await late(probe)
    begun_s = probe.clock.now()
    hashes = {await held(probe, answer): said for said, answer in NO_BLOCK.items()}
    for _ in range(RUNS):
        asked = await next_run(probe, hashes, begun_s)
        missed = [said for each, said in hashes.items() if each not in asked]
        seen = f"none for one {''.join(missed[:1])}"
        expect.holds("a query in every run for each payment", not missed, seen)
        await until_quiet(probe)
        begun_s = probe.clock.now()


@indexer_case(
    "8/indexer-query",
    title="Once a payment has a block, and the block is deep, it is queried no more.",
    ground=derived(
        "8: Indexer behaviour",
        "8: Indexer batch",
        so="Only records whose block_number is null are asked about.",
    ),
    waits=turns_s(3),
)
async def what_has_its_block_is_asked_for_no_more(probe: Probe) -> None:
    begun_s, interval_s = probe.clock.now(), probe.target.indexer.interval_s
    hashes = [tx_hash(await buy_late(probe)) for _ in range(2)]
    asked = await next_run(probe, hashes, begun_s)
    expect.holds("a query for each payment", len(asked) == len(hashes), f"{len(asked)} of 2")
    await probe.world.post("mine", {"blocks": DEEP})
    turn_at_most_s = interval_s + min(AT_ONCE_S, max(interval_s, LEAST_SLACK_S))
    await probe.wait(turn_at_most_s)
    since_s = probe.clock.now()
    again = await probe.eventually(
        lambda: probe.world.first_queries(hashes, since_s), turn_at_most_s
    )
    expect.holds("no query after the block is stored, and deep", not again, "one more")


@case(
    "8/indexer-query",
    title="After a restart, the indexer queries a payment of before that has no block yet.",
    ground=derived(
        "1: A background payment indexer",
        "8: Indexer batch",
        so="The stored records are completed, also those of before a restart.",
    ),
    needs="funds, world, restart",
    waits=turns_s(RUNS),
    late=True,
)
async def what_was_paid_before_a_restart_is_asked_for(probe: Probe) -> None:
    await late(probe)
    paid_before = [await held(probe, UNKNOWN)]
    await probe.restart()
    asked = await next_run(probe, paid_before, probe.clock.now())
    expect.holds("a query after the restart", bool(asked), "none")


@indexer_case(
    "8/indexer-query",
    title="The indexer queries each of several payments by its transaction.",
    waits=turn_s,
    decisive=False,
)
async def every_transaction_is_asked_for(probe: Probe) -> None:
    hashes = [tx_hash(await buy_late(probe)) for _ in range(3)]
    asked = await next_run(probe, hashes, 0)
    expect.equal("payments that the explorer was asked for, of 3", len(asked), len(hashes))


@indexer_case(
    "8/indexer-interval",
    title="The indexer runs once in an interval; a query at the settlement is no run.",
    waits=turn_s,
    decisive=False,
)
async def once_in_an_interval(probe: Probe) -> None:
    interval_s, bought_s = probe.target.indexer.interval_s, {}
    for _ in range(PARTS):
        bought = tx_hash(await buy_late(probe))
        bought_s[bought] = probe.clock.now()
        await _let_pass(probe, interval_s / PARTS)
    first, first_s = next(iter(bought_s.items()))
    await _let_pass(probe, first_s + turn_s(probe.setting) - probe.clock.now())
    asked_s = await probe.world.first_queries(bought_s)
    expect.holds(f"a run within {interval_s} s", first in asked_s, "no query")
    at_once_s = min(AT_ONCE_S, interval_s / PARTS / 2)
    later = {it: since_s for it, since_s in asked_s.items() if since_s - bought_s[it] > at_once_s}
    every_s = [since_s for _, since_s in await probe.world.queries()]
    runs_s = _runs_s(bought_s, later, every_s, min(AT_ONCE_S, interval_s / PARTS))
    gaps_s = [after - before for before, after in pairwise(runs_s)]
    often = [round(gap) for gap in gaps_s if gap < interval_s * NEARLY]
    expect.holds(f"runs {interval_s} s apart", not often, f"{often} s apart")


def _runs_s(
    bought_s: dict[str, float], asked_s: dict[str, float], every_s: list[float], quiet_s: float
) -> list[float]:
    """Return the beginnings of the runs in which these payments were queried.

    A run may take long, and query other payments first: it began with the first of the queries
    that are at most `quiet_s` apart. A query for a payment made since belongs to the next run; any
    other may belong to the same.
    """
    runs_s: list[float] = []
    for bought, since_s in sorted(asked_s.items(), key=lambda each: each[1]):
        begun_s = since_s
        for earlier_s in reversed([each for each in every_s if each < since_s]):
            if begun_s - earlier_s > quiet_s:
                break
            begun_s = earlier_s
        if not runs_s or runs_s[-1] < min(bought_s[bought], begun_s):
            runs_s.append(begun_s)
    return runs_s


async def _let_pass(probe: Probe, seconds: float) -> None:
    """Wait; where the clock turns, a run that is due then ends before the clock turns again."""
    await probe.wait(seconds)
    if probe.setting.advance is not None:
        await until_quiet(probe)


@indexer_case(
    "8/indexer-batch",
    title="Of several payments without a block, a run does not query the oldest first.",
    waits=turns_s(RUNS),
    decisive=False,
)
async def the_newest_first(probe: Probe) -> None:
    await late(probe)
    hashes = []
    for _ in range(PARTS):
        hashes.append(await held(probe, UNKNOWN))
        await probe.wait(APART_S)
    orders = []
    for _ in range(RUNS):
        asked = await next_run(probe, hashes, probe.clock.now())
        orders.append([hashes.index(each) + 1 for each in asked])
        await until_quiet(probe)
    is_reversed = all(order == list(range(1, PARTS + 1)) for order in orders)
    expect.holds(
        "the newest payment before the older ones", not is_reversed, f"the order {orders[-1]}"
    )


@indexer_case(
    "8/indexer-batch",
    title="Of 101 payments without a block, a run queries the newest, and not the oldest.",
    waits=turns_s(RUNS),
)
async def a_hundred_the_newest(probe: Probe) -> None:
    async with probe.setting.scheduler.first():
        await probe.setting.scheduler.wait_for_the_rest()
        payer = await probe.wallets.payer()
        hashes = [await held(probe, UNKNOWN, payer)]
        await probe.clock.sleep(APART_S)
        while len(hashes) <= BATCH:
            together = range(min(TOGETHER, BATCH + 1 - len(hashes)))
            hashes += await asyncio.gather(*(held(probe, UNKNOWN, payer) for _ in together))
    for _ in range(RUNS):  # a run that began earlier may have seen fewer payments
        begun_s = probe.clock.now()
        asked = await next_run(probe, hashes[-1:], begun_s)
        expect.holds("a query for the newest payment", bool(asked), "none")
        await until_quiet(probe)
        if not await probe.world.first_queries(hashes[:1], begun_s):
            return
    raise CheckFailed("", f"the newest {BATCH} payments at most", "the 101st was asked for, too")
