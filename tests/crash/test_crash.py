"""The campaign runs: briefly every day, and forty cycles of each command when thorough.

`python -m tests.campaign` runs a hundred of each.
"""

import pytest

from tests.crash.__main__ import table
from tests.crash.campaign import Figures, run_campaign
from tests.crash.deployment import Command
from tests.crash.kills import UNDER_LOAD

CYCLES = 40


@pytest.mark.clause("3/pending-resolved", "3/refund-once", "4.1/store-settled", "5/nonce-once")
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name.lower())
def test_two_crashes(command: Command) -> None:
    figures = run_campaign(command, cycles=2, seed=1)
    print(table([figures]))
    assert figures.violations == []
    assert_worked(figures, 2)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.clause("3/pending-resolved", "3/refund-once", "4.1/store-settled", "5/nonce-once")
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name.lower())
def test_forty_crashes(command: Command) -> None:
    figures = run_campaign(command, cycles=CYCLES, seed=2)
    print(table([figures]))
    assert figures.violations == []
    assert_worked(figures, CYCLES)
    assert all(figures.kills[phase] for phase in UNDER_LOAD)
    assert min(figures.refunds, figures.spent, figures.lost_answers, figures.resends) > CYCLES / 4


def assert_worked(figures: Figures, cycles: int) -> None:
    """Each cycle killed a process that was at work."""
    assert figures.cycles == cycles
    assert figures.kills.total() >= cycles
    assert figures.receipts >= 8 * cycles
    assert figures.payments >= figures.receipts
