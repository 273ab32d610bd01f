"""Payers that others have published do what is kept of them; our own pass every MUST."""

import pytest

from tests.interop.table import THOROUGH
from tests.suite_payer.published import KEPT, PAYERS, Own, kept, verdict

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
    found = kept(verdict(name, FEW + (OURS if isinstance(PAYERS[name], Own) else ())))
    assert len(found) >= len(FEW)
    assert found == {each: told["ids"][each] for each in found}


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAYERS)
def test_every_case_is_judged_as_it_was(name: str) -> None:
    found, told = kept(verdict(name)), KEPT.all()[name]["ids"]
    outcomes = {each: it["outcome"] for each, it in found.items()}
    assert outcomes == {each: told[each]["outcome"] for each in outcomes}


def test_each_is_kept_with_its_version() -> None:
    assert {name: it["version"] for name, it in KEPT.all().items()} == {
        name: payer.version for name, payer in PAYERS.items()
    }, f"python -m tests.suite_payer.published renews {KEPT.file.name}"


@pytest.mark.parametrize("name", [name for name, payer in PAYERS.items() if isinstance(payer, Own)])
def test_our_own_payers_fail_no_must(name: str) -> None:
    ids = KEPT.all()[name]["ids"]
    musts = {each: it["outcome"] for each, it in ids.items() if each.startswith("payer/")}
    assert set(musts.values()) == {"passed"}
    assert len(musts) > 50
