"""The campaign runs: briefly every day, and a dozen cycles of each command when thorough.

`python -m tests.campaign` runs a hundred of each.
"""

import pytest

from tests.crash.__main__ import table
from tests.crash.campaign import Figures, run_campaign
from tests.crash.deployment import Command
from tests.crash.kills import UNDER_LOAD

CYCLES = 12


pytestmark = pytest.mark.clause(
    "3/pending-resolved", "3/refund-once", "4.1/store-settled", "5/nonce-once"
)


def test_a_crash() -> None:
    play(Command.SERVE, cycles=1, seed=1)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name.lower())
def test_a_dozen_crashes(command: Command) -> None:
    did = play(command, cycles=CYCLES, seed=2).did
    assert all(did[f"killed {phase.value}"] for phase in UNDER_LOAD)
    often = ("refunds", "session requests served", "headers sent again")
    assert min(did[name] for name in (*often, "payments without a first answer")) > CYCLES / 4


def play(command: Command, *, cycles: int, seed: int) -> Figures:
    """Run a campaign that finds nothing; each of its cycles killed a process that was at work."""
    figures = run_campaign(command, cycles=cycles, seed=seed)
    print(table(figures))
    assert figures.violations == []
    did = figures.did
    assert did["cycles"] == cycles
    assert sum(count for name, count in did.items() if name.startswith("killed")) >= cycles
    assert did["payments on the ledger"] >= did["receipts answered"] >= 8 * cycles
    return figures
