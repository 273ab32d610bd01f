"""The scenarios with a golden journal happen today as they did when they were last looked at."""

import pytest

from tests.scenarios.golden import FOLDER, KEPT, golden, kept, played
from x402sim.journal import Journal
from x402sim.report.diff import describe


@pytest.mark.parametrize("name", KEPT)
def test_it_happens_as_it_did(name: str) -> None:
    before, now = kept(name), played(name)
    if now != before:
        told = describe(Journal.load(before), Journal.load(now))
        pytest.fail("\n".join([*told, "if that is right: python -m tests.renew --only golden"]))


def test_no_golden_journal_is_left_over() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(map(golden, KEPT))
