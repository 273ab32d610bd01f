"""Section 8: which payments the indexer asks the chain explorer about, and when.

The explorer is the world's. A fault that does no harm (one request arrives twice) stands
for each transaction hash; which of them have struck tells which payments were asked for.
"""

import asyncio
from itertools import pairwise

from x402sim.suite.answers import Paid
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Inconclusive, check

INTERVAL_S = 300
BATCH = 100
NEVER_S = 366 * 86400
STEP_S = 30
AT_ONCE = 25


def _tx_hash(probe: Probe, paid: Paid) -> str:
    """Return the hash of a payment's transaction, in lower case; raises `Inconclusive`."""
    found = paid.receipt.at(probe.target.receipt.tx_hash)
    if not isinstance(found, str) or not found:
        raise Inconclusive("the receipt has no transaction hash")
    return found.lower()


async def _watch(probe: Probe, hashes: list[str]) -> None:
    """From now on, notice the first question about each of these transactions."""
    for tx_hash in hashes:
        fault = {"victim": "explorer", "does": "duplicate", "contains": tx_hash}
        await probe.control("POST", "faults", fault)


async def _asked(probe: Probe, hashes: list[str]) -> set[str]:
    """Return the watched transactions that were asked about."""
    standing = {each["contains"] for each in await probe.control("GET", "faults")}
    return set(hashes) - standing


async def _catch_up(probe: Probe) -> None:
    """Let the indexer finish what other checks have left."""
    for _ in range(2):
        await probe.advance(INTERVAL_S + 1)


async def _run(probe: Probe, hashes: list[str], at_least: int = 1) -> set[str]:
    """Let the indexer run once; return which of these it asked about, first waiting for some."""
    await probe.advance(INTERVAL_S)

    async def is_done() -> bool:
        return len(await _asked(probe, hashes)) >= at_least

    await probe.eventually(is_done)
    return await _asked(probe, hashes)


@check("8/indexer-query", needs="world, clock")
async def each_transaction_is_asked_for(probe: Probe) -> None:
    """The explorer is asked for a payment's transaction until it has answered, and no more."""
    await _catch_up(probe)
    hashes = [_tx_hash(probe, await probe.buy())]
    await _watch(probe, hashes)
    probe.require("a question to the explorer", bool(await _run(probe, hashes)), "none")
    await _watch(probe, hashes)
    again = await _run(probe, hashes)
    probe.require("no question once the block is stored", not again, "one more")


@check("8/indexer-query", needs="world, clock")
async def one_question_that_fails_stops_no_other(probe: Probe) -> None:
    """Where the explorer fails for the newest payment, it is still asked for an older one."""
    await _catch_up(probe)
    older = [_tx_hash(probe, await probe.buy())]
    await probe.advance(1)
    newer = _tx_hash(probe, await probe.buy())
    trouble = {"victim": "explorer", "does": "answer", "status": 500, "times": None}
    await probe.control("POST", "faults", {**trouble, "contains": newer})
    await _watch(probe, older)
    probe.require("a question about the older one", bool(await _run(probe, older)), "none")


@check("8/indexer-query", needs="world, clock")
async def an_explorer_that_lags_is_asked_again(probe: Probe) -> None:
    """While the explorer does not know the transaction, it is asked again, run after run."""
    await _catch_up(probe)
    await probe.control("POST", "explorer/lag", {"seconds": NEVER_S})
    hashes = [_tx_hash(probe, await probe.buy())]
    for run in range(1, 4):
        await _watch(probe, hashes)
        asked = await _run(probe, hashes)
        probe.require(f"a question in run {run}", bool(asked), "none")


@check("8/indexer-interval", needs="world, clock")
async def every_five_minutes(probe: Probe) -> None:
    """The indexer runs every 300 s."""
    await probe.control("POST", "explorer/lag", {"seconds": NEVER_S})
    await probe.buy()
    first = await probe.next_event()
    for _ in range(4 * INTERVAL_S // STEP_S):
        await probe.advance(STEP_S)
        await probe.setting.clock.sleep(0.01)
    entries = await probe.journal(first)
    times = [each.at_ms / 1000 for each in entries if each.event.actor == "explorer"]
    begins = [now for before, now in pairwise([0.0, *times]) if now - before > STEP_S / 2]
    gaps = [round(after - before) for before, after in pairwise(begins)]
    is_regular = all(abs(gap - INTERVAL_S) <= STEP_S + 5 for gap in gaps)
    probe.require("runs 300 s apart", len(gaps) >= 2 and is_regular, f"{gaps} s apart")


@check("8/indexer-batch", needs="world, clock")
async def a_hundred_the_newest(probe: Probe) -> None:
    """Of 101 payments without a block, a run asks for the 100 newest; the oldest comes later."""
    await _catch_up(probe)
    await probe.control("POST", "explorer/lag", {"seconds": NEVER_S})
    payer = await probe.payer()
    oldest = _tx_hash(probe, await probe.buy(payer))
    await probe.advance(2)
    newer: list[str] = []
    while len(newer) < BATCH:
        bought = await asyncio.gather(*(probe.buy(payer) for _ in range(AT_ONCE)))
        newer += [_tx_hash(probe, each) for each in bought]
    hashes = [oldest, *newer]
    await _watch(probe, hashes)
    asked = await _run(probe, hashes, BATCH)
    probe.require(f"at most {BATCH} questions", len(asked) <= BATCH, f"{len(asked)} in one run")
    probe.require("all of the newest", asked == set(newer), f"{len(asked & set(newer))} of them")
    await probe.control("POST", "explorer/lag", {"seconds": 0})
    later = [await _run(probe, [oldest]) for _ in range(2)]
    probe.require("the oldest in one of the next runs", any(later), "it was not asked for")
