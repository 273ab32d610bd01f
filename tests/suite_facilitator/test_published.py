"""Facilitators that are published get the verdicts that conformance/facilitators.md tells."""

import pytest

from tests.published import failed, summary
from tests.suite_facilitator.published import FILE, KEPT, PUBLISHED, judgement, page

FEW = {
    "npm": {
        "facilitator/nonce/used-elsewhere": "passed",
        "facilitator/balance/none": "passed",
        "facilitator/many/eight-all": "failed",
    },
}
"""What CI asks: one that is published, and what came of it."""


def test_the_page_is_that_of_the_cases_and_of_the_verdicts_that_are_kept() -> None:
    """Renew it with `python -m tests.suite_facilitator.published`."""
    assert FILE.read_text(encoding="utf-8") == page(), "python -m tests.renew --only cases"


def test_ours_passes_every_must() -> None:
    assert [each["id"] for each in KEPT.all()["ours"]["failed"] if each["level"] == "MUST"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", FEW)
def test_one_that_is_published_gets_its_verdict(name: str) -> None:
    found = {each.id: each.outcome for each in judgement(name, FEW[name]).results}
    assert {each: found[each] for each in FEW[name]} == FEW[name]


@pytest.mark.campaign
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_one_gets_its_verdict(name: str) -> None:
    assert failed(summary(judgement(name).results)) == failed(KEPT.all()[name])
