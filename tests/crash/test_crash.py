"""The campaign runs: briefly every day, and a dozen cycles of each command when thorough.

`python -m tests.campaign` runs a hundred of each.
"""

from collections import Counter

import pytest

from tests.campaign import at_length, seed
from tests.crash.campaign import run_campaign
from tests.crash.deployment import Command
from tests.crash.kills import UNDER_LOAD

pytestmark = pytest.mark.clause(
    "3/pending-resolved", "3/refund-once", "4.1/store-settled", "5/nonce-once"
)


def test_a_crash() -> None:
    play(Command.SERVE, cycles=1, seed=1)


@pytest.mark.thorough
@pytest.mark.timeout(at_length(1200, 7200))
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name.lower())
def test_a_dozen_crashes(command: Command) -> None:
    cycles = at_length(12, 100)
    did = play(command, cycles=cycles, seed=seed(2))
    assert all(did[f"killed {phase.value}"] for phase in UNDER_LOAD)
    often = ("refunds", "session requests served", "headers sent again")
    assert min(did[name] for name in (*often, "payments without a first answer")) > cycles / 4


def play(command: Command, *, cycles: int, seed: int) -> Counter[str]:
    """Run a campaign that finds nothing; each of its cycles killed a process that was at work."""
    figures = run_campaign(command, cycles=cycles, seed=seed)
    did = figures.did
    print(command.value, *(f"{count:>8,}  {name}" for name, count in sorted(did.items())), sep="\n")
    assert figures.violations == []
    assert did["cycles"] == cycles
    assert sum(count for name, count in did.items() if name.startswith("killed")) >= cycles
    assert did["payments on the ledger"] >= did["receipts answered"] >= 8 * cycles
    return did
