"""Watches a target's indexer by the log of the world's explorer, for one interval.

An indexer takes at most a hundred of the newest payments in a run: a payment that is to be seen
in its next run is made when the checks are over that do not wait. Then the target has nothing else
to do, too.
"""

from collections.abc import Collection

from x402sim.payer.wallet import Wallet
from x402sim.suite.service.answers import Paid
from x402sim.suite.service.check import Waits
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Inconclusive, NotApplicable
from x402sim.world.transport.faults import Fault

SLACK_S = 10
"""How long after its interval the indexer may have asked."""
TRIES = 4
MOMENT_S = 0.5
PAUSE_S = 5
"""Longer than a run pauses between two queries."""


def turn_s(setting: Setting) -> float:
    """Return how long it takes until the indexer has run once, in seconds."""
    return setting.target.indexer.interval_s + SLACK_S


async def late(probe: Probe) -> None:
    """Return when what is paid next is among the newest payments in the indexer's next run."""
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


# --- what the explorer is asked, run by run -------------------------------------------------


def turns_s(turns: int) -> Waits:
    """Return how long it takes until the indexer has run so many times."""
    return lambda setting: turns * setting.target.indexer.interval_s + SLACK_S


UNKNOWN_TO_THE_NODE = Fault(
    victim="rpc",
    does="answer",
    status=200,
    body='{"jsonrpc":"2.0","id":1,"result":null}',
    times=None,
)


async def held(probe: Probe, fault: Fault, payer: Wallet | None = None) -> str:
    """Pay, and let the explorer answer so about the transaction; return its hash.

    The node does not know the transaction: a target that asks it, too, learns no block there. The
    query is made, and stands in the log. Raises `Skipped` if the indexer always comes first.
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
    """Wait until all of these were asked for since a time, for one turn at most; return when."""
    return await probe.eventually(
        lambda: probe.world.first_queries(hashes, since_s),
        turn_s(probe.setting),
        lambda found: len(found) == len(hashes),
    )


async def until_quiet(probe: Probe) -> None:
    """Wait until a run is over: no query comes for a while. One turn at most is waited for.

    Where the clock turns, the run is due at once, and takes a moment of real time.
    """
    gap_s = min(PAUSE_S, probe.target.indexer.interval_s / 4)
    end_s, seen = probe.clock.now() + turn_s(probe.setting), -1
    while seen != (seen := len(await probe.world.queries())) and probe.clock.now() < end_s:
        if probe.setting.advance is None:
            await probe.wait(gap_s)
        else:
            await probe.clock.sleep(MOMENT_S)
