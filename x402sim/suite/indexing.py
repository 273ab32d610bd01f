"""How is a target's indexer watched? By the log of the world's explorer, one interval long.

An indexer takes at most a hundred of the newest payments in a run: a payment that is to be seen
in its next run is made when the checks are over that do not wait.
"""

from x402sim.suite.answers import Paid
from x402sim.suite.check import PATIENCE_S
from x402sim.suite.probe import Probe
from x402sim.suite.setting import Setting
from x402sim.suite.verdict import Inconclusive

SLACK_S = 10
"""How long after its interval the indexer may have asked."""


def turn_s(setting: Setting) -> float:
    """Return how long it takes until the indexer has run once, in seconds."""
    return setting.target.indexer.interval_s + SLACK_S


async def buy_late(probe: Probe) -> Paid:
    """Pay for the resource, as one of the newest payments in the indexer's next run."""
    if turn_s(probe.setting) > PATIENCE_S:
        await probe.wait_for_the_rest()
    return await probe.buy()


def tx_hash(paid: Paid) -> str:
    """Return the hash of a payment's transaction, in lower case; raises `Inconclusive`."""
    found = paid.receipt.at(paid.receipt.target.receipt.tx_hash)
    if not isinstance(found, str) or not found:
        raise Inconclusive(f"the receipt has no transaction hash: {found!r}")
    return found.lower()
