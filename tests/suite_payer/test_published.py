"""Payers that others have published do what is kept of them; our own pass every MUST."""

import pytest

from tests.interop.table import THOROUGH
from tests.published import failed
from tests.suite_payer.published import KEPT, PAYERS, Own, judged, kept, verdict

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


@pytest.mark.parametrize(
    "name",
    ["PaymentAuth", *(pytest.param(each, marks=THOROUGH) for each in ("x402sim pay", "httpx", "@x402/fetch"))],
)  # fmt: skip
def test_a_few_cases_are_judged_as_they_were(name: str) -> None:
    told = KEPT.all()[name]
    assert told["version"] == PAYERS[name].version, f"python -m tests.suite_payer.published {name}"
    found = judged(verdict(name, FEW + (OURS if isinstance(PAYERS[name], Own) else ())))
    assert len(found) >= len(FEW)
    of_found = [each for each in told["failed"] if (each["id"], each["dialect"]) in found]
    assert kept(found)["failed"] == of_found
    assert not kept(found)["inconclusive"]


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAYERS)
def test_every_case_is_judged_as_it_was(name: str) -> None:
    found, told = kept(judged(verdict(name))), KEPT.all()[name]
    assert (found["counts"], failed(found)) == (told["counts"], failed(told))


def test_each_is_kept_with_its_version() -> None:
    assert {name: it["version"] for name, it in KEPT.all().items()} == {
        name: payer.version for name, payer in PAYERS.items()
    }, f"python -m tests.suite_payer.published renews {KEPT.file.name}"


@pytest.mark.parametrize("name", [name for name, payer in PAYERS.items() if isinstance(payer, Own)])
def test_our_own_payers_fail_no_must(name: str) -> None:
    told = KEPT.all()[name]
    assert not {
        each["id"]
        for each in told["failed"] + told["inconclusive"]
        if each["id"].startswith("payer/")
    }
    assert told["counts"]["payer"] > 50
