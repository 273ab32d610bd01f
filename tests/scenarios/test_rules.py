"""Every rule is needed: each row of each table is left out, and a scenario must notice."""

import pytest

from x402sim import World
from x402sim.report.summary import checks_of
from x402sim.world.world import TABLES

NOTICE = {
    "settlement": ("tampered_requirements", "foreign_header"),
    "freshness": ("expired_window",),
    "verification": ("facilitator_refuses",),
    "transfer": ("token_rules",),
    "receive": ("token_rules",),
    "cancel": ("token_rules",),
}
"""Who notices that a row of a table is missing."""
ROWS = [(table, rule.clause) for table, rules in TABLES.items() for rule in rules]


def notices(name: str, *without: tuple[str, str]) -> bool:
    """Whether a check of this scenario no longer holds; that the story merely breaks is not enough."""
    run = World(seed=1, without=without).play(name)
    return not all(check.ok for check in checks_of(run.journal))


@pytest.mark.parametrize(("table", "clause"), ROWS)
def test_a_missing_rule_is_noticed(table: str, clause: str) -> None:
    assert any(notices(name, (table, clause)) for name in NOTICE[table]), "no scenario notices"


@pytest.mark.parametrize("name", sorted({name for names in NOTICE.values() for name in names}))
def test_with_all_rules_every_check_passes(name: str) -> None:
    assert World(seed=1).play(name).outcome == "passed"  # a story that breaks has no failed check


def test_every_table_is_tried_and_no_clause_hides_another() -> None:
    assert set(NOTICE) == set(TABLES)
    assert len(set(ROWS)) == len(ROWS)
