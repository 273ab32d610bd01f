"""Facilitators that are published get the verdicts that conformance/verdicts.json keeps."""

import pytest

from tests.published import failed, kept
from tests.suite_facilitator.published import FILE, PUBLISHED, judgement, page
from x402sim.judging import judge

FEW = (
    "facilitator/nonce/used-elsewhere",
    "facilitator/balance/none",
    "facilitator/many/eight-all",
)
"""The ids that CI judges of each published facilitator."""


def test_the_page_is_that_of_the_cases() -> None:
    """Renew it with `python -m tests.suite_facilitator.published`."""
    assert FILE.read_text(encoding="utf-8") == page(), "python -m tests.renew --only cases"


def test_ours_passes_every_must() -> None:
    ours = next(it for it in kept("facilitator").values() if it.implementation == "x402sim")
    assert [each.ids for each in ours.failed if each.level == "MUST"] == []


@pytest.mark.thorough
@pytest.mark.timeout(600)  # npm installs the version first
def test_a_version_installed_by_its_recipe_gets_its_verdict() -> None:
    sdk = "@x402/evm@2.27.0"
    found = judge("facilitator", only=FEW, sdk=[sdk])
    record = kept("facilitator")["@x402/evm 2.27.0"]
    assert failed(found) == {each for each in record.failures if each[0] in FEW} != set()
    assert found.about.target == sdk
    assert all(
        f"conformance facilitator --sdk {sdk} --only {it.id}" in it.rerun for it in found.results
    )


@pytest.mark.campaign
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_one_gets_its_verdict(name: str) -> None:
    assert failed(judgement(name)) == {
        *kept("facilitator")[f"{name} {PUBLISHED[name].version}"].failures
    }
