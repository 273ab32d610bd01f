"""The table of decisions says of each open question what we do, and what else could be done.

That each switch really does it is tested in `tests/service/test_decisions.py`.
"""

import dataclasses
from dataclasses import fields

from x402sim.spec.clauses import CLAUSES
from x402sim.spec.decisions import Decisions, alternatives, decisions

ALL = list(decisions())
SWITCHES = [decision for decision in ALL if decision.field is not None]
SECTIONS = {clause.section for clause in CLAUSES}


def test_every_switch_and_every_fixed_choice_is_listed_once() -> None:
    assert [decision.field for decision in SWITCHES] == [field.name for field in fields(Decisions)]
    assert ALL[: len(SWITCHES)] == SWITCHES
    assert len(ALL) > len(SWITCHES) + 30


def test_each_is_about_a_section_of_the_specification() -> None:
    assert {decision.id.partition("/")[0] for decision in ALL} <= SECTIONS


def test_the_alternatives_are_another_value_of_the_same_type_for_every_switch() -> None:
    ours, others = dataclasses.asdict(Decisions()), dataclasses.asdict(alternatives())
    for decision in SWITCHES:
        assert ours[decision.field] == decision.default, decision.id
        assert others[decision.field] == decision.alternative != decision.default, decision.id
        assert type(decision.alternative) is type(decision.default), decision.id
