"""Every rule is needed: without any row of any table, a check of a scenario fails."""

import pytest

from x402sim import World
from x402sim.report.reading import checks_of
from x402sim.world.world import TABLES

SCENARIO_THAT_FAILS_WITHOUT = {
    "settlement": ("tampered_requirements", "foreign_header"),
    "freshness": ("expired_window",),
    "verification": ("facilitator_refuses",),
    "transfer": ("token_rules",),
    "receive": ("token_rules",),
    "cancel": ("token_rules",),
}
"""For each rule table, the scenarios that fail when one of its rows is left out."""
ROWS = [(table, rule.clause) for table, rules in TABLES.items() for rule in rules]


def fails(name: str, *without: tuple[str, str]) -> bool:
    """Whether a check of this scenario no longer holds; that the story merely breaks is not enough."""
    run = World(seed=1, without=without).play(name)
    return not all(check.ok for check in checks_of(run.journal))


@pytest.mark.parametrize(("table", "clause"), ROWS)
def test_without_a_rule_a_scenario_fails(table: str, clause: str) -> None:
    assert any(fails(name, (table, clause)) for name in SCENARIO_THAT_FAILS_WITHOUT[table]), (
        "no scenario fails"
    )


def test_every_table_is_tried_and_no_clause_hides_another() -> None:
    assert set(SCENARIO_THAT_FAILS_WITHOUT) == set(TABLES)
    assert len(set(ROWS)) == len(ROWS)
