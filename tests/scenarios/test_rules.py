"""Every rule is needed: each row of each table is left out, and a scenario must notice."""

from collections.abc import Iterator

import pytest

from x402sim import World
from x402sim.report.summary import checks_of
from x402sim.world.assembly.recipe import TABLES
from x402sim.world.story.scenario import Scenario, shipped

LIKELY = {
    "settlement": ("tampered_requirements", "foreign_header"),
    "freshness": ("expired_window",),
    "verification": ("facilitator_refuses",),
    "transfer": ("token_rules",),
    "receive": ("token_rules",),
    "cancel": ("token_rules",),
}
"""Who notices, most likely; they are asked first, and then everybody else."""
SHIPPED = {each.name: each for each in shipped()}
ROWS = [(table, rule.clause) for table, rules in TABLES.items() for rule in rules]


def in_order_of_suspicion(table: str) -> Iterator[Scenario]:
    yield from (SHIPPED[name] for name in LIKELY[table])
    yield from (each for name, each in SHIPPED.items() if name not in LIKELY[table])


def notices(scenario: Scenario, without: tuple[tuple[str, str], ...]) -> bool:
    """Whether a check of this scenario no longer holds; that the story merely breaks is not enough."""
    return not all(
        check.ok for check in checks_of(World(seed=1, without=without).play(scenario).journal)
    )


@pytest.mark.parametrize(("table", "clause"), ROWS)
def test_a_missing_rule_is_noticed(table: str, clause: str) -> None:
    suspects = in_order_of_suspicion(table)
    assert any(notices(each, ((table, clause),)) for each in suspects), "no scenario notices"


@pytest.mark.parametrize("name", sorted({name for names in LIKELY.values() for name in names}))
def test_with_all_rules_every_check_passes(name: str) -> None:
    assert not notices(SHIPPED[name], ())


def test_every_table_is_tried_and_no_clause_hides_another() -> None:
    assert set(LIKELY) == set(TABLES)
    assert len(set(ROWS)) == len(ROWS)
