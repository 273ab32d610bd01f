"""Published versions get the verdicts that conformance/verdicts.json keeps; our own pass every MUST."""

import pytest

from tests.interop.table import THOROUGH
from tests.published import OWN, failed, kept
from x402sim.judging import judge
from x402sim.suite.report.results import Outcome
from x402sim.suite.site import SUBJECTS
from x402sim.version import VERSION

FEW = {
    "facilitator": (
        "facilitator/nonce/used-elsewhere",
        "facilitator/balance/none",
        "facilitator/node/send-lost",
    ),
    "server": (
        "server/control",
        "server/header/version-answer",
        "server/order/refused",
        "kit/order/settled-lost",
        "server/path/head",
    ),
    "payer": (
        "payer/control/buys",
        "payer/lost/no-answer-after-settling",
        "payer/sign/price-over-cap",
        "kit/sign/window-of-years",
        "payer/send/paid-and-redirected-307-along",
    ),
}
"""The ids that CI judges of a few versions."""
OURS = ("payer/accept/events", "payer/budget/session", "payer/lost/again-over-cap")
"""What CI judges of our payers besides."""
LOST = ("lost", "cut", "twice", "empty", "page", "gateway")
LATEST = ("x402[fastapi] 2.25.0", "x402[flask] 2.25.0", "@x402/express 2.27.0", "@x402/hono 2.27.0")
SDK = [
    (subject, each.name, each.repeat.rpartition(" --sdk ")[2].strip("'"))
    for subject in SUBJECTS
    for each in kept(subject).values()
    if " --sdk " in each.repeat
]
INSTALLED = [
    each
    for each in SDK
    if each[2]
    in ("@x402/evm@2.27.0", "x402[fastapi]==2.25.0", "x402[mcp]==2.25.0", "@x402/axios@2.11.0")
]
"""The versions that CI installs and judges by the few ids."""


@pytest.mark.parametrize("name", OWN)
def test_ours_passes_every_must(name: str) -> None:
    record = kept(OWN[name].subject)[f"{name} {VERSION}"]
    assert [each.id for each in record.failed if each.level == "MUST"] == []
    assert record.counts[Outcome.PASSED] > 50


@pytest.mark.parametrize("name", ["x402sim (PaymentAuth)", pytest.param("x402sim pay", marks=THOROUGH)])  # fmt: skip
def test_a_few_cases_of_ours_are_judged_as_they_were(name: str) -> None:
    found = OWN[name].judged(*FEW["payer"], *OURS)
    ids = {each.id for each in found.results}
    assert ids >= {*FEW["payer"]}
    assert failed(found) == {
        it for it in kept("payer")[f"{name} {VERSION}"].failures if it[0] in ids
    }
    assert not [each.id for each in found.results if each.outcome is Outcome.INCONCLUSIVE]


@pytest.mark.parametrize(("subject", "name", "sdk"), INSTALLED)
def test_the_few_ids_hold_a_failure_of_each_installed_version(
    subject: str, name: str, sdk: str
) -> None:
    """Else the next test would compare nothing with nothing, after a version was judged anew."""
    assert {check_id for check_id, _ in kept(subject)[name].failures} & {*FEW[subject]}


@THOROUGH
@pytest.mark.timeout(600)  # npm or pip installs the version first
@pytest.mark.parametrize(("subject", "name", "sdk"), INSTALLED)
def test_a_version_installed_by_its_recipe_gets_its_verdict(
    subject: str, name: str, sdk: str
) -> None:
    found = judge(subject, only=FEW[subject], sdk=[sdk])
    ids = {each.id for each in found.results}
    expected = {each for each in kept(subject)[name].failures if each[0] in ids}
    assert failed(found) == expected != set()
    assert found.about.target == sdk
    assert all(f" --only {it.id}" in it.rerun and sdk in it.rerun for it in found.results)


@pytest.mark.parametrize("name", LATEST)
def test_a_settlement_whose_answer_is_lost_is_charged_and_never_served(name: str) -> None:
    """Measured before there was a judge: 24 of 24, for four middlewares and six faults."""
    losses = {check_id: it.lost for (check_id, _), it in kept("server")[name].failures.items()}
    found = [losses.get(f"kit/order/settled-{each}") for each in LOST]
    assert found == ["0.01 USDC"] * len(LOST)
    assert ("server/header/version-answer" in losses) == name.startswith("x402[")
    assert ("server/path/head" in losses) == ("fastapi" not in name)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("subject", "name", "sdk"), SDK)
def test_every_case_is_judged_as_it_was(subject: str, name: str, sdk: str) -> None:
    assert failed(judge(subject, sdk=[sdk])) == {*kept(subject)[name].failures}
