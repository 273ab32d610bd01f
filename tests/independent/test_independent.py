"""Services that others wrote from the specification alone: none is accused, each defect is seen.

The whole suite against every form is `python -m tests.independent`; here, each as it is,
with its legal choices in a few groups, and a defect of each section before the check that saw it;
`python -m tests.campaign` tries each.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.independent import page
from tests.independent.__main__ import all_trials
from tests.independent.implementation import World, implementations, world
from tests.independent.matrix import Trial, kept, try_one
from x402sim.spec.ground import SENTENCES
from x402sim.suite.report.results import Outcome

HONEST = [name for name, implementation in implementations().items() if not implementation.is_loose]
CORRECT = [
    Trial(implementation=name, choices=group)
    for name in HONEST
    for group in ((), *implementations()[name].groups)
]


# --- the matrix ---------------------------------------------------------------------------


def test_the_matrix_has_every_form() -> None:
    told = [f"{row['service']}/{row['form']}" for row in kept()]
    assert told == [*all_trials()]


def test_every_defect_breaks_a_sentence_that_is_in_the_specification() -> None:
    text = " ".join(each.text for each in SENTENCES)
    for name, implementation in implementations().items():
        for defect in implementation.defects.values():
            assert not defect.breaks or defect.is_in(text), (name, defect)


def test_what_breaks_the_specification_is_seen_by_the_specifications_demands() -> None:
    for row in kept():
        if row["kind"] == "defect" and row["breaks"] and not row["why_not"]:
            assert row["seen_by_text"], row
        if row["kind"] == "correct" and row["service"] in HONEST:
            assert row["seen_by_text"] + row["seen_by_us"] == "", row


def test_the_page_is_current() -> None:
    assert page.FILE.read_text("utf-8") == page.page(), "run python -m tests.renew --only check"


# --- the services --------------------------------------------------------------------------


waits = pytest.mark.waits  # for sessions to end, in real time


@pytest.fixture(scope="module")
def within() -> Iterator[World]:
    """A world, in which the implementations of the tests are one after the other."""
    with world() as started:
        yield started


@waits
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trial", CORRECT, ids=lambda trial: trial.name)
def test_a_correct_implementation_passes_in_time(trial: Trial, within: World) -> None:
    """As it is, and with its legal choices."""
    assert try_one(trial, within=within).alarms() == ""


def seen() -> list[Any]:
    """Return each defect that must be seen, with the first id of its section that saw it, or the
    first of all. CI tries one of a section that needs no refund; `tests.mutants` breaks each clause."""
    found, sections = [], set[str]()
    for row in kept():
        if row["kind"] == "defect" and (ids := row["seen_by_text"] or row["seen_by_us"]):
            seen_by = ids.split()
            section = f"spec/{row['section']}/"
            own = [each for each in seen_by if each.startswith(section)]
            trial = Trial(implementation=row["service"], defect=row["form"])
            # a defect of refunds is judged once more alone, after refunds were waited for
            is_refund = row["form"].startswith("refund")
            is_often = not is_refund and row["section"] not in sections
            sections |= {row["section"]} if is_often else set()
            marks = [pytest.mark.thorough if is_often else pytest.mark.campaign]
            marks += [pytest.mark.timeout(450)] if is_refund else []
            found.append(pytest.param(trial, (own or seen_by)[0], marks=marks))
    return found


@pytest.mark.parametrize(("trial", "check_id"), seen(), ids=lambda it: getattr(it, "name", it))
def test_a_defect_is_seen(trial: Trial, check_id: str, within: World) -> None:
    assert check_id in try_one(trial, [check_id], within=within).of(Outcome.FAILED)


IN_ONE_LOOP = {
    "spec/1/indexer": "indexer_hourly",
    "spec/2.4/block-null": "block_at_creation",
    "spec/8/indexer-interval": "indexer_hourly",
    "spec/8/indexer-query": "indexer_dies",
}


@waits
@pytest.mark.thorough
@pytest.mark.parametrize("check_id", IN_ONE_LOOP)
def test_what_needs_the_only_loop_is_seen_by_its_own_id(check_id: str, within: World) -> None:
    """The whole suite accuses no loop that stands still (`CORRECT`); each id still sees a defect."""
    trial = Trial(implementation="fastapi", choices=("one_loop",), defect=IN_ONE_LOOP[check_id])
    assert try_one(trial, [check_id], within=within).of(Outcome.FAILED) == [check_id]


PAYWALL = {row["form"]: row["seen_by_text"] for row in kept() if row["service"] == "express"}


@waits
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", PAYWALL)
def test_the_public_paywall_fails_what_the_documentation_says(form: str, within: World) -> None:
    choices = () if form == "as it is" else (form,)
    verdict = try_one(Trial(implementation="express", choices=choices), within=within)
    assert set(verdict.by_the_text) == set(PAYWALL[form].split())
