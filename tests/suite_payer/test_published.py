"""Payers that others have published do what is kept of them; our own pass every MUST."""

import pytest

from tests.interop.table import THOROUGH
from tests.published import failed, kept
from tests.suite_payer.published import PAYERS, Own, verdict
from x402sim.report.results import Outcome

FEW = (
    "payer/control/buys",
    "payer/lost/no-answer-after-settling",
    "payer/lost/asked-again",
    "payer/sign/price-over-cap",
    "payer/choose/first-too-dear",
)
"""What CI judges of a few of them."""
OURS = (
    "payer/accept/events",
    "payer/budget/session",
    "payer/lost/again-over-cap",
    "payer/sign/asset",
)
"""What it judges of ours besides."""
NAMES = {name: f"{name} {payer.version}" for name, payer in PAYERS.items()}
OWN = [name for name, payer in PAYERS.items() if isinstance(payer, Own)]


@pytest.mark.parametrize(
    "name",
    ["x402sim (PaymentAuth)", *(pytest.param(each, marks=THOROUGH) for each in ("x402sim pay", "@x402/axios"))],
)  # fmt: skip
def test_a_few_cases_are_judged_as_they_were(name: str) -> None:
    found = verdict(name, FEW + (OURS if name in OWN else ()))
    ids = {each.id for each in found.results}
    assert ids >= {*FEW}
    assert failed(found) == {it for it in kept("payer")[NAMES[name]].failures if it[0] in ids}
    assert not [each.id for each in found.results if each.outcome is Outcome.INCONCLUSIVE]


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAYERS)
def test_every_case_is_judged_as_it_was(name: str) -> None:
    assert failed(verdict(name)) == {*kept("payer")[NAMES[name]].failures}


def test_a_program_that_is_kept_is_kept_with_its_version() -> None:
    versions = {it.implementation: it.version for it in kept("payer").values()}
    expected = {name: payer.version for name, payer in PAYERS.items() if name in versions}
    assert expected
    assert expected.items() <= versions.items(), "python -m tests.suite_payer.published NAME"


@pytest.mark.parametrize("name", OWN)
def test_our_own_payers_fail_no_must(name: str) -> None:
    record = kept("payer")[NAMES[name]]
    assert not [each.ids for each in record.failed if each.level == "MUST"]
    assert record.counts[Outcome.PASSED] > 50
