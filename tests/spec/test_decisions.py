import dataclasses
import re
from dataclasses import fields

import pytest

from x402sim.spec.decisions import FIXED, Decisions, alternatives, decisions

ALL = list(decisions())
SWITCHES = [each for each in ALL if each.field is not None]
STATUSES = [each for each in SWITCHES if each.field.endswith("_status")]
every_decision = pytest.mark.parametrize("decision", ALL, ids=lambda decision: decision.id)
every_switch = pytest.mark.parametrize("decision", SWITCHES, ids=lambda decision: decision.id)


def test_ids_are_unique():
    ids = [decision.id for decision in ALL]
    assert len(ids) == len(set(ids))


def test_every_switch_and_every_fixed_choice_is_listed():
    names = [field.name for field in fields(Decisions)]
    assert names == [decision.field for decision in SWITCHES]
    assert SWITCHES + list(FIXED) == ALL


@every_decision
def test_a_decision_names_its_section(decision):
    assert re.fullmatch(r"[1-9](\.[1-9])?/[a-z0-9]+(-[a-z0-9]+)*", decision.id)


@every_decision
@pytest.mark.parametrize("part", ["question", "choice", "alternatives", "reason"])
def test_no_part_of_a_decision_is_empty(decision, part):
    text = getattr(decision, part)
    assert text
    assert text == text.strip()


@every_decision
def test_a_question_asks(decision):
    assert decision.question.endswith("?")


@every_switch
def test_a_switch_has_another_value_of_the_same_type(decision):
    assert decision.alternative != decision.default
    assert type(decision.alternative) is type(decision.default)


@pytest.mark.parametrize("decision", STATUSES, ids=lambda decision: decision.id)
def test_a_status_is_a_status_and_stands_in_its_texts(decision):
    assert 200 <= decision.default < 600
    assert 200 <= decision.alternative < 600
    assert str(decision.default) in decision.choice
    assert str(decision.alternative) in decision.alternatives


@every_switch
def test_a_default_is_what_the_service_gets_and_the_alternative_is_the_other(decision):
    assert getattr(Decisions(), decision.field) == decision.default
    assert getattr(alternatives(), decision.field) == decision.alternative


def test_alternatives_flips_every_switch():
    ours, others = dataclasses.asdict(Decisions()), dataclasses.asdict(alternatives())
    assert [name for name, value in ours.items() if value == others[name]] == []


@pytest.mark.parametrize("decision", FIXED, ids=lambda decision: decision.id)
def test_a_fixed_choice_has_no_switch(decision):
    assert (decision.field, decision.default, decision.alternative) == (None, None, None)


def test_decisions_cannot_be_changed_once_made():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Decisions().agents_free = False
    with pytest.raises(TypeError):
        Decisions(False)
